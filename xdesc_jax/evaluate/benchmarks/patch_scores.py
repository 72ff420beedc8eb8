"""The figures of one row of the HPatches benchmark of patches.

In: descriptors of all patches, and what is compared. Out: verification, matching and retrieval, each by noise. Imports
numpy alone.

Verification ranks pairs by their distance: average precision with a positive to five negatives, and the area under the
ROC curve with as many of both. Matching: each reference patch takes its nearest in another image of its sequence.
Retrieval ranks the five patches of a query's place among those of other images, in pools of growing size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.descriptors import row_norms
from xdesc_jax.evaluate.benchmarks import patch_metrics
from xdesc_jax.evaluate.benchmarks.patch_strips import NOISE, kind_of
from xdesc_jax.evaluate.benchmarks.patch_tasks import Pairs, Tasks

POOLS = (100, 500, 1000, 5000, 10000, 15000, 20000)
IMBALANCED = 0.2  # positives to a negative


def measured(
    rows: np.ndarray, sequences: Sequence[str], starts: np.ndarray, tasks: Tasks, label: str = ""
) -> dict[str, Any]:
    """All figures of one row of the table.

    Args:
        rows: [16, N, D] canonical descriptors of all strips (see `patch_strips.STRIPS`) of all sequences.
        sequences: their names, i_* and v_*.
        starts: [S + 1] where each sequence's places begin among the N.
        tasks: what is compared.
        label: of the row, for progress.

    Returns:
        'values': column -> %; 'detail': task -> the same by noise, and by what else there is.
    """
    longest = 0.0 if rows.dtype == np.bool_ else max(float(row_norms(strip).max(initial=0)) for strip in rows)
    verification = _verification(rows, tasks)
    matching = _matching(rows, sequences, starts, longest, label)
    retrieval = _retrieval(rows, tasks, longest)
    verified = [found for by_kind in verification.values() for found in by_kind.values()]
    values = {
        "verification": float(np.mean([v["imbalanced"] for v in verified])),
        "balanced verification": float(np.mean([v["balanced"] for v in verified])),
        "matching": float(np.mean([list(by_kind.values()) for by_kind in matching.values()])),
        "retrieval": float(np.mean(list(retrieval.values()))),
    }
    return {
        "values": values, "detail": {"verification": verification, "matching": matching, "retrieval": retrieval}
    }  # fmt: skip


def _verification(rows: np.ndarray, tasks: Tasks) -> dict[str, dict[str, dict[str, float]]]:
    """noise -> 'intra', 'inter' -> 'imbalanced' AP and 'balanced' area under ROC, %."""
    places, found = rows.shape[1], {}
    flat = rows.reshape(-1, rows.shape[2])
    for number, noise in enumerate(NOISE):

        def far(pairs: Pairs, first: int = 5 * number) -> np.ndarray:
            strip = np.where(pairs.image > 0, first + pairs.image, 0)
            i, j = (strip * places + pairs.row).T
            return patch_metrics.pair_distances(flat, i, j)

        near = far(tasks.positive)
        few = near[: int(len(near) * IMBALANCED)]
        by_kind = {}
        for kind, pairs in tasks.negative.items():
            apart = far(pairs)

            def labelled(positive: np.ndarray, negative: np.ndarray = apart) -> tuple[np.ndarray, np.ndarray]:
                return np.concatenate([positive, negative]), np.arange(len(positive) + len(negative)) < len(positive)

            by_kind[kind] = {
                "imbalanced": 100 * patch_metrics.average_precision(*labelled(few)),
                "balanced": 100 * patch_metrics.roc_area(*labelled(near)),
            }
        found[noise] = by_kind
    return found


def _matching(
    rows: np.ndarray, sequences: Sequence[str], starts: np.ndarray, longest: float, label: str
) -> dict[str, dict[str, float]]:
    """noise -> 'illumination', 'viewpoint' -> AP, mean over the images of a sequence, then over sequences, %."""
    sums: dict[str, dict[str, list[float]]] = {noise: {} for noise in NOISE}
    places = list(zip(sequences, starts[:-1], starts[1:], strict=True))
    for name, start, end in console.track(places, f"{label}: matching", "sequences"):
        for number, noise in enumerate(NOISE):
            strips = range(5 * number + 1, 5 * number + 6)
            found = [patch_metrics.matching(rows[0, start:end], rows[s, start:end], longest)[0] for s in strips]
            sums[noise].setdefault(kind_of(name), []).append(float(np.mean(found)))
    return {n: {kind: 100 * float(np.mean(v)) for kind, v in kinds.items()} for n, kinds in sums.items()}


def _retrieval(rows: np.ndarray, tasks: Tasks, longest: float) -> dict[str, float]:
    """noise -> AP, mean over the queries and the sizes of the pool, %."""
    most = len(tasks.distractors) + 5
    pools = np.array([size for size in POOLS if size <= most] or [most])
    positives = rows[1:, tasks.queries].reshape(len(NOISE), 5, len(tasks.queries), -1).transpose(2, 0, 1, 3)
    found = patch_metrics.retrieval(
        rows[0, tasks.queries], positives, rows[0, tasks.distractors], tasks.query_of, tasks.distractor_of, pools,
        longest,
    )  # fmt: skip
    return {noise: 100 * float(mean) for noise, mean in zip(NOISE, found.mean(axis=1), strict=True)}
