"""Absolute poses by pycolmap: the adapter between its names, which change with its versions, and ours.

In: image points with their 3D points, and a camera; image coordinates have COLMAP's origin, the corner of the
first pixel. Out: a pose with its inliers and covariance.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.model import Camera, Pose

MIN_POINTS = 3
_MASKS = ("inlier_mask", "inliers")  # the key of recent versions, and of those before


@dataclasses.dataclass(frozen=True)
class PoseEstimate:
    """A pose from correspondences.

    Attributes:
        pose: world to camera.
        inlier: [M] bool.
        error_px: [M], distance of each projected 3D point from its image point; inf behind the camera.
        covariance: [6, 6] of a small rotation (rad), then of the translation, for keypoints off by 1 px; None
            where it cannot be computed.
        focal_px: the focal length, estimated where the camera's was not known.
    """

    pose: Pose
    inlier: np.ndarray
    error_px: np.ndarray
    covariance: np.ndarray | None
    focal_px: float


def estimate_pose(
    xy: np.ndarray, points: np.ndarray, camera: Camera, *, max_error_px: float, seed: int
) -> PoseEstimate | None:
    """LO-RANSAC over three correspondences, then refinement of the pose over the inliers.

    Args:
        xy: [M, 2] px, COLMAP's origin.
        points: [M, 3] world.
        camera: where its focal length is not known, it is estimated with the pose; a known one never changes.
        max_error_px: largest reprojection error of an inlier.
        seed: of the samples.

    Returns:
        None where no pose is found.

    Raises:
        ValueError: shapes that do not fit, values that are not finite, or a camera that pycolmap refuses.
    """
    xy, points = np.asarray(xy, np.float64).reshape(-1, 2), np.asarray(points, np.float64).reshape(-1, 3)
    if len(xy) != len(points):
        raise ValueError(f"{len(xy)} image points with {len(points)} 3D points, expected as many")
    if not (np.isfinite(xy).all() and np.isfinite(points).all()):
        raise ValueError("image points or 3D points hold values that are not finite")
    if len(xy) < MIN_POINTS:
        return None
    estimation, refinement = pycolmap.AbsolutePoseEstimationOptions(), pycolmap.AbsolutePoseRefinementOptions()
    estimation.ransac.max_error = max_error_px
    estimation.ransac.random_seed = seed
    estimation.estimate_focal_length = refinement.refine_focal_length = not camera.known
    intrinsics = _intrinsics(camera)
    found: dict[str, Any] | None = pycolmap.estimate_and_refine_absolute_pose(
        xy, points, intrinsics, estimation, refinement, return_covariance=True
    )
    if found is None:
        return None
    mask = next((found[key] for key in _MASKS if key in found), None)
    if mask is None:
        raise RuntimeError(f"pycolmap {pycolmap.__version__} gives {sorted(found)}, expected one of {_MASKS}")
    rigid = found["cam_from_world"]
    pose = Pose(np.array(rigid.rotation.matrix()), np.array(rigid.translation))
    if not (np.isfinite(pose.rotation).all() and np.isfinite(pose.translation).all()):
        return None
    covariance = found.get("covariance")
    if covariance is not None and not np.isfinite(covariance).all():
        covariance = None
    errors = _errors_px(xy, points, pose, intrinsics)
    return PoseEstimate(pose, np.asarray(mask, bool), errors, covariance, float(intrinsics.mean_focal_length()))


def _errors_px(xy: np.ndarray, points: np.ndarray, pose: Pose, intrinsics: pycolmap.Camera) -> np.ndarray:
    seen = points @ pose.rotation.T + pose.translation
    ahead = np.flatnonzero(seen[:, 2] > 0)
    errors = np.full(len(xy), np.inf)
    if len(ahead):
        projected = np.asarray(intrinsics.img_from_cam(seen[ahead]), np.float64).reshape(-1, 2)
        errors[ahead] = np.linalg.norm(projected - xy[ahead], axis=1)
    return np.where(np.isfinite(errors), errors, np.inf)


def _intrinsics(camera: Camera) -> pycolmap.Camera:
    try:
        return pycolmap.Camera(model=camera.model, width=camera.width, height=camera.height, params=list(camera.params))
    except (ValueError, RuntimeError, IndexError) as error:
        raise ValueError(f"pycolmap {pycolmap.__version__} refuses the camera {camera} ({error})") from error
