"""The figures of the HPatches benchmark of patches, one pair, match and query at a time: slow, and plain to read."""

from __future__ import annotations

import numpy as np
from scipy.integrate import trapezoid

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


def toolbox_precision(distances, labels, positives=None):
    """The area by trapezoids under all precisions over all recalls, from precision 1 at recall 0.

    Among those equally far negatives come first. A label between 0 and 1 is a part of a negative and one of a positive;
    larger parts come first.
    """
    total = sum(labels) if positives is None else positives
    if not total:
        return 0.0
    parts = [(d, False, 0, 1 - label) for d, label in zip(distances, labels, strict=True) if label < 1]
    parts += [(d, True, -label, label) for d, label in zip(distances, labels, strict=True) if label > 0]
    precision, recall = [1.0], [0.0]
    rank = hits = 0.0
    for _, positive, _, amount in sorted(parts):
        rank += amount
        hits += amount if positive else 0.0
        precision.append(hits / rank)
        recall.append(hits / total)
    return float(trapezoid(precision, recall))


def both(distances, labels, positives=None):
    """Average precision as the paper has it, and as the toolbox."""
    return np.array([way(distances, labels, positives) for way in (average_precision, toolbox_precision)])


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
    """[(imbalanced AP, balanced ROC area, imbalanced AP of the toolbox)] of each noise and kind of negatives."""
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
            paper, toolbox = both(few + apart, [1] * len(few) + [0] * len(apart))
            found.append((paper, roc_area(near + apart, [1] * len(near) + [0] * len(apart)), toolbox))
    return found


def matching(reference, others):
    """AP [2] of the nearest patches of an image, and the share of right ones."""
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
    return both(nearest, credit, len(reference)), float(np.mean(credit))


def retrieval(rows, tasks, pools):
    """[3, S, 2] AP, mean over the queries."""
    found = np.zeros((NOISES, len(pools), 2))
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
                found[noise, s] += both(near + kept, [1] * 5 + [0] * len(kept))
    return found / len(tasks.queries)
