"""Absolute poses by pycolmap: the adapter between its names, which change with its versions, and ours.

In: image points with their 3D points, and a camera; image coordinates have COLMAP's origin, the corner of the
first pixel. Out: a pose with its inliers and covariance.

Maps may lie anywhere: in UTM or ECEF coordinates, points are 1e5 to 5e6 m from the origin and a few from each other,
which leaves the minimal solvers nothing to work with. So a pose is found around the points' own middle, in float64,
and moved back.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.camera_models import focals
from xdesc_jax.colmap.model import Camera, Pose

MIN_POINTS = 3
# Between descriptors and detectors one match of twenty may be right. COLMAP's 10,000 samples, meant for one of ten,
# then miss the pose by chance.
MAX_TRIALS, LEAST_INLIER_RATIO = 50_000, 0.02
_MASKS = ("inlier_mask", "inliers")  # the key of recent versions, and of those before


@dataclasses.dataclass(frozen=True)
class PoseEstimate:
    """A pose from correspondences.

    Attributes:
        pose: world to camera.
        inlier: [M] bool.
        error_px: [M], distance of each projected 3D point from its image point; inf where the camera cannot see it.
        covariance: [6, 6] of a small rotation w (rad), then of a small change dt of the translation (map units), for
            keypoints off by 1 px: x_camera = exp([w]x) R x_world + t + dt. None where it cannot be computed.
        position_covariance: [3, 3] of the camera's position in the world (map units), from the same; it does not
            depend on where the world's origin is, as that of the translation does.
        focal_px: the focal length, estimated where the camera's was not known.
    """

    pose: Pose
    inlier: np.ndarray
    error_px: np.ndarray
    covariance: np.ndarray | None
    position_covariance: np.ndarray | None
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
    estimation.ransac.max_num_trials, estimation.ransac.min_inlier_ratio = MAX_TRIALS, LEAST_INLIER_RATIO
    estimation.estimate_focal_length = refinement.refine_focal_length = not camera.known and focals(camera.model) > 0
    intrinsics = _intrinsics(camera)
    middle = np.median(points, axis=0)  # wrong points far away do not pull it
    found: dict[str, Any] | None = pycolmap.estimate_and_refine_absolute_pose(
        xy, points - middle, intrinsics, estimation, refinement, return_covariance=True
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
    covariance, of_position = _covariances(found.get("covariance"), pose, middle)
    errors = _residuals_px(intrinsics, pose, points - middle, xy)
    return PoseEstimate(
        pose.moved(middle), np.asarray(mask, bool), errors, covariance, of_position,
        float(intrinsics.mean_focal_length()),
    )  # fmt: skip


def _covariances(
    half_angled: np.ndarray | None, pose: Pose, middle: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Covariances of (rotation, translation) and of the position, from COLMAP's of a pose around `middle`.

    COLMAP's are of the vector part of a small quaternion, which is half the angle.
    """
    if half_angled is None or not np.isfinite(half_angled).all():
        return None, None
    angles = np.array([2.0, 2, 2, 1, 1, 1])
    around = half_angled * np.outer(angles, angles)
    # With t' = t - R m, a rotation by w also moves the translation: dt' = dt - w x R m.
    back = np.eye(6)
    back[3:, :3] = _cross(pose.rotation @ middle)
    # And with c = -R^T t: dc = -R^T (dt - w x t).
    to_position = -pose.rotation.T @ np.hstack([_cross(pose.translation), np.eye(3)])
    covariance, of_position = back @ around @ back.T, to_position @ around @ to_position.T
    if not (np.isfinite(covariance).all() and np.isfinite(of_position).all()):
        return None, None
    return covariance, of_position


def _cross(a: np.ndarray) -> np.ndarray:
    """The matrix [3, 3] of x -> a x x."""
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def residuals_px(camera: Camera, pose: Pose, points: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Distances of projected points [M, 3] from positions [M, 2]; inf where the camera cannot see a point.

    COLMAP says which: no camera but a spherical one sees what is behind it.
    """
    return _residuals_px(_intrinsics(camera), pose, points, xy)


def _residuals_px(camera: pycolmap.Camera, pose: Pose, points: np.ndarray, xy: np.ndarray) -> np.ndarray:
    projected = np.asarray(camera.img_from_cam(points @ pose.rotation.T + pose.translation), np.float64).reshape(-1, 2)
    errors = np.linalg.norm(projected - xy, axis=1)
    return np.where(np.isfinite(errors), errors, np.inf)


def _intrinsics(camera: Camera) -> pycolmap.Camera:
    try:
        return pycolmap.Camera(model=camera.model, width=camera.width, height=camera.height, params=list(camera.params))
    except (ValueError, RuntimeError, IndexError) as error:
        raise ValueError(f"pycolmap {pycolmap.__version__} refuses the camera {camera} ({error})") from error
