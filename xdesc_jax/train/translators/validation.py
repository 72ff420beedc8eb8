"""Validation: how well every source translates to every target, and matches in the joint space.

In: variables and aligned rows of photos not trained on. Out: translation error per pair, bit accuracy, and
rank-1 retrieval for every source -> target and for every pair in the joint space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax.networks import losses, mlp
from xdesc_jax.networks.mlp import Networks, Variables
from xdesc_jax.train.rank1 import rank1


def validator(networks: Networks) -> Callable[..., dict[str, Any]]:
    """Makes the measuring function of a model; its jitted parts compile once.

    Returns:
        (variables, canonical rows [N, D] by descriptor, which descriptors, None: all) -> {
            'translation_error': {'s->t': L^T}, 'bit_accuracy': {'s->t': share of bits, binary t},
            'rank1': {'s->t': share}, 'joint_rank1': {'s|t': share}, 'mean_rank1': mean of all of them
            (but the trivial s|s)}.
    """
    translate = jax.jit(
        lambda variables, x, source, target: mlp.translate(networks, variables, x, source, target),
        static_argnums=(2, 3),
    )
    embed = jax.jit(lambda variables, x, source: mlp.embed(networks, variables, x, source), static_argnums=2)

    def measure(
        variables: Variables, rows: Mapping[str, jax.Array], names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        names = networks.names if names is None else names
        result: dict[str, Any] = {"translation_error": {}, "bit_accuracy": {}, "rank1": {}, "joint_rank1": {}}
        for source in names:
            for target in names:
                if networks.kind == "pair" and source == target:
                    continue
                pair, binary = f"{source}->{target}", networks.specs[target].binary
                predicted, wanted = translate(variables, rows[source], source, target), rows[target]
                result["translation_error"][pair] = float(jnp.mean(losses.translation_error(predicted, wanted, binary)))
                if binary:
                    predicted = (predicted > 0).astype(jnp.float32)  # logit 0 is probability 0.5
                    result["bit_accuracy"][pair] = float(jnp.mean(predicted == wanted))
                result["rank1"][pair] = rank1(predicted, wanted)
        if networks.kind == "encoder_decoder":
            embedded = {name: embed(variables, rows[name], name) for name in names}
            for i, a in enumerate(names):
                for b in names[i + 1 :]:
                    result["joint_rank1"][f"{a}|{b}"] = rank1(embedded[a], embedded[b])
        ranks = [*result["rank1"].values(), *result["joint_rank1"].values()]
        result["mean_rank1"] = float(np.mean(ranks))
        return result

    return measure
