"""Figures of the benchmark across descriptors.

In: matched keypoints of a pair, with its truth. Out: figures of the pair, of a row, and the best way of each map and
device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xdesc_jax.evaluate.benchmarks.cross.data import Pair, Posed
from xdesc_jax.evaluate.benchmarks.cross.plan import Case
from xdesc_jax.evaluate.benchmarks.pose_pairs import PosedPair
from xdesc_jax.evaluate.benchmarks.pose_scores import areas
from xdesc_jax.evaluate.benchmarks.relative_pose import pair_scores
from xdesc_jax.evaluate.benchmarks.results import Column, Row
from xdesc_jax.evaluate.measures import CORRECT_PX, Correspondence
from xdesc_jax.evaluate.relative_ransac import Estimator
from xdesc_jax.evaluate.repeatability import Repeatability, repeatability

AUC_LIMIT_DEG = 10
SEQUENCE_SHARE, POSED_SHARE = "of the weaker side", "inliers of the weaker side"
SHARES = {SEQUENCE_SHARE: "correct", POSED_SHARE: "inliers"}  # of which column
COLUMNS = (
    Column("correct", "", 0), Column("precision"), Column(SEQUENCE_SHARE), Column("repeatability"),
    Column(f"AUC {AUC_LIMIT_DEG} deg"), Column("inliers", "", 0), Column(POSED_SHARE),
)  # fmt: skip
Figures = Mapping[str, Sequence[Mapping[str, Any]]]


class RememberedRepeatability:
    """`repeatability` of keypoints that come again and again, as those of one detector do, computed once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Repeatability] = {}

    def __call__(
        self, query_xy: np.ndarray, database_xy: np.ndarray, forward: Correspondence, backward: Correspondence,
        query_size: tuple[int, int], database_size: tuple[int, int],
    ) -> Repeatability:  # fmt: skip
        key = (forward, backward, query_size, database_size, query_xy.tobytes(), database_xy.tobytes())
        if key not in self._kept:
            self._kept[key] = repeatability(query_xy, database_xy, forward, backward, query_size, database_size)
        return self._kept[key]


def score(
    pair: Pair, known_xy: np.ndarray, device_xy: np.ndarray, known_size: tuple[int, int],
    device_size: tuple[int, int], rows: np.ndarray, max_error_px: float, seed: int, estimate: Estimator,
    repeated: Callable[..., Repeatability] = repeatability,
) -> dict[str, float]:  # fmt: skip
    """Figures of one pair.

    Args:
        pair: with its truth.
        known_xy, device_xy: [N, 2] and [M, 2] keypoints, px of the photos, origin at the centre of the first pixel.
        known_size, device_size: (width, height) of the photos.
        rows: [K, 2] which of them match.
        max_error_px, seed, estimate: of RANSAC, for posed pairs.
        repeated: what counts repeatability, with the arguments of `repeatability`.

    Returns:
        Of a sequence: 'matches', 'correct' (3 px), and 'repeatability' (`evaluate.repeatability`) where the truth goes
        both ways. Of a posed scene: 'matches', 'right' (share
        that fits the true geometry), 'error_deg' (-1 without a pose), 'inliers'.
    """
    known, device = known_xy[rows[:, 0]], device_xy[rows[:, 1]]
    if isinstance(pair.truth, Posed):
        return _posed(pair, pair.truth, known, device, max_error_px, seed, estimate)
    off = np.asarray(pair.truth(known.astype(np.float64))) - device
    figures: dict[str, float] = {"matches": len(rows), "correct": int((np.hypot(*off.T) <= CORRECT_PX).sum())}
    if pair.inverse is not None:
        found = repeated(known_xy, device_xy, pair.truth, pair.inverse, known_size, device_size)
        figures["repeatability"] = found.share
    return figures


def _posed(
    pair: Pair, truth: Posed, xy0: np.ndarray, xy1: np.ndarray, max_error_px: float, seed: int, estimate: Estimator
) -> dict[str, float]:
    from xdesc_jax.colmap.bindings.relative_pose import ideal_positions

    # Cameras count px from the corner of the first pixel, files from its centre.
    (ideal0, k0), (ideal1, k1) = (
        ideal_positions(camera, xy + 0.5) for camera, xy in zip(truth.cameras, (xy0, xy1), strict=True)
    )
    found = pair_scores(
        ideal0, ideal1, PosedPair(pair.known, pair.device, k0, k1, truth.pose), max_error_px, seed, estimate
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
    """A row of the table.

    Shares are of the weaker side: the native row, of map or device, with fewer correct matches (in sequences) or fewer
    inliers (in posed scenes), at the same keypoints and in the same condition.
    """
    values = summary(figures[case])
    natives = [
        summary(figures[Case(name, name, "native", case.keypoints, case.condition)])
        for name in (case.known, case.device)
    ]
    shares = {share: _share(values[of], [native[of] for native in natives]) for share, of in SHARES.items()}
    detail = {"map": case.known, "device": case.device, "keypoints": case.keypoints, "condition": case.condition}
    return Row(case.label, {**values, **shares}, case.way, "", detail)


def _share(value: float | None, natives: Sequence[float | None]) -> float | None:
    """A figure in percent of the smaller native one; None where there is none, or where that is 0."""
    weaker = min((native for native in natives if native is not None), default=None)
    return None if not weaker or value is None else 100 * value / weaker


@dataclasses.dataclass(frozen=True)
class Best:
    """The best way of a map and device.

    Attributes:
        way: of matching.
        count: correct matches, or inliers, a pair.
        share: of the weaker side's, percent; None where that has none.
    """

    way: str
    count: float
    share: float | None


@dataclasses.dataclass(frozen=True)
class Leader:
    """Which way serves a map and device best.

    Attributes:
        known, device: descriptors of map and device.
        keypoints, condition: of the rows.
        sequences: that with the most correct matches; None where there are no sequences.
        posed: that with the most inliers; None where there are no posed scenes.
    """

    known: str
    device: str
    keypoints: str
    condition: str
    sequences: Best | None
    posed: Best | None


def leaders(rows: Sequence[Row]) -> list[Leader]:
    """One of each map, device, keypoints and condition, in the order of the rows; of equal ways the first leads."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        at = row.detail
        groups.setdefault((at["map"], at["device"], at["keypoints"], at["condition"]), []).append(row)
    return [Leader(*at, _best(of, SEQUENCE_SHARE), _best(of, POSED_SHARE)) for at, of in groups.items()]


def _best(rows: Sequence[Row], share: str) -> Best | None:
    counts = [(count, row) for row in rows if (count := row.values[SHARES[share]]) is not None]
    if not counts:
        return None
    count, row = max(counts, key=lambda each: each[0])
    return Best(row.mode, count, row.values[share])
