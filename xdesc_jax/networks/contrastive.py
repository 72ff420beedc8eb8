"""Contrastive form of the matching losses: the positive against all other rows of the batch, not the hardest alone.

In: rows of the descriptors and pairs of them, as the triplet takes them. Out: a (sum, count) pair. InfoNCE (van den
Oord et al., 2018, eq. 4) in both directions, as in CLIP; where a row and its target differ by much that cannot be known
from the row, it ranks better than distances do. Pure functions.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from xdesc_jax.networks.losses import (
    EXCLUDED,
    Rows,
    Sum,
    gather_rows,
    masked_sum,
    no_negatives,
    similarities,
    usable_rows,
)


def contrastive_loss(
    rows: Rows,
    pairs: jax.Array,
    temperature: float,
    *,
    symmetric: bool = True,
    use: jax.Array | None = None,
    unit_length: bool = True,
    axis_name: str | None = None,
    precision: str = "highest",
) -> Sum:
    """-log(exp(s(p, p) / t) / (exp(s(p, p) / t) + sum over negatives q of exp(s(p, q) / t))), of all rows p and pairs.

    s is the cosine of rows of unit length, else minus half the squared distance. Negatives are the rows of the global
    batch that `losses.matching_loss` chooses from. Of a pair of a descriptor with itself, s(p, p) is the largest there
    is, and its rows are spread.

    Args:
        rows: this device's rows, [A, b, ...].
        pairs: [P, 2] int32 of (i, j).
        temperature: t.
        symmetric: (i, j) stands for i -> j and j -> i (once where i = j), not for i -> j alone.
        use: [P] bool, which pairs count; None: all.
        unit_length: whether all rows are of unit length.
        axis_name: the mapped axis over which the batch is spread, if any.
        precision: of the products, on TPU and GPU.

    Returns:
        The sum over directions and this device's rows, and how many they are. A row without negatives does not count.
    """
    everyone = gather_rows(rows, axis_name)

    @partial(jax.checkpoint, prevent_cse=False)
    def directed(i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        anchors, others = rows.embeddings[i], rows.embeddings[j]
        own = jnp.sum(anchors * others, axis=-1)
        if not unit_length:
            own -= 0.5 * (jnp.sum(anchors * anchors, axis=-1) + jnp.sum(others * others, axis=-1))
        against = similarities(anchors, everyone.embeddings[j], unit_length, precision)
        excluded = no_negatives(rows, everyone, i, j)
        against = jnp.where(excluded, EXCLUDED, against)
        together = jnp.concatenate([own[:, None], against], axis=1) / temperature
        usable = usable_rows(rows, i, j) & ~jnp.all(excluded, axis=1)
        # What is masked would give NaN gradients of infinite logits.
        lost = jax.nn.logsumexp(jnp.where(usable[:, None], together, 0.0), axis=1) - own / temperature
        return lost, usable

    def both(pair: jax.Array) -> tuple[jax.Array, jax.Array]:
        there = directed(pair[0], pair[1])
        if not symmetric:
            return there
        back = directed(pair[1], pair[0])
        again = back[1] & (pair[0] != pair[1])
        return jnp.stack([there[0], back[0]]), jnp.stack([there[1], again])

    lost, usable = lax.map(both, pairs)  # [P, (2,) b]
    if use is not None:
        usable = usable & use.reshape(-1, *[1] * (usable.ndim - 1))
    return masked_sum(lost, usable)
