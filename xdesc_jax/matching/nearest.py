"""Exact nearest neighbours and mutual matches of descriptors, in numpy.

In: two sets of rows of one descriptor, canonical real rows or packed bits. Out: nearest and second-nearest
neighbours, or mutual matches that pass a symmetric ratio test; distances are L2 or Hamming. Needs
numpy alone.

One matrix product a block (of `operands`) gives both directions, so memory does not grow with the product of the two
counts. A product of real rows loses what is small against their norms, so near ties are decided, and all distances
computed, from float64 differences.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xdesc_jax.matching.operands import RealRows, Rows, operands, slices
from xdesc_jax.networks.threads import shared_threads

BLOCK = 2048  # rows a side of one block of the similarity matrix (16 MB)
CHUNK = 32  # rows of it that are reduced first when looking for the best of a column
ROUNDOFF = 2.0**-24


@dataclasses.dataclass(frozen=True)
class Nearest:
    """The two nearest database rows of each query row; ties go to the lower index.

    Attributes:
        index: [N] int32, -1 where there is none (empty database, or the query row is zero or not finite).
        distance: [N] float32, L2 or Hamming; inf where there is none.
        second: [N] float32, distance to the second nearest; inf where there is none.
    """

    index: np.ndarray
    distance: np.ndarray
    second: np.ndarray


@dataclasses.dataclass(frozen=True)
class Matches:
    """Mutual matches between two sets of rows.

    Attributes:
        indices: [M, 2] int32, row of the first and row of the second set, ascending in the first.
        scores: [M] float32 in 0..1, 1 for equal rows: 1 - d^2 / (2 |a|^2 + 2 |b|^2), which is (1 + cos) / 2
            for unit rows, and the share of equal bits for binary ones.
        skipped: rows of each set that are zero or not finite and so never match.
        ratios: [M] float32, the larger of both rows' first-to-second distance ratios on the L2 scale.
    """

    indices: np.ndarray
    scores: np.ndarray
    skipped: tuple[int, int]
    ratios: np.ndarray


def nearest2(query: np.ndarray, database: np.ndarray, *, binary: bool = False) -> Nearest:
    """The nearest and second-nearest database row of each query row.

    Args:
        query: [N, D] float canonical rows, or [N, bytes] uint8 packed bits with `binary`.
        database: [M, D] rows of the same kind.
        binary: compare bits by Hamming distance.

    Raises:
        ValueError: rank, dtype or widths do not fit.
    """
    a, b = operands(query, database, binary)
    rows, _ = _search(a, b, both=False)
    return rows


def nearest2_both(a: np.ndarray, b: np.ndarray, *, binary: bool = False) -> tuple[Nearest, Nearest]:
    """`nearest2` of a in b and of b in a, for the price of one."""
    rows_a, rows_b = operands(a, b, binary)
    return _search(rows_a, rows_b, both=True)


def match(
    a: np.ndarray, b: np.ndarray, *, binary: bool = False, ratio: float | None = None, search: Search | None = None
) -> Matches:
    """Mutual nearest neighbours, optionally with a ratio test in both directions.

    Args:
        a: [N, D] float canonical rows, or [N, bytes] uint8 packed bits with `binary`.
        b: [M, D] rows of the same kind.
        binary: compare bits by Hamming distance.
        ratio: largest first-to-second distance ratio on the L2 scale (see `metric_ratio`); a row with one
            candidate alone passes, and so do equal rows. None for no test.
        search: finds the largest similarities; numpy's where None.

    Raises:
        ValueError: rank, dtype or widths do not fit, or a ratio outside 0..1.
    """
    if ratio is not None and not 0 < ratio <= 1:
        raise ValueError(f"ratio is {ratio}, expected a value over 0 and at most 1")
    rows_a, rows_b = operands(a, b, binary)
    forward, backward = _search(rows_a, rows_b, both=True, search=search)
    i = np.flatnonzero(forward.index >= 0)
    j = forward.index[i]
    keep = backward.index[j] == i
    ratios = [metric_ratio(of.distance[rows], of.second[rows], binary) for of, rows in ((forward, i), (backward, j))]
    larger = np.maximum(*ratios)
    if ratio is not None:
        keep &= larger <= ratio
    i, j = i[keep], j[keep]
    indices = np.stack([i, j], axis=1).astype(np.int32)
    scores = _scores(forward.distance[i], np.asarray(a)[i], np.asarray(b)[j], binary)
    return Matches(indices, scores, (rows_a.skipped, rows_b.skipped), larger[keep])


def metric_ratio(distance: np.ndarray, second: np.ndarray, binary: bool = False) -> np.ndarray:
    """First-to-second distance ratio on the L2 scale, float32.

    The L2 distance of two bit vectors is the root of their Hamming distance, so Hamming counts give the root
    of their ratio: 0.9 means the same for both. 0 where the nearest is an equal row or the only candidate,
    inf where there is none.
    """
    distance, second = np.asarray(distance, np.float32), np.asarray(second, np.float32)
    ratio = np.full(distance.shape, np.inf, np.float32)
    ratio[np.isfinite(distance)] = 0
    np.divide(distance, second, out=ratio, where=np.isfinite(second) & (distance > 0))
    return np.sqrt(ratio) if binary else ratio


def _scores(distance: np.ndarray, a: np.ndarray, b: np.ndarray, binary: bool) -> np.ndarray:
    if binary:
        return (1 - distance / (8 * a.shape[1])).astype(np.float32)
    norms = np.einsum("nd,nd->n", a, a, dtype=np.float64) + np.einsum("nd,nd->n", b, b, dtype=np.float64)
    return (1 - distance.astype(np.float64) ** 2 / (2 * norms)).astype(np.float32)


# --- Search ----------------------------------------------------------------------------------------------


class Best:
    """The two largest similarities of each row so far and where they are; -inf and -1 where none."""

    def __init__(self, n: int):
        self.values = np.full((2, n), -np.inf)
        self.index = np.full((2, n), -1, np.int32)

    def __len__(self) -> int:
        return self.index.shape[1]

    def update(self, where: slice, values: np.ndarray, index: np.ndarray) -> None:
        """Merges the two best [2, n] of a later block; on ties the earlier one stays."""
        v = np.concatenate([self.values[:, where], values])
        i = np.concatenate([self.index[:, where], index])
        order = np.argsort(-v, axis=0, kind="stable")[:2]
        self.values[:, where] = np.take_along_axis(v, order, axis=0)
        self.index[:, where] = np.take_along_axis(i, order, axis=0)


# (a, b, both) -> best rows of b for each of a, and of a for each of b
Search = Callable[[Rows, Rows, bool], tuple[Best, Best]]


def _search(a: Rows, b: Rows, both: bool, search: Search | None = None) -> tuple[Nearest, Nearest]:
    """Nearest rows of b for each of a, and with `both` of a for each of b."""
    rows, columns = (search or _search_blocks)(a, b, both)
    return _finish(a, b, rows), _finish(b, a, columns)


def _search_blocks(a: Rows, b: Rows, both: bool) -> tuple[Best, Best]:
    """The best rows of b for each of a, and with `both` of a for each of b, in one pass over the blocks."""
    rows, columns = Best(len(a)), Best(len(b))
    parts = list(slices(len(a), BLOCK))
    work = functools.partial(_search_part, a, b, both)
    # The product uses all cores by itself; threads let one part's search for maxima run beside another's.
    with ThreadPoolExecutor(shared_threads()) as pool:
        found = pool.map(work, parts) if len(parts) > 1 else map(work, parts)
        for at_a, (of_rows, of_columns) in zip(parts, found, strict=True):
            rows.update(at_a, of_rows.values, of_rows.index)
            for at_b, values, index in of_columns:
                columns.update(at_b, values, index)
    return rows, columns


def _search_part(a: Rows, b: Rows, both: bool, at_a: slice) -> tuple[Best, list[tuple[slice, np.ndarray, np.ndarray]]]:
    """The best rows of b for rows `at_a`; the best of these for each block of b."""
    rows, columns = Best(at_a.stop - at_a.start), []
    for at_b, similarity in _blocks(a, b, at_a):
        values, index = _best_of_rows(similarity[: len(rows)])
        rows.update(slice(None), values, index + at_b.start)
        if both:
            values, index = _best_of_columns(similarity)
            columns.append((at_b, values, index + at_a.start))
    return rows, columns


def _blocks(a: Rows, b: Rows, at_a: slice) -> Iterator[tuple[slice, np.ndarray]]:
    """Similarities of rows `at_a` to each block of b, in one buffer; -inf rows pad them to whole CHUNKs."""
    x, n = a.operand(at_a), at_a.stop - at_a.start
    buffer = np.empty(_padded(n) * min(BLOCK, len(b)), np.float32)
    for at_b in slices(len(b), BLOCK):
        m = at_b.stop - at_b.start
        similarity = buffer[: _padded(n) * m].reshape(-1, m)
        b.product(x, at_b, similarity[:n])
        for offset in (a.offset[at_a, None], b.offset[at_b]):
            if offset.any():
                similarity[:n] -= offset
        similarity[n:] = -np.inf
        yield at_b, similarity


def _padded(n: int) -> int:
    return -(-n // CHUNK) * CHUNK


def _best_of_rows(similarity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two largest values of each row and their columns, [2, rows] each; leaves the matrix as it was."""
    i = np.arange(len(similarity))
    first = similarity.argmax(axis=1)
    largest = similarity[i, first]
    similarity[i, first] = -np.inf
    second = similarity.argmax(axis=1)
    values = np.stack([largest, similarity[i, second]])
    similarity[i, first] = largest
    return values, np.stack([first, second])


