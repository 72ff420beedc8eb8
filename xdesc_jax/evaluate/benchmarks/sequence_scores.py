"""The figures of the HPatches sequences: matching accuracy of photo pairs, and of the homographies that matches give.

In: what a search between two photos finds, and where photo 1 truly lies in the other. Out: per pair, per sequence and
over all: the share of mutual nearest neighbours within 1 to 10 px (Dusmanu et al., CVPR 2019), and the mean distance of
the photo's corners under the estimated homography from their true places (DeTone et al., CVPRW 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xdesc_jax.evaluate.benchmarks.patch_strips import kind_of
from xdesc_jax.evaluate.homography import Searched
from xdesc_jax.evaluate.measures import CORRECT_PX, THRESHOLDS_PX, Correspondence, mean_matching_accuracy

OVERALL = "overall"
AREA_UP_TO_PX = 5
CORNER_PX = (1, 3, 5)
RANSAC_PX, RANSAC_TRIALS, RANSAC_CONFIDENCE = 3.0, 5000, 0.9999
LOST_PX = 1e6  # error of a homography that is not found; JSON has no word for infinity


def pair_scores(found: Searched, truth: Correspondence, size: tuple[int, int]) -> dict[str, Any]:
    """Figures of one pair.

    Args:
        found: its search.
        truth: positions in photo 1 -> in the other.
        size: width and height of photo 1, px.

    Returns:
        'mma': [10] share of mutual matches within 1 to 10 px; 'matches' and 'correct' (at 3 px); 'corner_px'.
    """
    query, database = found.mutual.T
    errors = found.truth.errors(query, database)
    estimated = estimated_homography(found.truth.query_xy[query], found.truth.database_xy[database])
    return {
        "mma": mean_matching_accuracy(errors, THRESHOLDS_PX).tolist(),
        "matches": len(errors),
        "correct": int((errors <= CORRECT_PX).sum()),
        "corner_px": corner_error_px(estimated, truth, size),
    }


def estimated_homography(query_xy: np.ndarray, database_xy: np.ndarray) -> np.ndarray | None:
    """[3, 3] by RANSAC over matches [K, 2], the same for the same matches; None where there is none."""
    import cv2

    if len(query_xy) < 4:
        return None
    found, _ = cv2.findHomography(
        query_xy, database_xy, cv2.RANSAC, RANSAC_PX, maxIters=RANSAC_TRIALS, confidence=RANSAC_CONFIDENCE
    )
    return None if found is None else np.asarray(found, np.float64)


def corner_error_px(estimated: np.ndarray | None, truth: Correspondence, size: tuple[int, int]) -> float:
    """Mean distance of the four corners' places from their true ones; `LOST_PX` without a homography, and at most."""
    width, height = size
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
    if estimated is None:
        return LOST_PX
    seen = np.concatenate([corners, np.ones((4, 1))], axis=1) @ estimated.T
    with np.errstate(divide="ignore", invalid="ignore"):
        error = float(np.linalg.norm(seen[:, :2] / seen[:, 2:] - truth(corners), axis=1).mean())
    return min(error, LOST_PX) if np.isfinite(error) else LOST_PX


def area(mma: Sequence[float] | np.ndarray) -> float:
    """Area under a curve [10] of matching accuracy up to 5 px, over its width."""
    return float(np.mean(np.asarray(mma)[:AREA_UP_TO_PX]))


def summary(scenes: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Figures over sequences, each of which weighs the same.

    Args:
        scenes: sequence, i_* or v_* -> its pairs (see `pair_scores`).

    Returns:
        'mma': 'overall', 'illumination', 'viewpoint' (those that there are) -> [10]; 'area': sequence -> area up to 5
        px; 'matches', 'correct': mean of a pair; 'homography': threshold -> share of pairs, by the mean over sequences.
    """
    mma = {name: np.mean([pair["mma"] for pair in pairs], axis=0) for name, pairs in scenes.items()}
    of_kind: dict[str, list[np.ndarray]] = {OVERALL: list(mma.values())}
    for name, curve in mma.items():
        of_kind.setdefault(kind_of(name), []).append(curve)

    def over(key: str) -> float:
        return float(np.mean([np.mean([pair[key] for pair in pairs]) for pairs in scenes.values()]))

    def placed(limit_px: float) -> float:
        return float(np.mean([np.mean([pair["corner_px"] <= limit_px for pair in p]) for p in scenes.values()]))

    return {
        "mma": {kind: np.mean(curves, axis=0).tolist() for kind, curves in of_kind.items()},
        "area": {name: area(curve) for name, curve in mma.items()},
        "matches": over("matches"),
        "correct": over("correct"),
        "homography": {str(limit): placed(limit) for limit in CORNER_PX},
    }
