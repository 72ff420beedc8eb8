"""Errors of relative poses, and the area under the curve of their shares.

In: matched points, intrinsics, poses found and true. Out: angles, areas, and how many matches fit the true geometry.
Imports numpy alone.

A pose's error is the larger one of the angle between the rotations and that between the directions of translation,
whose sign an essential matrix does not tell (Sarlin et al., CVPR 2020). A pose that is not found has an infinite one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.poses import rotation_error_deg

AUC_DEG = (5, 10, 20)
EPIPOLAR = 5e-4  # squared, in units of the focal length: matches nearer to the true geometry are right
NO_BASELINE = 1e-9


def pose_error_deg(found: Pose | None, true: Pose) -> float:
    """The larger angle of rotation and direction of translation; inf without a pose."""
    if found is None:
        return float("inf")
    rotation = rotation_error_deg(found.rotation, true.rotation)
    return max(rotation, direction_error_deg(found.translation, true.translation))


def direction_error_deg(found: np.ndarray, true: np.ndarray) -> float:
    """Angle [0, 90] between two directions up to their signs; 0 where the true one has no length."""
    if np.linalg.norm(true) < NO_BASELINE:
        return 0.0
    sine, cosine = np.linalg.norm(np.cross(found, true)), abs(float(np.dot(found, true)))
    return float(np.rad2deg(np.arctan2(sine, cosine)))


def areas(errors_deg: Sequence[float] | np.ndarray, limits_deg: Sequence[float] = AUC_DEG) -> list[float]:
    """Area under the share of pairs within an error, from 0 to each limit, over the limit.

    Args:
        errors_deg: [P]; inf for pairs without a pose.
        limits_deg: of the areas.

    Returns:
        From 0 to 1 each. Between two errors the share rises evenly, from 0 at 0; behind the last it stays.
    """
    errors = np.sort(np.asarray(errors_deg, np.float64))
    share = np.arange(1, len(errors) + 1) / max(1, len(errors))
    found = []
    for limit in limits_deg:
        inside = np.searchsorted(errors, limit)
        x = np.concatenate([[0.0], errors[:inside], [limit]])
        y = np.concatenate([[0.0], share[:inside], [share[inside - 1] if inside else 0.0]])
        found.append(float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum() / limit))
    return found


def fitting(xy0: np.ndarray, xy1: np.ndarray, k0: np.ndarray, k1: np.ndarray, true: Pose) -> np.ndarray:
    """[M] bool: the symmetric squared epipolar distance of matches [M, 2] to the true geometry is below `EPIPOLAR`."""
    rays0, rays1 = (np.concatenate([(xy - k[:2, 2]) / k[[0, 1], [0, 1]], np.ones((len(xy), 1))], axis=1)
                    for xy, k in ((np.asarray(xy0, float), k0), (np.asarray(xy1, float), k1)))  # fmt: skip
    x, y, z = true.translation
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ true.rotation
    lines1, lines0 = rays0 @ essential.T, rays1 @ essential
    product = np.einsum("md,md->m", rays1, lines1) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        far = product * (1 / (lines1[:, :2] ** 2).sum(axis=1) + 1 / (lines0[:, :2] ** 2).sum(axis=1))
    return np.asarray(far < EPIPOLAR)
