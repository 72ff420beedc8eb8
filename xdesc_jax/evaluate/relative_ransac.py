"""Which RANSAC finds a relative pose: COLMAP's, or PoseLib's.

In: a name. Out: a function of matched image points and intrinsics, with COLMAP's or PoseLib's defaults beside what is
told. PoseLib (V. Larsson, https://github.com/PoseLib/PoseLib) is the extra 'poselib', imported when it is asked for.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from xdesc_jax.colmap.camera_models import pinhole

if TYPE_CHECKING:
    from xdesc_jax.colmap.bindings.relative_pose import RelativePose

Ransac = Literal["colmap", "poselib"]


class Estimator(Protocol):
    """Finds how two cameras stand to each other; as `colmap.bindings.relative_pose.estimate_relative_pose`."""

    def __call__(
        self, xy1: np.ndarray, xy2: np.ndarray, k1: np.ndarray, k2: np.ndarray, *, max_error_px: float, seed: int
    ) -> RelativePose | None: ...


def estimator(ransac: Ransac = "colmap") -> Estimator:
    """The function that a name stands for.

    Raises:
        ModuleNotFoundError: PoseLib is asked for and not installed; says how to install it.
    """
    from xdesc_jax.colmap.bindings.relative_pose import estimate_relative_pose

    if ransac == "colmap":
        return estimate_relative_pose
    try:
        import poselib
    except ModuleNotFoundError as error:
        if error.name != "poselib":
            raise
        told = "--ransac poselib needs the package 'poselib'; install it with: pip install 'xdesc-jax[poselib]'"
        raise ModuleNotFoundError(told, name=error.name) from error
    return functools.partial(_by_poselib, poselib)


def _by_poselib(
    poselib: Any, xy1: np.ndarray, xy2: np.ndarray, k1: np.ndarray, k2: np.ndarray, *, max_error_px: float, seed: int
) -> RelativePose | None:
    """LO-RANSAC over five matches, and a refinement of the pose over its inliers."""
    from xdesc_jax.colmap.bindings.relative_pose import MAX_TRIALS, MIN_MATCHES, RelativePose, checked
    from xdesc_jax.colmap.model import Pose

    xy1, xy2 = checked(xy1, xy2)
    if len(xy1) < MIN_MATCHES:
        return None
    options = {"max_epipolar_error": max_error_px, "seed": seed, "max_iterations": MAX_TRIALS}
    found, about = poselib.estimate_relative_pose(xy1, xy2, _camera(k1), _camera(k2), options, {})
    inlier = np.asarray(about["inliers"], bool)
    pose = Pose(np.array(found.R, np.float64), np.array(found.t, np.float64))
    length = np.linalg.norm(pose.translation)
    # Where it finds nothing it gives the identity, without inliers.
    if inlier.sum() < MIN_MATCHES or not (np.isfinite(pose.rotation).all() and np.isfinite(length) and length > 0):
        return None
    return RelativePose(Pose(pose.rotation, pose.translation / length), inlier)


def _camera(k: np.ndarray) -> dict[str, Any]:
    camera = pinhole(k)
    return {"model": camera.model, "width": camera.width, "height": camera.height, "params": list(camera.params)}
