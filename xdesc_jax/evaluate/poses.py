"""Errors of camera poses, and how many are small.

In: poses found and the true ones, world to camera. Out: errors of position and rotation per photo, shares
within thresholds, medians. What was not found has infinite errors. Imports numpy alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from xdesc_jax.colmap.model import Pose
from xdesc_jax.console.words import counted

Scale = Literal["metric", "relative"]
# Pairs of position and rotation [deg]. Metric: metres, as visuallocalization.net; relative: in units of `spacing`.
LOCALIZATION: dict[Scale, tuple[tuple[float, float], ...]] = {
    "metric": ((0.25, 2.0), (0.5, 5.0), (5.0, 10.0)),
    "relative": ((0.02, 0.5), (0.1, 2.0), (0.5, 5.0)),
}
# The first two of the paper's table 2.
MAPPING: dict[Scale, tuple[tuple[float, float], ...]] = {
    "metric": ((0.25, 2.0), (0.5, 5.0)),
    "relative": ((0.1, 2.0), (0.5, 5.0)),
}
UNITS: dict[Scale, str] = {"metric": "m", "relative": "u"}


@dataclasses.dataclass(frozen=True)
class PoseErrors:
    """Errors of Q photos.

    Attributes:
        names: the photos.
        position: [Q] in `unit`s; inf for photos without a pose.
        rotation_deg: [Q]; inf likewise.
        scale: 'metric' or 'relative'.
        unit: what positions were divided by, in units of the reference.
    """

    names: tuple[str, ...]
    position: np.ndarray
    rotation_deg: np.ndarray
    scale: Scale
    unit: float

    @property
    def found(self) -> np.ndarray:
        """[Q] bool: which have a pose."""
        return np.isfinite(self.position)

    def within(self, position: float, rotation_deg: float = np.inf) -> float:
        """Share of all photos whose errors are at most these."""
        if not self.names:
            return 0.0
        return float(np.mean((self.position <= position) & (self.rotation_deg <= rotation_deg)))

    def medians(self) -> tuple[float, float]:
        """Median position and rotation error of the photos that have a pose; NaN where none has."""
        if not self.found.any():
            return float("nan"), float("nan")
        return float(np.median(self.position[self.found])), float(np.median(self.rotation_deg[self.found]))


def label(position: float, rotation_deg: float, scale: Scale) -> str:
    """For instance '0.25 m, 2 deg'."""
    return f"{position:g} {UNITS[scale]}, {rotation_deg:g} deg"


def rotation_error_deg(a: np.ndarray, b: np.ndarray) -> float:
    """Angle of the rotation between two rotation matrices [3, 3], exact near 0 and near 180 degrees alike."""
    r = a @ b.T
    sine = np.linalg.norm([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]]) / 2
    cosine = (np.trace(r) - 1) / 2
    return float(np.rad2deg(np.arctan2(sine, cosine)))


def spacing(poses: Sequence[Pose], where: str = "the reference") -> float:
    """u: the median distance from a camera to its nearest.

    Args:
        poses: of the cameras.
        where: they come from, for errors.

    Raises:
        ValueError: fewer than two cameras, or most at one place.
    """
    centers = np.array([pose.center for pose in poses]).reshape(-1, 3)
    if len(centers) < 2:
        raise ValueError(f"{where} has {counted(len(centers), 'camera')}, expected at least 2 to tell their spacing")
    from scipy.spatial import KDTree

    _, nearest = KDTree(centers).query(centers, k=2)  # the first is the camera itself, or one at its place
    found = float(np.median(np.linalg.norm(centers - centers[nearest[:, 1]], axis=1)))
    if not found > 0:
        raise ValueError(f"most cameras of {where} are at the same place, so their spacing is 0")
    return found


def pose_errors(
    found: Mapping[str, Pose], reference: Mapping[str, Pose], asked: Sequence[str], scale: Scale,
    where: str = "the reference",
) -> PoseErrors:  # fmt: skip
    """Errors of the photos that were asked for.

    Args:
        found: photo -> pose; photos that are not asked for are ignored.
        reference: photo -> true pose, of all photos (they give the unit of relative errors).
        asked: the photos.
        scale: whether positions are in metres, or to be divided by the reference's `spacing`.
        where: the reference comes from, for errors.

    Raises:
        ValueError: the reference lacks photos, or its spacing cannot be told.
    """
    missing = [name for name in asked if name not in reference]
    if missing:
        raise ValueError(
            f"{where} lacks {len(missing)} of {len(asked)} photos, first {missing[:5]}; "
            f"it has {len(reference)}, first {sorted(reference)[:5]}"
        )
    unit = 1.0 if scale == "metric" else spacing(list(reference.values()), where)
    position, rotation = np.full(len(asked), np.inf), np.full(len(asked), np.inf)
    for i, name in enumerate(asked):
        if name in found:
            position[i] = np.linalg.norm(found[name].center - reference[name].center) / unit
            rotation[i] = rotation_error_deg(found[name].rotation, reference[name].rotation)
    return PoseErrors(tuple(asked), position, rotation, scale, unit)
