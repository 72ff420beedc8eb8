"""What geometric verification, mapping and triangulation take: settings with COLMAP's defaults.

In: values of the command line or of a pipeline. Out: one checked, frozen object. Imports nothing else.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Refine = Literal["unknown", "all", "none"]


@dataclasses.dataclass(frozen=True)
class MappingSettings:
    """How matches become models; COLMAP's defaults, but models from 3 photos on.

    Attributes:
        min_inliers: matches of a pair that its two-view geometry must explain; with fewer the pair is dropped.
        max_error_px: distance from the epipolar line up to which a match is explained.
        min_matches: verified matches below which a pair takes no part in mapping or triangulation.
        min_initial_inliers: verified matches of the pair that a model starts from; halved, up to twice, where
            no pair has so many.
        min_pose_inliers: 3D points that must agree on the pose of a photo that is added to a model.
        max_pose_error_px: reprojection error up to which a point agrees.
        max_reprojection_px: observations further off are taken out of the model.
        min_angle_deg: points whose rays meet under a smaller angle are taken out.
        min_model_size: photos below which a model is given up.
        two_view_tracks: keep points that only two photos see: more points, but only their distance from the
            epipolar line was checked.
        refine_intrinsics: 'unknown' refines those that were guessed or read from EXIF and keeps given ones,
            'all' refines every camera, 'none' keeps every one.
        seed: of verification and mapping. With one thread two runs give the same models, bit for bit.
        threads: to run on; no part of the configuration. With several, sums are added in changing order, and
            models differ a little from run to run.
    """

    min_inliers: int = 15
    max_error_px: float = 4.0
    min_matches: int = 15
    min_initial_inliers: int = 100
    min_pose_inliers: int = 30
    max_pose_error_px: float = 12.0
    max_reprojection_px: float = 4.0
    min_angle_deg: float = 1.5
    min_model_size: int = 3
    two_view_tracks: bool = False
    refine_intrinsics: Refine = "unknown"
    seed: int = 0
    threads: int = 2

    def __post_init__(self) -> None:
        least = {"min_inliers": 1, "min_matches": 1, "min_initial_inliers": 1, "min_pose_inliers": 3}
        least |= {"min_model_size": 2, "seed": 0, "threads": 1}
        for field, smallest in least.items():
            if getattr(self, field) < smallest:
                raise ValueError(f"{field} is {getattr(self, field)}, expected at least {smallest}")
        for field in ("max_error_px", "max_pose_error_px", "max_reprojection_px", "min_angle_deg"):
            if not getattr(self, field) > 0:
                raise ValueError(f"{field} is {getattr(self, field)}, expected above 0")
        if self.refine_intrinsics not in ("unknown", "all", "none"):
            raise ValueError(f"refine_intrinsics is {self.refine_intrinsics!r}, expected 'unknown', 'all' or 'none'")

    def config(self) -> dict[str, Any]:
        """What the models depend on."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "threads"}
