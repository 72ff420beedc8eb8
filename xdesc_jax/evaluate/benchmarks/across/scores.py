"""Figures of the benchmark across descriptors.

In: matched keypoints of a pair, with its truth. Out: figures of the pair, of a row, and the best way of each map and
device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xdesc_jax.evaluate.benchmarks.across.data import Pair, Posed
from xdesc_jax.evaluate.benchmarks.across.plan import Case
from xdesc_jax.evaluate.benchmarks.pose_pairs import PosedPair
from xdesc_jax.evaluate.benchmarks.pose_scores import areas
from xdesc_jax.evaluate.benchmarks.relative_pose import pair_scores
from xdesc_jax.evaluate.benchmarks.results import Column, Row
from xdesc_jax.evaluate.measures import CORRECT_PX, GroundTruth
from xdesc_jax.evaluate.relative_ransac import estimator
from xdesc_jax.evaluate.repeatability import repeatability

AUC_LIMIT_DEG = 10
COLUMNS = (
    Column("correct", "", 0), Column("precision"), Column("of the weaker side"), Column("repeatability"),
    Column(f"AUC {AUC_LIMIT_DEG} deg"), Column("inliers", "", 0),
)  # fmt: skip
Figures = Mapping[str, Sequence[Mapping[str, Any]]]
Leader = tuple[str, str, str, str, str, float, float | None]


def score(
    pair: Pair, known_xy: np.ndarray, device_xy: np.ndarray, known_size: tuple[int, int],
    device_size: tuple[int, int], rows: np.ndarray, max_error_px: float, seed: int,
) -> dict[str, float]:  # fmt: skip
    """Figures of one pair.

    Args:
        pair: with its truth.
        known_xy, device_xy: [N, 2] and [M, 2] keypoints, px of the photos, origin at the centre of the first pixel.
        known_size, device_size: (width, height) of the photos.
        rows: [K, 2] which of them match.
        max_error_px, seed: of RANSAC, for posed pairs.

    Returns:
        Of a sequence: 'matches', 'correct' (3 px), and 'repeatability' (`evaluate.repeatability`) where the truth goes
        both ways. Of a posed scene: 'matches', 'right' (share
        that fits the true geometry), 'error_deg' (-1 without a pose), 'inliers'.
    """
    if isinstance(pair.truth, Posed):
        return _posed(pair, pair.truth, known_xy[rows[:, 0]], device_xy[rows[:, 1]], max_error_px, seed)
    truth = GroundTruth.of(known_xy, device_xy, pair.truth)
    errors = truth.errors(rows[:, 0], rows[:, 1])
    figures: dict[str, float] = {"matches": len(rows), "correct": int((errors <= CORRECT_PX).sum())}
    if pair.inverse is not None:
        repeated = repeatability(known_xy, device_xy, pair.truth, pair.inverse, known_size, device_size)
        figures["repeatability"] = repeated.share
    return figures


def _posed(
    pair: Pair, truth: Posed, xy0: np.ndarray, xy1: np.ndarray, max_error_px: float, seed: int
) -> dict[str, float]:
    from xdesc_jax.colmap.bindings.relative_pose import ideal_positions

    # Cameras count px from the corner of the first pixel, files from its centre.
    (ideal0, k0), (ideal1, k1) = (
        ideal_positions(camera, xy + 0.5) for camera, xy in zip(truth.cameras, (xy0, xy1), strict=True)
    )
    found = pair_scores(
        ideal0, ideal1, PosedPair(pair.known, pair.device, k0, k1, truth.pose), max_error_px, seed, estimator()
    )
    found["right"] = found.pop("precision")
    return found


def summary(figures: Figures) -> dict[str, float | None]:
    """Column -> mean over pairs and then over scenes; None where no scene has it."""

    def over(key: str) -> float | None:
        means = [np.mean([p[key] for p in pairs]) for pairs in figures.values() if key in pairs[0]]
        return float(np.mean(means)) if means else None

    shares = [
        np.mean([p["correct"] / max(1, p["matches"]) for p in pairs])
        for pairs in figures.values()
        if "correct" in pairs[0]
    ]
    shares += [np.mean([p["right"] for p in pairs]) for pairs in figures.values() if "right" in pairs[0]]
    errors = [[p["error_deg"] for p in pairs] for pairs in figures.values() if "error_deg" in pairs[0]]
    auc = [areas([np.inf if e < 0 else e for e in scene], [AUC_LIMIT_DEG])[0] for scene in errors]
    repeated = over("repeatability")
    return {
        "correct": over("correct"),
        "precision": 100 * float(np.mean(shares)) if shares else None,
        "repeatability": None if repeated is None else 100 * repeated,
        f"AUC {AUC_LIMIT_DEG} deg": 100 * float(np.mean(auc)) if auc else None,
        "inliers": over("inliers"),
    }


def row_of(case: Case, figures: Mapping[Case, Figures]) -> Row:
    """A row of the table; the weaker side is the native row, of map or device, with fewer correct matches."""
    values = summary(figures[case])
    natives = [
        summary(figures[Case(name, name, "native", case.keypoints, case.condition)])["correct"]
        for name in (case.known, case.device)
    ]
    weaker = min((n for n in natives if n is not None), default=None)
    share = None if not weaker or values["correct"] is None else 100 * values["correct"] / weaker
    detail = {"map": case.known, "device": case.device, "keypoints": case.keypoints, "condition": case.condition}
    return Row(case.label, {**values, "of the weaker side": share}, case.way, "", detail)


def leaders(rows: Sequence[Row]) -> list[Leader]:
    """Map, device, keypoints, condition, the way with the most correct matches (inliers where there are no sequences),
    how many, and their share of the weaker side's; in the order of the rows."""
    best: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = tuple(row.detail[k] for k in ("map", "device", "keypoints", "condition"))
        if key not in best or _count(row) > _count(best[key]):
            best[key] = row
    return [(*key, row.mode, _count(row), row.values["of the weaker side"]) for key, row in best.items()]  # type: ignore[misc]


def _count(row: Row) -> float:
    return next((value for key in ("correct", "inliers") if (value := row.values[key]) is not None), 0.0)
