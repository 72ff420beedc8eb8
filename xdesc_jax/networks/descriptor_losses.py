"""Losses of learned descriptors: HardNet's and SOSNet's, over the hardest negatives of the batch.

In: unit descriptors of two views of each point, and what tells which rows are no negatives of each other. Out:
(sum, count) pairs, so that parts of a batch on several devices add up to the loss of the whole.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from xdesc_jax.networks.losses import EXCLUDED, Sum, first_maximum, masked_sum
from xdesc_jax.networks.mlp import l2_norm, unit

MARGIN = 1.0
NEIGHBOURS = 8
CODE_SIZE = 8  # px; patches are compared at this size
DUPLICATE_CORRELATION = 0.95
DUPLICATE_DISTANCE = 0.008  # of descriptors; as HardNet's authors have it
DUPLICATE_COSINE = 1 - DUPLICATE_DISTANCE**2 / 2


class Views(NamedTuple):
    """Two views of each point of a batch; index 0 of V = 2 is the anchor, 1 the positive."""

    descriptors: jax.Array  # [V, B, 128] unit rows
    codes: jax.Array  # [V, B, 64] of `patch_codes`
    points: jax.Array  # [B] int32, equal for rows of the same 3D point
    mask: jax.Array  # [B] bool, False for padding


def patch_codes(patches: jax.Array) -> jax.Array:
    """Patches [..., 32, 32] -> [..., 64]: 8x8 means, less their mean, of unit length (zero where flat).

    The product of two of them is the correlation of the shrunk patches.
    """
    *batch, height, width = patches.shape
    cells = patches.reshape(*batch, CODE_SIZE, height // CODE_SIZE, CODE_SIZE, width // CODE_SIZE)
    means = cells.mean(axis=(-3, -1)).reshape(*batch, CODE_SIZE**2)
    return unit(means - means.mean(axis=-1, keepdims=True))


def gather_views(views: Views, axis_name: str | None) -> Views:
    """The rows of all devices, in device order; differentiable."""
    if axis_name is None:
        return views
    axes = Views(1, 1, 0, 0)  # type: ignore[arg-type]
    return jax.tree.map(lambda x, axis: lax.all_gather(x, axis_name, axis=axis, tiled=True), views, axes)


def hardnet_loss(
    views: Views, margin: jax.Array | float = MARGIN, axis_name: str | None = None, precision: str = "highest"
) -> dict[str, Sum]:
    """max(0, margin + d(a, p) - d(hardest)): the nearest positive to a or anchor to p that is another point's.

    Rows without any negative do not count.

    Args:
        views: this device's rows.
        margin: in units of the Euclidean distance.
        axis_name: the mapped axis over which the batch is spread, if any; negatives come from all of it.
        precision: of the products by which negatives and neighbours are chosen, on TPU and GPU.

    Returns:
        'triplet': sum over this device's rows, and how many they are.

    Source: Mishchuk et al., "Working hard to know your neighbor's margins", NeurIPS 2017.
    """
    everyone = gather_views(views, axis_name)
    hinge, usable = triplets(views, everyone, [(0, 1), (1, 0)], margin, precision)
    return {"triplet": masked_sum(hinge, usable)}


def sosnet_loss(
    views: Views, margin: jax.Array | float = MARGIN, axis_name: str | None = None, precision: str = "highest"
) -> dict[str, Sum]:
    """The square of the hinge, with negatives of either view for either, and second-order similarity.

    Arguments and result as `hardnet_loss`, with 'second_order' beside 'triplet'; the loss is the sum of both means.

    Source: Tian et al., "SOSNet: Second Order Similarity Regularization", CVPR 2019.
    """
    everyone = gather_views(views, axis_name)
    hinge, usable = triplets(views, everyone, [(0, 1), (1, 0), (0, 0), (1, 1)], margin, precision)
    return {"triplet": masked_sum(hinge**2, usable), "second_order": second_order(views, everyone, precision)}


def triplets(
    views: Views, everyone: Views, comparisons: list[tuple[int, int]], margin: jax.Array | float, precision: str
) -> tuple[jax.Array, jax.Array]:
    """Hinge of each row with the hardest negative.

    Negatives are found without gradient; only the distances chosen are differentiated.

    Args:
        views: this device's rows, [V, b, ...].
        everyone: the global batch.
        comparisons: (view of the query, view of its negatives) in which to look for them.
        margin, precision: as for the losses.

    Returns:
        The hinge [b], and whether the row counts [b]: it is no padding and has a negative.
    """
    excluded = lax.stop_gradient(no_negatives(views, everyone, precision))
    distances, found = [], []
    for query, other in comparisons:
        a, b = views.descriptors[query], everyone.descriptors[other]
        cosines = lax.stop_gradient(jnp.matmul(a, b.T, precision=precision))
        cosines = jnp.where(excluded | (cosines > DUPLICATE_COSINE), EXCLUDED, cosines)
        best, hardest = first_maximum(cosines, axis=1)
        distances.append(jnp.where(best > EXCLUDED, l2_norm(a - b[hardest]), jnp.inf))
        found.append(best > EXCLUDED)
    usable = jnp.any(jnp.stack(found), axis=0)
    negative = jnp.where(usable, jnp.min(jnp.stack(distances), axis=0), 0.0)
    positive = l2_norm(views.descriptors[0] - views.descriptors[1])
    return jnp.maximum(margin + positive - negative, 0.0), usable


def no_negatives(views: Views, everyone: Views, precision: str = "highest") -> jax.Array:
    """Which rows of the global batch are no negatives of which of this device's, bool [b, B].

    Padding, rows of the same point, and rows of which some view looks nearly like some view of the other.
    """
    codes, others = views.codes, everyone.codes
    flat, flat_others = (c.reshape(-1, c.shape[-1]) for c in (codes, others))
    correlation = jnp.matmul(flat, flat_others.T, precision=precision)
    correlation = correlation.reshape(*codes.shape[:2], *others.shape[:2])  # [V, b, V, B]
    return same_point(views, everyone) | jnp.any(correlation > DUPLICATE_CORRELATION, axis=(0, 2))


def same_point(views: Views, everyone: Views) -> jax.Array:
    """Which rows of the global batch are padding or show the same point, bool [b, B]; all for padding."""
    same = views.points[:, None] == everyone.points[None, :]
    return same | ~views.mask[:, None] | ~everyone.mask[None, :]


def second_order(views: Views, everyone: Views, precision: str) -> Sum:
    """How differently each row lies among its neighbours in the two views.

    sqrt(sum over j of (d(a_i, a_j) - d(p_i, p_j))^2), j among the 8 nearest to i in either view (rows of other
    points), which are chosen without gradient.
    """
    excluded = same_point(views, everyone)
    cosines = jnp.einsum(
        "vbd,vcd->vbc", *lax.stop_gradient((views.descriptors, everyone.descriptors)), precision=precision
    )
    cosines = jnp.where(excluded, EXCLUDED, cosines)
    best, near = lax.top_k(cosines, min(NEIGHBOURS, cosines.shape[-1]))  # [V, b, 8]
    real = best > EXCLUDED
    # The union: what the second view adds to the first.
    again = jnp.any((near[1][:, :, None] == near[0][:, None, :]) & real[0][:, None, :], axis=-1)
    neighbours = jnp.concatenate([near[0], near[1]], axis=-1)  # [b, 16]
    counts = jnp.concatenate([real[0], real[1] & ~again], axis=-1)
    lengths = l2_norm(views.descriptors[:, :, None] - everyone.descriptors[:, neighbours])  # [V, b, 16]
    differences = jnp.where(counts, lengths[0] - lengths[1], 0.0)
    return masked_sum(l2_norm(differences), jnp.any(counts, axis=-1))
