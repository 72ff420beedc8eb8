"""What became of a query, and when its pose is believed.

In: nothing. Out: the types that the localizer gives and takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

import numpy as np

from xdesc_jax.colmap.model import Pose
from xdesc_jax.localization.correspondences import Correspondences


@dataclasses.dataclass(frozen=True)
class PoseSettings:
    """When a pose is believed.

    Attributes:
        min_inliers: fewer is a failure. 300 random correspondences in 640 x 480 px reach 7 to 9 inliers of
            12 px within COLMAP's 10000 samples, and 1000 of them 10 to 13.
        max_error_px: largest reprojection error of an inlier.
        seed: of RANSAC.
    """

    min_inliers: int = 12
    max_error_px: float = 12.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.min_inliers < 4:
            raise ValueError(f"min_inliers is {self.min_inliers}, expected at least 4: any three matches fit a pose")
        if not self.max_error_px > 0:
            raise ValueError(f"max_error_px is {self.max_error_px} px, expected above 0")


@dataclasses.dataclass(frozen=True)
class Localization:
    """What became of a query.

    Attributes:
        status: 'localized' or 'failed'.
        reason: why it failed; None where it did not.
        pose: world to camera; None where it failed.
        inliers, matches: positions in the query that support the pose, and that match a 3D point at all;
            several keypoints at one position count once.
        inlier_ratio: inliers / matches; 0 without matches.
        covariance: [6, 6] of a small rotation (rad), then of the translation (map units), for keypoints off by 1 px;
            None where it cannot be computed. `PoseEstimate` says which rotation and translation.
        position_covariance: [3, 3] of the camera's position in the world (map units), wherever its origin is; None as
            above.
        focal_px: focal length estimated with the pose, where the camera's was not known; else None.
        correspondences: keypoints of the query with points of the map, and which of them the pose explains.
        candidates: the photos it was matched with.
        warnings: what its rows give reason to warn of.
        views: name of a view -> photos that were matched in it; empty in a map without views.
        seconds: 'retrieval', 'translation', 'matching', 'pose' and 'total'.
    """

    status: Literal["localized", "failed"]
    reason: str | None = None
    pose: Pose | None = None
    inliers: int = 0
    matches: int = 0
    inlier_ratio: float = 0.0
    covariance: np.ndarray | None = None
    position_covariance: np.ndarray | None = None
    focal_px: float | None = None
    correspondences: Correspondences = dataclasses.field(default_factory=Correspondences.none)
    candidates: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    views: Mapping[str, int] = dataclasses.field(default_factory=dict)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def inlier_keypoints(self) -> np.ndarray:
        """Rows of the query that agree with the pose, [I] int."""
        return self.correspondences.keypoint[self.correspondences.inlier]

    @property
    def inlier_points(self) -> np.ndarray:
        """Rows of the map's points that they observe, [I] int."""
        return self.correspondences.point[self.correspondences.inlier]
