"""Average precision of ranked patches, and the distances that rank them.

In: rows of descriptors, or distances with labels. Out: figures of the HPatches benchmark (Balntas et al., CVPR 2017,
section 5). Imports numpy alone.

Average precision is an area under precision over recall, and stands here in two ways, in this order: the paper's, the
sum of the precisions at the places of all positives in the ranking over the number of positives; and that of the
benchmark's Python code, the toolbox, with the mean of the precisions at that place and at the one before it (1 before
the first): trapezoids instead of steps. Positives that are not found add nothing.

What is equally far has no order among itself. In the paper's way each such row gets the precision at the end of its
group, the least that any order gives its last one, so that descriptors that are all equal reach what chance does. The
toolbox's way needs an order, and takes the least favourable: all negatives of a group, then its positives. What is a
positive with some probability counts as that much of a positive and the rest of a negative, after those that are more.

So that equal rows are at equal distances, whatever order a matrix product adds in, rows are rounded to integers of at
most 2^25 in length, as fine as float32 is: sums of their products are then exact in float64.
"""

from __future__ import annotations

import numpy as np

LENGTH = float(1 << 25)  # squared distances are then at most 2^52
_BLOCK = 256  # rows of distances at a time, so that they stay in a processor's cache
_PAIRS = 1 << 14


def integral(rows: np.ndarray, longest: float) -> np.ndarray:
    """Rows [N, D], float or bool, as integers in float64 (float32 for bits) whose products add up exactly.

    Args:
        rows: canonical descriptors.
        longest: length of the longest of all rows that are compared; the rows' unit becomes LENGTH / longest.
    """
    if rows.dtype == np.bool_:
        return rows.astype(np.float32)
    return np.rint(rows.astype(np.float64) * (LENGTH / longest if longest else 1.0))


def average_precision(distances: np.ndarray, credit: np.ndarray, positives: float | None = None) -> np.ndarray:
    """Average precision of a ranking.

    Args:
        distances: [N], the smallest ranks first.
        credit: [N], 1 for a positive, 0 for a negative; between them what is a positive with that probability.
        positives: how many there are to be found; the sum of `credit` where None.

    Returns:
        [2], the paper's and the toolbox's; 0 where there is no positive.
    """
    total = float(credit.sum()) if positives is None else positives
    if total <= 0:
        return np.zeros(2)
    some = credit > 0
    near, share = distances[some], credit[some].astype(np.float64)
    order = np.lexsort((-share, near))
    near, share = near[order], share[order]
    ends = np.cumsum(share)[np.searchsorted(near, near, side="right") - 1]
    wrong = np.searchsorted(np.sort(distances), near, side="right") - ends
    return _areas(share, ends, wrong) / total