def _best_of_columns(similarity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two largest values of each column and their rows, [2, columns] each; overwrites them with -inf.

    numpy's argmax down a column is 50 times slower than its max, so the maxima of chunks of rows come first
    and only the chunk that holds the largest is searched.
    """
    j = np.arange(similarity.shape[1])
    chunked = similarity.reshape(-1, CHUNK, len(j))
    maxima = chunked.max(axis=1)
    values, index = np.empty((2, len(j)), similarity.dtype), np.empty((2, len(j)), np.int64)
    for rank in range(2):
        chunk = maxima.argmax(axis=0)
        candidates = chunked[chunk, :, j]
        row = candidates.argmax(axis=1)
        values[rank], index[rank] = candidates[j, row], chunk * CHUNK + row
        candidates[j, row] = -np.inf
        chunked[chunk, row, j] = -np.inf
        maxima[chunk, j] = candidates.max(axis=1)
    return values, index


def _finish(a: Rows, b: Rows, best: Best) -> Nearest:
    """Exact distances of the best; near ties of real rows are decided anew."""
    best.index[best.values == -np.inf] = -1
    if isinstance(a, RealRows) and isinstance(b, RealRows):
        _decide_near_ties(a, b, best)
    distance = np.full((2, len(a)), np.inf, np.float32)
    for rank in range(2):
        i = np.flatnonzero(best.index[rank] >= 0)
        distance[rank, i] = a.distances(i, b, best.index[rank, i])  # type: ignore[arg-type]
    return Nearest(best.index[0], distance[0], distance[1])


def _decide_near_ties(a: RealRows, b: RealRows, best: Best) -> None:
    """Searches again, exactly, for rows whose two best similarities differ by less than rounding may.

    A similarity is off by at most 2 (D + 8) u (|a|^2 + |b|^2) / 2 (u = 2^-24; Higham, "Accuracy and Stability
    of Numerical Algorithms", section 3.1), and |b| <= |a| + d where b is near.
    """
    found = np.flatnonzero(best.index[1] >= 0)
    error = 2 * (a.x.shape[1] + 8) * ROUNDOFF * (3 * a.half[found] - 2 * np.minimum(best.values[1, found], 0))
    near = best.values[0, found] - best.values[1, found] <= 2 * error
    rows, floor = found[near], (best.values[1, found] - 2 * error)[near]
    exact = Best(len(rows))
    tied = a.take(rows)
    for at in slices(len(rows), BLOCK):
        for at_b, similarity in _blocks(tied, b, at):
            similarity = similarity[: at.stop - at.start]
            i, j = np.nonzero(similarity >= floor[at, None])
            scores = np.full(similarity.shape, -np.inf)
            scores[i, j] = -tied.squared_distances(i + at.start, b, j + at_b.start)
            values, index = _best_of_rows(scores)
            exact.update(at, values, index + at_b.start)
    best.index[:, rows] = exact.index
