"""The figures of one row of the HPatches benchmark of patches.

In: descriptors of all patches, and what is compared. Out: verification, matching and retrieval, each by noise. Imports
numpy alone.

Verification ranks pairs by their distance: average precision with a positive to five negatives, and the area under the
ROC curve with as many of both. Matching: each reference patch takes its nearest in another image of its sequence.
Retrieval ranks the five patches of a query's place among those of other images, in pools of growing size. Each average
precision is the paper's, and that of the benchmark's toolbox.
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
TOOLBOX = "toolbox"


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
        'values': column -> %; 'detail': task -> the same by noise, and by what else there is; under
        'toolbox' average precision alone, as the benchmark's Python code has it (see `patch_metrics`).
    """
    longest = 0.0 if rows.dtype == np.bool_ else max(float(row_norms(strip).max(initial=0)) for strip in rows)
    verification, balanced = _verification(rows, tasks)
    matching = _matching(rows, sequences, starts, longest, label)
    found = {"verification": verification, "matching": matching, "retrieval": _retrieval(rows, tasks, longest)}
    detail, toolbox = ({task: _percent(tree, way) for task, tree in found.items()} for way in (0, 1))
    values = {task: _mean(tree) for task, tree in detail.items()} | {"balanced verification": _mean(balanced)}
    values |= {f"{TOOLBOX} {task}": _mean(tree) for task, tree in toolbox.items()}
    detail["verification"] = {
        noise: {kind: {"imbalanced": value, "balanced": balanced[noise][kind]} for kind, value in by_kind.items()}
        for noise, by_kind in detail["verification"].items()
    }
    return {"values": values, "detail": {**detail, TOOLBOX: toolbox}}


def _percent(tree: Any, way: int) -> Any:
    """Nested dicts of average precisions [2], of one way and in %."""
    if isinstance(tree, dict):
        return {key: _percent(value, way) for key, value in tree.items()}
    return 100 * float(tree[way])


def _mean(tree: Any) -> float:
    """Of nested dicts of figures, each dict counting once."""
    return float(np.mean([_mean(value) for value in tree.values()])) if isinstance(tree, dict) else tree


def _verification(
    rows: np.ndarray, tasks: Tasks
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, dict[str, float]]]:
    """noise -> 'intra', 'inter' -> imbalanced AP [2]; and the same -> balanced area under ROC, %."""
    places = rows.shape[1]
    precision: dict[str, dict[str, np.ndarray]] = {noise: {} for noise in NOISE}
    area: dict[str, dict[str, float]] = {noise: {} for noise in NOISE}
    flat = rows.reshape(-1, rows.shape[2])
    for number, noise in enumerate(NOISE):

        def far(pairs: Pairs, first: int = 5 * number) -> np.ndarray:
            strip = np.where(pairs.image > 0, first + pairs.image, 0)
            i, j = (strip * places + pairs.row).T
            return patch_metrics.pair_distances(flat, i, j)

        near = far(tasks.positive)
        few = near[: int(len(near) * IMBALANCED)]
        for kind, pairs in tasks.negative.items():
            apart = far(pairs)

            def labelled(positive: np.ndarray, negative: np.ndarray = apart) -> tuple[np.ndarray, np.ndarray]:
                return np.concatenate([positive, negative]), np.arange(len(positive) + len(negative)) < len(positive)

            precision[noise][kind] = patch_metrics.average_precision(*labelled(few))
            area[noise][kind] = 100 * patch_metrics.roc_area(*labelled(near))
    return precision, area


def _matching(
    rows: np.ndarray, sequences: Sequence[str], starts: np.ndarray, longest: float, label: str
) -> dict[str, dict[str, np.ndarray]]:
    """noise -> 'illumination', 'viewpoint' -> AP [2], mean over the images of a sequence, then over sequences."""
    sums: dict[str, dict[str, list[np.ndarray]]] = {noise: {} for noise in NOISE}
    places = list(zip(sequences, starts[:-1], starts[1:], strict=True))
    for name, start, end in console.track(places, f"{label}: matching", "sequences"):
        for number, noise in enumerate(NOISE):
            strips = range(5 * number + 1, 5 * number + 6)
            found = [patch_metrics.matching(rows[0, start:end], rows[s, start:end], longest)[0] for s in strips]
            sums[noise].setdefault(kind_of(name), []).append(np.mean(found, axis=0))
    return {n: {kind: np.mean(v, axis=0) for kind, v in kinds.items()} for n, kinds in sums.items()}


def _retrieval(rows: np.ndarray, tasks: Tasks, longest: float) -> dict[str, np.ndarray]:
    """noise -> AP [2], mean over the queries and the sizes of the pool."""
    most = len(tasks.distractors) + 5
    pools = np.array([size for size in POOLS if size <= most] or [most])
    positives = rows[1:, tasks.queries].reshape(len(NOISE), 5, len(tasks.queries), -1).transpose(2, 0, 1, 3)
    found = patch_metrics.retrieval(
        rows[0, tasks.queries], positives, rows[0, tasks.distractors], tasks.query_of, tasks.distractor_of, pools,
        longest,
    )  # fmt: skip
    return dict(zip(NOISE, found.mean(axis=1), strict=True))
