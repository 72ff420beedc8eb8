"""How well the keypoints of two photos are matched, given where each query keypoint truly lies.

In: keypoint positions, nearest neighbours and mutual matches as row numbers. Out: `Measures` of a photo
pair, and their means. Knows nothing of descriptors or files; imports numpy alone.

The error of a match is the distance in px between the query keypoint's true position in the other photo
and the matched keypoint. MMA alone flatters whoever matches less: judge by AP and by the correct matches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

THRESHOLDS_PX = np.arange(1, 11)
CORRECT_PX = 3.0
RATIO = 0.9
MMA_MEAN_UP_TO_PX = 5
_BLOCK = 1024

# Positions [N, 2] in the query photo -> their true positions [N, 2] in the other one, NaN where unknown.
Correspondence = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class GroundTruth:
    """Where the keypoints of a query photo lie in a database photo.

    Attributes:
        query_xy: [N, 2] float64 keypoints of the query photo, px.
        database_xy: [M, 2] float64 keypoints of the database photo, px.
        expected_xy: [N, 2] float64 true positions of the query keypoints in the database photo; NaN where
            unknown (such rows may match, but count neither as right nor as wrong).
        findable: [N] bool, a database keypoint lies within `CORRECT_PX` of the true position.
    """

    query_xy: np.ndarray
    database_xy: np.ndarray
    expected_xy: np.ndarray
    findable: np.ndarray

    @classmethod
    def of(cls, query_xy: np.ndarray, database_xy: np.ndarray, correspondence: Correspondence) -> GroundTruth:
        """From the keypoints [N, 2] and [M, 2] of both photos."""
        query_xy = np.asarray(query_xy, np.float64).reshape(-1, 2)
        database_xy = np.asarray(database_xy, np.float64).reshape(-1, 2)
        expected = np.asarray(correspondence(query_xy), np.float64)
        if expected.shape != query_xy.shape:
            raise ValueError(f"correspondence gave shape {expected.shape}, expected {query_xy.shape}")
        return cls(query_xy, database_xy, expected, _near_any(expected, database_xy, CORRECT_PX))

    @property
    def known(self) -> np.ndarray:
        """[N] bool, the true position is known."""
        return ~np.isnan(self.expected_xy).any(axis=1)

    def errors(self, queries: np.ndarray, found: np.ndarray) -> np.ndarray:
        """[K] float64 errors in px of query rows [K] matched to database rows [K]; NaN where unknown."""
        return _length(self.expected_xy[queries] - self.database_xy[found])


def _length(offsets: np.ndarray) -> np.ndarray:
    return np.sqrt((offsets * offsets).sum(axis=-1))


def _near_any(points: np.ndarray, others: np.ndarray, radius: float) -> np.ndarray:
    """[N] bool: whether any of `others` [M, 2] lies within `radius` of each of `points` [N, 2]."""
    near = np.zeros(len(points), bool)
    if len(others):
        for start in range(0, len(points), _BLOCK):
            block = points[start : start + _BLOCK]
            near[start : start + _BLOCK] = (_length(block[:, None] - others[None]) <= radius).any(axis=1)
    return near


def mean_matching_accuracy(errors: np.ndarray, thresholds: Sequence[float] | np.ndarray) -> np.ndarray:
    """[T] share of matches whose error [K] is at most each threshold, in px; zeros where there are none."""
    if len(errors) == 0:
        return np.zeros(len(thresholds))
    return (errors[:, None] <= np.asarray(thresholds)).mean(axis=0)


def average_precision(ratios: np.ndarray, correct: np.ndarray, findable: int) -> float:
    """Precision summed at each correct row of the ranking, over the number of rows that could be found.

    Args:
        ratios: [N] first-to-second distance ratio of each query row; the smallest ranks first.
        correct: [N] bool, the first neighbour is the right one.
        findable: number of query keypoints that have a true counterpart.

    Returns:
        The average precision, 0 where nothing could be found. Rows of equal ratio have no order among
        them (Hamming distances tie often): each gets the precision at the end of its group, so that the
        figure does not depend on the order of rows.
    """
    if findable == 0 or len(ratios) == 0:
        return 0.0
    order = np.argsort(ratios, kind="stable")
    hits = np.cumsum(correct[order])
    group_end = np.searchsorted(ratios[order], ratios[order], side="right") - 1
    precision = hits[group_end] / (group_end + 1)
    return float(precision[correct[order]].sum() / findable)


@dataclasses.dataclass(frozen=True)
class Measures:
    """The figures of one photo pair, or means of them.

    Attributes:
        ap: average precision of all query rows ranked by distance ratio; correct within 3 px.
        mma: share of mutual matches within 1, 2, ... 10 px.
        mma_mean: mean of `mma` at 1 to 5 px.
        correct: number of correct mutual matches (3 px) that pass the ratio test at 0.9.
        precision: `correct` over `ratio_matches`, 0 where there are none.
        distinct: `correct`, counting keypoints at one and the same position (a detector gives a corner
            several orientations) once: the smaller number of distinct positions of the two photos.
        matches: number of mutual matches.
        ratio_matches: number of mutual matches that pass the ratio test.
        queries: number of query keypoints whose true position is known.
        findable: number of these with a database keypoint within 3 px of it.
        ratio: the ratio calibrated for what is matched; 0.9 where none is.
        calibrated_correct: `correct` at that ratio.
        calibrated_precision: `precision` at that ratio.
    """

    ap: float
    mma: tuple[float, ...]
    mma_mean: float
    correct: float
    precision: float
    distinct: float
    matches: float
    ratio_matches: float
    queries: float
    findable: float
    ratio: float
    calibrated_correct: float
    calibrated_precision: float


def measure(
    truth: GroundTruth,
    nearest: np.ndarray,
    ratios: np.ndarray,
    mutual: np.ndarray,
    mutual_ratios: np.ndarray,
    ratio: float = RATIO,
) -> Measures:
    """The measures of one photo pair.

    Args:
        truth: where the N query keypoints lie among the M database keypoints.
        nearest: [N] int, each query row's nearest database row, -1 where it has none.
        ratios: [N] float, its first-to-second distance ratio, on the scale of L2 distance.
        mutual: [K, 2] int, mutual nearest neighbours (query row, database row).
        mutual_ratios: [K] float, the larger one of their ratios in the two directions.
        ratio: the calibrated ratio.
    """
    known = truth.known
    ranked = np.flatnonzero((nearest >= 0) & known)
    findable = int(truth.findable.sum())
    hit = truth.errors(ranked, nearest[ranked]) <= CORRECT_PX

    judged = known[mutual[:, 0]]
    mutual, mutual_ratios = mutual[judged], mutual_ratios[judged]
    errors = truth.errors(mutual[:, 0], mutual[:, 1])
    mma = mean_matching_accuracy(errors, THRESHOLDS_PX)
    kept, calibrated = mutual_ratios <= RATIO, mutual_ratios <= ratio
    correct = errors <= CORRECT_PX
    right = mutual[kept & correct]
    positions = (truth.query_xy[right[:, 0]], truth.database_xy[right[:, 1]])
    return Measures(
        ap=average_precision(ratios[ranked], hit, findable),
        mma=tuple(float(v) for v in mma),
        mma_mean=float(mma[:MMA_MEAN_UP_TO_PX].mean()),
        correct=len(right),
        precision=_share(correct, kept),
        distinct=min(len(np.unique(xy, axis=0)) for xy in positions),
        matches=len(mutual),
        ratio_matches=int(kept.sum()),
        queries=int(known.sum()),
        findable=findable,
        ratio=ratio,
        calibrated_correct=int((calibrated & correct).sum()),
        calibrated_precision=_share(correct, calibrated),
    )


def _share(correct: np.ndarray, kept: np.ndarray) -> float:
    return float(correct[kept].mean()) if kept.any() else 0.0


def mean(measures: Sequence[Measures]) -> Measures:
    """Field by field mean; of pairs first, then of scenes, so that each scene weighs the same.

    Raises:
        ValueError: there is nothing to average.
    """
    if not measures:
        raise ValueError("no measures to average")
    averages: dict[str, Any] = {}
    for field in dataclasses.fields(Measures):
        average = np.mean([getattr(m, field.name) for m in measures], axis=0)
        averages[field.name] = tuple(average.tolist()) if average.ndim else float(average)
    return Measures(**averages)
