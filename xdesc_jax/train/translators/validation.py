"""Validation: how well every source translates to every target, and matches in the joint space.

In: variables, aligned rows of photos not trained on, and what the networks are told of their keypoints; all of a pair
is measured on the rows that both have. Out:
translation error per pair, bit accuracy, and rank-1 retrieval for every source -> target and for every pair in the
joint space. All of it is one program, whose size grows with the number of descriptors and not with that of their pairs,
and leaves the device in one transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xdesc_jax.data.schema import KEYPOINT as FRAMES
from xdesc_jax.networks import losses, mlp
from xdesc_jax.networks.mlp import Networks, Variables
from xdesc_jax.train.rank1 import share_found_first
from xdesc_jax.train.translators.objective import around_of, held_rows, taught_all
from xdesc_jax.translation.ratios import Mode, key
from xdesc_jax.translation.translator import EMBEDDING

Rows = Mapping[str, jax.Array]
Figures = dict[str, Any]
ROWS = "rows"


def validator(networks: Networks) -> Callable[[Variables, Rows], Figures]:
    """Makes the measuring function of a model.

    Returns:
        (variables, canonical rows [N, D] by descriptor) -> {
            'translation_error': {'s->t': L^T}, 'bit_accuracy': {'s->t': share of bits, binary t},
            'rank1': {'s->t': share}, 'joint_rank1': {'s|t': share}, 'mean_rank1': mean of all of them
            (but the trivial s|s)}. Pairs that have no row in common are not in it.
    """
    program = jax.jit(partial(measured, networks))
    every = networks.names
    return lambda variables, rows: _figures(every, every, jax.device_get(program(variables, rows)))


def population_validator(
    networks: Networks, names: Sequence[Sequence[str]]
) -> Callable[[Variables, Rows], list[Figures]]:
    """Makes the measuring function of a population, whose members are measured in one dispatch.

    Args:
        networks: of all members.
        names: the descriptors of each member, K of them.

    Returns:
        (variables of K members, [K, ...] each, rows) -> what `validator` gives of each, of its descriptors alone.
    """
    program = jax.jit(lambda variables, rows: lax.map(lambda own: measured(networks, own, rows), variables))

    def measure(variables: Variables, rows: Rows) -> list[Figures]:
        of_all = jax.device_get(program(variables, rows))
        return [_figures(networks.names, own, jax.tree.map(itemgetter(i), of_all)) for i, own in enumerate(names)]

    return measure


def measured(networks: Networks, variables: Variables, rows: Rows) -> dict[str, Any]:
    """Figures by measure and (source, target), and how many `ROWS` two descriptors have in common, [A, A]."""
    if networks.teacher is not None:
        figures = _of_pupils
    else:
        figures = _of_pair_networks if networks.kind == "pair" else _of_joint_space
    held = _held(networks, rows).astype(jnp.int32)
    return figures(networks, variables, rows) | {ROWS: held @ held.T}


def _of_pupils(networks: Networks, variables: Variables, rows: Rows) -> dict[str, dict[Any, jax.Array]]:
    """What embeddings of pupils find among the teacher's, of the same descriptor (source s, target 'embedding'), and of
    another (s of a pupil, t of the teacher)."""
    names, held, taught = networks.names, _held(networks, rows), taught_all(networks, rows)
    found: dict[str, dict[Any, jax.Array]] = {"translation_error": {}, "rank1": {}, "joint_rank1": {}}
    for i, name in enumerate(names):
        around = around_of(networks, rows, name)
        embedded = mlp.embed(networks, variables, rows[name], name, rows.get(FRAMES), around)
        errors = jnp.sum((embedded - taught[i]) ** 2, axis=-1)
        found["translation_error"][name, EMBEDDING] = losses.masked_sum(errors, held[i]).mean()
        found["rank1"][name, EMBEDDING] = share_found_first(embedded, taught[i], held[i])
        others = lax.map(lambda of, z=embedded, own=held[i]: share_found_first(z, of[0], own & of[1]), (taught, held))
        found["joint_rank1"] |= {(name, other): others[j] for j, other in enumerate(names) if j != i}
    return found


def _of_joint_space(networks: Networks, variables: Variables, rows: Rows) -> dict[str, dict[Any, jax.Array]]:
    """Embeddings are stacked, so that what follows is written once a target, and once for all pairs."""
    names, frames = networks.names, rows.get(FRAMES)
    embedded = jnp.stack([  # [A, N, E]
        mlp.embed(networks, variables, rows[name], name, frames, around_of(networks, rows, name)) for name in names
    ])  # fmt: skip
    held = _held(networks, rows)
    found: dict[str, dict[Any, jax.Array]] = {"translation_error": {}, "bit_accuracy": {}, "rank1": {}}
    for own, target in zip(held, names, strict=True):

        def one(source: tuple[jax.Array, jax.Array], target: str = target) -> dict[str, jax.Array]:
            z, mask = source
            raw = mlp.apply(networks, variables, f"decoder/{target}", z, frames)
            return _compared(networks, mlp.finish(raw, networks.specs[target]), rows[target], mask, target)

        for measure, values in lax.map(one, (embedded, held & own)).items():
            found[measure] |= {(source, target): values[i] for i, source in enumerate(names)}
    first, second = np.triu_indices(len(names), k=1)
    if len(first):
        joint = lax.map(
            lambda pair: share_found_first(embedded[pair[0]], embedded[pair[1]], held[pair[0]] & held[pair[1]]),
            (first, second),
        )
        found["joint_rank1"] = {
            (names[a], names[b]): joint[n] for n, (a, b) in enumerate(zip(first, second, strict=True))
        }
    return found


def _of_pair_networks(networks: Networks, variables: Variables, rows: Rows) -> dict[str, dict[Any, jax.Array]]:
    held = dict(zip(networks.names, _held(networks, rows), strict=True))
    found: dict[str, dict[Any, jax.Array]] = {"translation_error": {}, "bit_accuracy": {}, "rank1": {}}
    for source in networks.names:
        for target in networks.names:
            if source != target:
                predicted = mlp.translate(networks, variables, rows[source], source, target, rows.get(FRAMES))
                mask = held[source] & held[target]
                for measure, value in _compared(networks, predicted, rows[target], mask, target).items():
                    found[measure][source, target] = value
    return found


def _held(networks: Networks, rows: Rows) -> jax.Array:
    """Which rows each descriptor has, [A, N] bool."""
    return held_rows(networks.names, rows, jnp.ones(len(rows[networks.names[0]]), bool))


def _compared(
    networks: Networks, predicted: jax.Array, wanted: jax.Array, mask: jax.Array, target: str
) -> dict[str, jax.Array]:
    """Figures of translations [N, D] (logits where binary) to the target's own rows [N, D], where `mask` [N] is set."""
    binary = networks.specs[target].binary
    found = {"translation_error": losses.masked_sum(losses.translation_error(predicted, wanted, binary), mask).mean()}
    if binary:
        predicted = (predicted > 0).astype(jnp.float32)  # logit 0 is probability 0.5
        found["bit_accuracy"] = losses.masked_sum(jnp.mean(predicted == wanted, axis=-1), mask).mean()
    return found | {"rank1": share_found_first(predicted, wanted, mask)}


def _figures(every: Sequence[str], names: Sequence[str], found: Mapping[str, Any]) -> Figures:
    """What was measured of some of the descriptors, as it is written down: not of pairs without a row in common."""
    at = {name: i for i, name in enumerate(every)}

    names = (*names, EMBEDDING)

    def of(measure: str, mode: Mode) -> dict[str, float]:
        values = [(s, t, x) for (s, t), x in found.get(measure, {}).items() if s in names and t in names]
        # The teacher's embeddings are there where the descriptor is.
        return {key(mode, s, t): float(x) for s, t, x in values if found[ROWS][at[s], at.get(t, at[s])]}

    figures: Figures = {name: of(name, "translated") for name in ("translation_error", "bit_accuracy", "rank1")}
    figures["joint_rank1"] = of("joint_rank1", "joint")
    ranks = [*figures["rank1"].values(), *figures["joint_rank1"].values()]
    return figures | {"mean_rank1": float(np.mean(ranks)) if ranks else float("nan")}
