"""Losses: translation (L^T), matching in the joint space (L^M) and in a target's own space (L^R), pure functions.

In: predictions, targets and stacked unit embeddings, with masks. Out: (sum, count) pairs, so that parts of a
batch on several devices add up to the loss of the whole. L^T and L^M are the paper's, sections 4.2 and 4.3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from xdesc_jax.networks.mlp import l2_norm

EXCLUDED = -np.inf  # below any similarity
# A matrix of similarities has at most so many columns, and as many pairs are mined at once as have together so many
# elements: 0.5 GB. Above, memory grows with the batch, not with its square.
COLUMNS, ELEMENTS = 8192, 1 << 27


class Sum(NamedTuple):
    """A mean in the making: add both parts over devices and steps, then divide."""

    total: jax.Array
    count: jax.Array  # type: ignore[assignment]  # hides tuple.count, which nobody wants here

    def mean(self) -> jax.Array:
        return self.total / jnp.maximum(self.count, 1.0)


def masked_sum(values: jax.Array, mask: jax.Array) -> Sum:
    """Sum and count of the values where mask is set (both broadcast)."""
    mask = jnp.broadcast_to(mask, values.shape)
    return Sum(jnp.sum(jnp.where(mask, values, 0.0)), jnp.sum(mask, dtype=jnp.float32))


def translation_error(prediction: jax.Array, target: jax.Array, binary: bool) -> jax.Array:
    """L^T of each row: the residual's L2 norm, or the mean binary cross-entropy over bits.

    Args:
        prediction: [..., B, D] float32 descriptors, or logits where binary.
        target: [B, D] float32, bits as 0 and 1.

    Returns:
        [..., B] float32.
    """
    if binary:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(prediction, target), axis=-1)
    return l2_norm(prediction - target)


def row_ids(x: jax.Array) -> jax.Array:
    """A 32-bit hash of each row of x [B, D] float32 -> [B] uint32; equal rows have equal hashes.

    Integer arithmetic, so it does not depend on the order of summation, as a float projection would.
    """
    words = lax.bitcast_convert_type(x + 0.0, jnp.uint32)  # + 0.0 makes -0.0 and 0.0 one
    multipliers = np.random.default_rng(0).integers(1, 2**32, x.shape[-1], dtype=np.uint32) | 1
    mixed = (words ^ (words >> 15)) * jnp.asarray(multipliers)
    return jnp.sum(mixed ^ (mixed >> 13), axis=-1, dtype=jnp.uint32)


class Rows(NamedTuple):
    """Rows of a batch as the matching losses see them, stacked over descriptors."""

    embeddings: jax.Array  # [A, B, E]; unit rows in the joint space
    ids: jax.Array  # [A, B] uint32, equal for equal descriptors
    mask: jax.Array  # bool, False for padding: [B], or [A, B] where not all descriptors have every row
    points: jax.Array  # [B] int32, equal for patches of the same 3D point


def usable_rows(rows: Rows, i: jax.Array, j: jax.Array) -> jax.Array:
    """Which rows both descriptors of a pair have, [..., B] bool; [B] where all descriptors have the same."""
    return rows.mask if rows.mask.ndim == 1 else rows.mask[i] & rows.mask[j]


def gather_rows(rows: Rows, axis_name: str | None) -> Rows:
    """The rows of all devices, in device order; differentiable."""
    if axis_name is None:
        return rows
    gather = lambda x, axis: lax.all_gather(x, axis_name, axis=axis % x.ndim, tiled=True)  # noqa: E731
    return Rows(gather(rows.embeddings, 1), gather(rows.ids, 1), gather(rows.mask, -1), gather(rows.points, 0))


def matching_loss(
    rows: Rows,
    pairs: jax.Array,
    margin: jax.Array | float,
    distance: str,
    *,
    symmetric: bool = True,
    negatives_of: str = "anchor",
    use: jax.Array | None = None,
    axis_name: str | None = None,
    precision: str = "highest",
) -> Sum:
    """L^M: triplet margin loss with the hardest negative in the batch.

    Negatives are mined over the global batch without gradient; only the chosen distances are differentiated.
    Rows that equal the anchor's descriptor or the positive's (the same patch twice, equal BRIEF codes), or
    show the same 3D point, are no negatives: at distance 0 from the positive they would cancel it. An anchor
    left without any negative does not count. Of a pair, rows that one of the two does not have take no part.

    Args:
        rows: this device's rows, [A, b, ...].
        pairs: [P, 2] int32 of (i, j).
        margin: the margin m, in units of the distance.
        distance: 'euclidean' or 'squared'.
        symmetric: (i, j) stands for i -> j and j -> i (once where i = j), not for i -> j alone.
        negatives_of: 'anchor': a pair's negative is the one nearest to its anchor; 'symmetric': the nearer of that
            and of the anchor's other rows' nearest to the positive (Mishchuk et al., NeurIPS 2017, eq. 2).
        use: [P] bool, which pairs count; None: all.
        axis_name: the mapped axis over which the batch is spread, if any.
        precision: of the products by which negatives are chosen, on TPU and GPU.

    Returns:
        Sum of max(m + pos - neg, 0) over directions and this device's rows, and how many they are.
    """
    everyone = gather_rows(rows, axis_name)
    held, held_by_all = jax.tree.map(lax.stop_gradient, (rows, everyone))
    together = max(1, ELEMENTS // (len(rows.points) * min(len(everyone.points), COLUMNS)))
    negatives = lax.map(
        lambda pair: hardest_negatives(held, held_by_all, pair[0], pair[1], axis_name, precision=precision), pairs,
        batch_size=min(together, len(pairs)),
    )  # fmt: skip
    return triplets(
        rows, everyone, pairs, negatives, margin, distance, symmetric, use, both=negatives_of == "symmetric"
    )


def target_matching_loss(
    translations: jax.Array,
    natives: jax.Array,
    source_ids: jax.Array,
    target_ids: jax.Array,
    mask: jax.Array,
    points: jax.Array,
    margin: jax.Array | float,
    distance: str,
    *,
    binary: bool = False,
    unit_length: bool = False,
    axis_name: str | None = None,
    precision: str = "highest",
) -> Sum:
    """L^R: the triplet of L^M between translations and the native rows of one target, where they are matched.

    A translation is drawn to its own native row and away from the nearest other native row of the global batch,
    and each native row likewise to its own translation and from the nearest other one. No negatives are rows whose
    native row equals the own one, whose source row does (their translations are one), or of the same 3D point.
    Gradients reach everything that made the translations: decoder and encoder.

    Bits count as -1 / sqrt(D) and 1 / sqrt(D), and a probability p as (2 p - 1) / sqrt(D): the squared distance of
    two rows of bits is 4 times the share that differs, and 2 between unrelated rows as between orthogonal unit
    rows, so that one margin serves all. From one anchor, differences of squared distances are then those of
    expected Hamming distances.

    Costs one product b x B x D a source; the sources come one after another, so that one matrix [b, B] exists.

    Args:
        translations: [S, b, D] this device's rows of target j from S sources, or probabilities where binary.
        natives: [b, D] the rows themselves in the same form.
        source_ids: [S, b] uint32, equal for equal source rows; see `row_ids`.
        target_ids: [b] uint32, likewise for the native rows.
        mask: [b] bool, False for padding; or [S + 1, b], those of the translations and behind them of the native rows.
        points: [b] int32, equal for patches of the same 3D point.
        margin: in units of the distance.
        distance: 'euclidean' or 'squared'.
        binary: whether the rows are bits.
        unit_length: whether all rows are of unit length.
        axis_name: the mapped axis over which the batch is spread, if any.
        precision: of the products by which negatives are chosen, on TPU and GPU.

    Returns:
        Sum of max(m + pos - neg, 0) over sources, both directions and this device's rows, and how many they are.
    """
    rows, pairs = target_rows(translations, natives, source_ids, target_ids, mask, points, binary)
    everyone = gather_rows(rows, axis_name)
    held, held_by_all = jax.tree.map(lax.stop_gradient, (rows, everyone))
    negatives = lax.map(
        lambda pair: hardest_negatives(
            held, held_by_all, pair[0], pair[1], axis_name, unit_length=unit_length, precision=precision
        ),
        pairs,
    )
    return triplets(rows, everyone, pairs, negatives, margin, distance, True, None)


def target_rows(
    translations: jax.Array, natives: jax.Array, source_ids: jax.Array, target_ids: jax.Array, mask: jax.Array,
    points: jax.Array, binary: bool,
) -> tuple[Rows, jax.Array]:  # fmt: skip
    """Translations [S, b, D] and behind them native rows [b, D], stacked, and the pairs [S, 2] of each S with these."""
    together = jnp.concatenate([translations, natives[None]])
    if binary:
        together = (2 * together - 1) / np.sqrt(together.shape[-1])
    count = len(translations)
    pairs = jnp.stack([jnp.arange(count), jnp.full(count, count)], axis=1)
    return Rows(together, jnp.concatenate([source_ids, target_ids[None]]), mask, points), pairs


def triplets(
    rows: Rows,
    everyone: Rows,
    pairs: jax.Array,
    negatives: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
    margin: jax.Array | float,
    distance: str,
    symmetric: bool,
    use: jax.Array | None,
    *,
    both: bool = False,
) -> Sum:
    """Sum of max(m + pos - neg, 0) over the pairs [P, 2] in use and rows, with `negatives` of each pair, [P, b].

    With `both`, neg is the smaller of the distances from anchor and from positive to the negative of each.
    """
    i, j = pairs[:, 0], pairs[:, 1]
    counted = usable_rows(rows, i, j)
    if use is not None:
        counted = use[:, None] & counted
    forward, backward, has_forward, has_backward = jax.tree.map(lax.stop_gradient, negatives)
    z, z_all = rows.embeddings, everyone.embeddings
    length = l2_norm if distance == "euclidean" else lambda v: jnp.sum(v * v, axis=-1)

    def distances(anchor: jax.Array, other: jax.Array, negative: jax.Array, usable: jax.Array) -> jax.Array:
        found = jax.vmap(lambda a, b, n: length(z[a] - z_all[b][n]))(anchor, other, negative)
        return jnp.where(usable, found, jnp.inf)  # none is infinitely far

    def directed(anchor: jax.Array, other: jax.Array, far: jax.Array, usable: jax.Array) -> Sum:
        near = jax.vmap(lambda a, b: length(z[a] - z[b]))(anchor, other)
        return masked_sum(jnp.maximum(margin + near - far, 0.0), usable & counted)

    far_forward = distances(i, j, forward, has_forward)
    far_backward = distances(j, i, backward, has_backward) if symmetric or both else far_forward
    if both:
        far_forward = far_backward = jnp.minimum(far_forward, far_backward)
        has_forward = has_backward = has_forward | has_backward
    there = directed(i, j, far_forward, has_forward)
    if not symmetric:
        return there
    back = directed(j, i, far_backward, has_backward & (i != j)[:, None])
    return Sum(there.total + back.total, there.count + back.count)


def hardest_negatives(
    rows: Rows,
    everyone: Rows,
    i: jax.Array,
    j: jax.Array,
    axis_name: str | None,
    *,
    unit_length: bool = True,
    precision: str = "highest",
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Indices into the global batch of the hardest negatives, both directions from one product.

    sim(j, i) is the transpose of sim(i, j): row maxima serve i -> j, column maxima j -> i. It is the cosine for
    rows of unit length, else minus half the squared distance.

    Returns:
        For this device's rows p: argmax_q sim(e_i(p), e_j(q)), argmax_q sim(e_j(p), e_i(q)), [b] int32
        each, and whether there is one, [b] bool each.
    """
    row, column = _side(rows, i, i, j), _side(everyone, j, i, j)
    blocks = -(-len(column.mask) // COLUMNS)
    if blocks == 1:
        forward_best, forward, backward_best, backward = _best_of_block(row, column, unit_length, precision)
    else:
        forward_best, forward, backward_best, backward = _best_of_blocks(row, column, blocks, unit_length, precision)
    if axis_name is not None:
        size = len(rows.points)
        device = lax.axis_index(axis_name)
        best = lax.all_gather(backward_best, axis_name)  # [devices, B]
        index = lax.all_gather(backward + device * size, axis_name)
        winner = jnp.argmax(best, axis=0)  # the first device, as the first row on one device
        here = device * size + jnp.arange(size)
        backward_best, backward = best[winner[here], here], index[winner[here], here]
    return forward, backward, forward_best > EXCLUDED, backward_best > EXCLUDED


class _Side(NamedTuple):
    """Rows of a pair (i, j) on one side of a matrix of similarities; those that `mask` leaves out take no part."""

    x: jax.Array  # [n, E]
    ids_i: jax.Array  # [n]
    ids_j: jax.Array  # [n]
    points: jax.Array  # [n]
    mask: jax.Array  # [n]


def similarities(a: jax.Array, b: jax.Array, unit_length: bool, precision: str) -> jax.Array:
    """[n, m] cosines of rows of unit length, else minus half the squared distances."""
    found = jnp.matmul(a, b.T, precision=precision)
    if not unit_length:
        found -= 0.5 * (jnp.sum(a * a, axis=-1)[:, None] + jnp.sum(b * b, axis=-1)[None, :])
    return found


def no_negatives(rows: Rows, everyone: Rows, i: jax.Array, j: jax.Array) -> jax.Array:
    """[b, B] bool, which rows of j in the global batch are no negatives of this device's rows of i (see above)."""
    return _excluded(_side(rows, i, i, j), _side(everyone, j, i, j))


def _side(rows: Rows, of: jax.Array, i: jax.Array, j: jax.Array) -> _Side:
    return _Side(rows.embeddings[of], rows.ids[i], rows.ids[j], rows.points, usable_rows(rows, i, j))


def _excluded(row: _Side, column: _Side) -> jax.Array:
    def same(a: jax.Array, b: jax.Array) -> jax.Array:
        return a[:, None] == b[None, :]

    excluded = same(row.ids_i, column.ids_i) | same(row.ids_j, column.ids_j)
    return excluded | same(row.points, column.points) | ~row.mask[:, None] | ~column.mask[None, :]


def _best_of_block(
    row: _Side, column: _Side, unit_length: bool, precision: str
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The largest similarity of each row and its column, and of each column and its row."""
    similarity = similarities(row.x, column.x, unit_length, precision)
    similarity = jnp.where(_excluded(row, column), EXCLUDED, similarity)
    return *first_maximum(similarity, axis=1), *first_maximum(similarity, axis=0)


def _best_of_blocks(
    row: _Side, column: _Side, blocks: int, unit_length: bool, precision: str
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """`_best_of_block` over blocks of columns one after another, so that one block's matrix exists at a time."""
    count = len(column.mask)
    size = -(-count // blocks)

    def blocked(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, [(0, blocks * size - count), *[(0, 0)] * (x.ndim - 1)])  # masks with False
        return padded.reshape(blocks, size, *x.shape[1:])

    def merge(best: tuple[jax.Array, jax.Array], block: tuple[jax.Array, _Side]) -> tuple[Any, Any]:
        number, columns = block
        value, index, backward_best, backward = _best_of_block(row, columns, unit_length, precision)
        better = value > best[0]  # of equal ones the first stays
        merged = jnp.where(better, value, best[0]), jnp.where(better, index + number * size, best[1])
        return merged, (backward_best, backward)

    nothing = jnp.full(len(row.mask), EXCLUDED), jnp.zeros(len(row.mask), jnp.int32)
    numbered = jnp.arange(blocks, dtype=jnp.int32), jax.tree.map(blocked, column)
    (forward_best, forward), (backward_best, backward) = lax.scan(merge, nothing, numbered)
    return forward_best, forward, backward_best.reshape(-1)[:count], backward.reshape(-1)[:count]


def first_maximum(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """Maximum of a matrix along an axis and the first index that attains it (int32).

    Two plain reductions: XLA's CPU compiler vectorises them, but not the pair-valued one of `argmax`.
    """
    best = jnp.max(x, axis=axis, keepdims=True)
    position = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    first = jnp.min(jnp.where(x == best, position, x.shape[axis] - 1), axis=axis)
    return jnp.squeeze(best, axis), first


def all_pairs(count: int) -> np.ndarray:
    """Unordered pairs (i <= j) of `count` descriptors, [count (count + 1) / 2, 2] int32."""
    return np.stack(np.triu_indices(count), axis=1).astype(np.int32)
