"""The figures of the HPatches benchmark of patches, one pair, match and query at a time: slow, and plain to read."""

from __future__ import annotations

import numpy as np

NOISES = 3


def average_precision(distances, labels, positives=None):
    """The sum of precisions at the positives, each counted at the end of those equally far."""
    order = sorted(range(len(distances)), key=lambda k: distances[k])
    total = sum(labels) if positives is None else positives
    found, k = 0.0, 0
    hits = 0.0
    while k < len(order):
        end = k
        while end < len(order) and distances[order[end]] == distances[order[k]]:
            end += 1
        group = sum(labels[order[i]] for i in range(k, end))
        hits += group
        found += group * hits / end
        k = end
    return found / total if total else 0.0


def roc_area(distances, labels):
    """Pairs of a positive and a negative in the right order."""
    near = np.sort([d for d, label in zip(distances, labels, strict=True) if label])
    right = 0.0
    for d, label in zip(distances, labels, strict=True):
        if not label:
            before, up_to = np.searchsorted(near, d, "left"), np.searchsorted(near, d, "right")
            right += before + (up_to - before) / 2
    return right / (len(near) * (len(labels) - len(near)))


def distance(a, b):
    """Of two rows: squared, or the bits that differ."""
    if a.dtype == np.bool_:
        return float(np.count_nonzero(a != b))
    less = a.astype(np.float64) - b.astype(np.float64)
    return float(less @ less)


def verification(rows, tasks):
    """[(imbalanced AP, balanced ROC area)] of each noise and kind of negatives."""
    found = []
    for noise in range(NOISES):

        def far(pairs, first=5 * noise):
            distances = []
            for (s, t), (i, j) in zip(pairs.image.tolist(), pairs.row.tolist(), strict=True):
                a, b = rows[first + s if s else 0, i], rows[first + t if t else 0, j]
                distances.append(distance(a, b))
            return distances

        near = far(tasks.positive)
        for kind in ("intra", "inter"):
            apart, few = far(tasks.negative[kind]), near[: len(near) // 5]
            imbalanced = average_precision(few + apart, [1] * len(few) + [0] * len(apart))
            found.append((imbalanced, roc_area(near + apart, [1] * len(near) + [0] * len(apart))))
    return found


def matching(reference, others):
    """AP of the nearest patches of an image, and the share of right ones."""
    nearest, credit = [], []
    for k, row in enumerate(reference):
        if row.dtype == np.bool_:
            far = np.count_nonzero(others != row, axis=1).astype(np.float64)
        else:
            less = others.astype(np.float64) - row.astype(np.float64)
            far = (less * less).sum(axis=1)
        best = far.min()
        nearest.append(best)
        credit.append(float(far[k] == best) / np.count_nonzero(far == best))
    return average_precision(nearest, credit, len(reference)), float(np.mean(credit))


def retrieval(rows, tasks, pools):
    """[3, S] AP, mean over the queries."""
    found = np.zeros((NOISES, len(pools)))
    for query, own in zip(tasks.queries.tolist(), tasks.query_of.tolist(), strict=True):
        others = [
            distance(rows[0, query], rows[0, other])
            for other, of in zip(tasks.distractors.tolist(), tasks.distractor_of.tolist(), strict=True)
            if of != own
        ]
        for noise in range(NOISES):
            near = [distance(rows[0, query], rows[5 * noise + k, query]) for k in range(1, 6)]
            for s, size in enumerate(pools):
                kept = others[: max(0, size - 5)]
                found[noise, s] += average_precision(near + kept, [1] * 5 + [0] * len(kept))
    return found / len(tasks.queries)