def _areas(share: np.ndarray, ends: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Areas under precision over the number of positives found: [..., 2], the paper's and the toolbox's.

    Args:
        share: [P] how much of a positive each is, above 0, in the order of their ranks.
        ends, wrong: [..., P] positives and negatives that are at most as far as each.
    """
    hits = np.cumsum(share)
    before = hits - share
    steps = ends / (ends + wrong)
    last = np.divide(before, before + wrong, out=np.ones(wrong.shape), where=before + wrong > 0)
    return np.stack([steps @ share, (last + hits / (hits + wrong)) @ share / 2], axis=-1)


def roc_area(distances: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve: the chance that a positive is nearer than a negative, ties counting one half.

    Args:
        distances: [N].
        positive: [N] bool.
    """
    near, far = np.sort(distances[positive]), np.sort(distances[~positive])
    if not len(near) or not len(far):
        return 0.0
    before = np.searchsorted(near, far, side="left").astype(np.float64)
    ties = np.searchsorted(near, far, side="right") - before
    return float((before + ties / 2).sum() / (len(near) * len(far)))


def pair_distances(rows: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Squared distances [P], or numbers of bits that differ, of rows i [P] from rows j [P]; equal of equal pairs."""
    found = np.empty(len(i))
    for start in range(0, len(i), _PAIRS):
        block = slice(start, start + _PAIRS)
        left, right = rows[i[block]], rows[j[block]]
        if rows.dtype == np.bool_:
            found[block] = np.count_nonzero(left != right, axis=1)
        else:
            less = left.astype(np.float64) - right
            found[block] = np.einsum("pd,pd->p", less, less)
    return found


def matching(reference: np.ndarray, others: np.ndarray, longest: float) -> tuple[np.ndarray, float]:
    """Image matching: each reference patch takes its nearest among the patches of another image.

    Args:
        reference, others: rows [N, D]; row k of both is of the same place.
        longest: see `integral`.

    Returns:
        Average precision [2] of the N matches, ranked by their distance, over N; and the share of right ones. Of
        several nearest patches each is taken with the same probability.
    """
    a, b = integral(reference, longest), integral(others, longest)
    squares = np.einsum("nd,nd->n", b, b)
    nearest, credit = np.empty(len(a)), np.empty(len(a))
    transposed = np.ascontiguousarray(b.T)
    for start in range(0, len(a), _BLOCK):
        rows = a[start : start + _BLOCK]
        far = rows @ transposed
        far *= -2
        far += squares
        own = np.arange(len(rows)), np.arange(start, start + len(rows))
        distance = far[own]
        far[own] = np.inf
        other = far.min(axis=1)
        block = slice(start, start + len(rows))
        credit[block] = distance < other
        for k in np.flatnonzero(distance == other):
            credit[start + k] = 1 / (1 + np.count_nonzero(far[k] == distance[k]))
        nearest[block] = np.minimum(distance, other) + np.einsum("nd,nd->n", rows, rows)
    return average_precision(nearest, credit, len(a)), float(credit.mean()) if len(a) else 0.0


def retrieval(
    queries: np.ndarray, positives: np.ndarray, pool: np.ndarray, query_of: np.ndarray, pool_of: np.ndarray,
    pools: np.ndarray, longest: float,
) -> np.ndarray:  # fmt: skip
    """Patch retrieval: the patches of a query's place among those of other images.

    Args:
        queries: [Q, D].
        positives: [Q, T, P, D], P patches of the same place, for each of T kinds of jitter.
        pool: [M, D] distractors, in their order.
        query_of, pool_of: [Q] and [M], which sequence each is of; distractors of the query's own do not count.
        pools: [S] sizes, ascending: of each, the positives and the first of the others that count, so many in all;
            all where there are no more.
        longest: see `integral`.

    Returns:
        [T, S, 2] average precision, the paper's and the toolbox's, mean over the queries.
    """
    kinds, each = positives.shape[1:3]
    total = np.zeros((kinds, len(pools), 2))
    distractors = integral(pool, longest)
    squares = np.einsum("nd,nd->n", distractors, distractors)
    transposed = np.ascontiguousarray(distractors.T)
    for start in range(0, len(queries), _BLOCK):
        rows = integral(queries[start : start + _BLOCK], longest)
        far = rows @ transposed
        far *= -2
        far += squares
        far += np.einsum("nd,nd->n", rows, rows)[:, None]
        for k, row in enumerate(rows):
            counted = far[k][pool_of != query_of[start + k]]
            near = integral(positives[start + k].reshape(kinds * each, -1), longest) - row
            total += _precisions(counted, np.einsum("pd,pd->p", near, near).reshape(kinds, each), pools)
    return total / max(1, len(queries))


def _precisions(distractors: np.ndarray, positives: np.ndarray, pools: np.ndarray) -> np.ndarray:
    """[T, S, 2] average precision of one query: [M] distances of distractors, and of positives [T, P]."""
    kinds, each = positives.shape
    ordered = np.sort(positives.ravel())
    # How many positives of all kinds are nearer than a distractor says which of them it stands before, or beside.
    place = np.searchsorted(ordered, distractors, side="left")
    ends = np.clip(pools - each, 0, len(distractors))
    nearer = np.zeros((len(pools), kinds * each), np.int64)
    since = 0
    counts = np.zeros(kinds * each + 1, np.int64)
    for s, end in enumerate(ends):
        counts += np.bincount(place[since:end], minlength=kinds * each + 1)
        since = max(since, int(end))
        nearer[s] = np.cumsum(counts)[:-1]
    own = np.sort(positives, axis=1)
    ends = np.count_nonzero(own[:, None, :] <= own[:, :, None], axis=2)
    wrong = nearer[:, np.searchsorted(ordered, own, side="right") - 1]
    return _areas(np.ones(each), ends, wrong).swapaxes(0, 1) / each
