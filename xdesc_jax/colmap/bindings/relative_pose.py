"""Relative poses by pycolmap, of two photos with known intrinsics.

In: matched image points, and both cameras; points and principal points have one origin, whichever. Out: how the second
camera stands to the first, and the inliers.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.camera_models import pinhole
from xdesc_jax.colmap.model import Camera, Pose

MIN_MATCHES = 5
MAX_TRIALS = 10_000  # as COLMAP verifies pairs; wrong matches alone would take ten times as many


@dataclasses.dataclass(frozen=True)
class RelativePose:
    """How two cameras stand to each other.

    Attributes:
        pose: camera 1 to camera 2; the length of its translation is 1, for it cannot be known.
        inlier: [M] bool.
    """

    pose: Pose
    inlier: np.ndarray


def estimate_relative_pose(
    xy1: np.ndarray, xy2: np.ndarray, k1: np.ndarray, k2: np.ndarray, *, max_error_px: float, seed: int
) -> RelativePose | None:
    """LO-RANSAC over five matches for an essential matrix, of whose four poses the one that sees most points ahead.

    Args:
        xy1, xy2: [M, 2] px.
        k1, k2: [3, 3] intrinsics, without skew.
        max_error_px: largest distance from an epipolar line of an inlier.
        seed: of the samples.

    Returns:
        None where no pose is found.

    Raises:
        ValueError: shapes that do not fit, or values that are not finite.
    """
    xy1, xy2 = checked(xy1, xy2)
    if len(xy1) < MIN_MATCHES:
        return None
    options = pycolmap.RANSACOptions()
    options.max_error, options.random_seed, options.max_num_trials = max_error_px, seed, MAX_TRIALS
    found = pycolmap.estimate_essential_matrix(xy1, xy2, _of_colmap(pinhole(k1)), _of_colmap(pinhole(k2)), options)
    if found is None:
        return None
    rigid = found["cam2_from_cam1"]
    pose = Pose(np.array(rigid.rotation.matrix()), np.array(rigid.translation))
    if not (np.isfinite(pose.rotation).all() and np.isfinite(pose.translation).all()):
        return None
    return RelativePose(pose, np.asarray(found["inlier_mask"], bool))


def checked(xy1: np.ndarray, xy2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matched image points as float64 [M, 2]; ValueError where they are not as many, or not finite."""
    xy1, xy2 = (np.asarray(xy, np.float64).reshape(-1, 2) for xy in (xy1, xy2))
    if len(xy1) != len(xy2):
        raise ValueError(f"{len(xy1)} image points with {len(xy2)}, expected as many")
    if not (np.isfinite(xy1).all() and np.isfinite(xy2).all()):
        raise ValueError("image points hold values that are not finite")
    return xy1, xy2


def ideal_positions(camera: Camera, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Image points as a camera without distortion would show them, and its intrinsics.

    Args:
        camera: of any of COLMAP's models.
        xy: [M, 2] px from the corner of the first pixel.

    Returns:
        [M, 2] px, and [3, 3] with the camera's focal lengths and principal point.

    Raises:
        ValueError: a point that the model's distortion maps from nowhere.
    """
    own = _of_colmap(camera)
    k = np.asarray(own.calibration_matrix(), np.float64)
    rays = np.asarray(own.cam_from_img(np.asarray(xy, np.float64).reshape(-1, 2))).reshape(-1, 2)
    if not np.isfinite(rays).all():
        raise ValueError(f"{camera.model} {list(camera.params)}: a point lies where the distortion has no inverse")
    return rays * k[[0, 1], [0, 1]] + k[:2, 2], k


def _of_colmap(camera: Camera) -> pycolmap.Camera:
    return pycolmap.Camera(model=camera.model, width=camera.width, height=camera.height, params=list(camera.params))
