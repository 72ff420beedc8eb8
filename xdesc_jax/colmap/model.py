"""A sparse model as arrays: what `bindings.api.read_model` gives and the users of models take.

In: numbers. Out: `Camera`, `Pose` and `Model`; image coordinates have COLMAP's origin, the corner of the
first pixel. Imports numpy alone.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Camera:
    """Intrinsics in COLMAP's terms.

    Attributes:
        model: COLMAP's name of the model, as 'SIMPLE_RADIAL'.
        width, height: in px.
        params: in the model's order, in px where they are lengths.
        known: whether the focal length was measured or given, and is not the guess 1.2 max(width, height); so are
            cameras that have none, as spherical ones.
    """

    model: str
    width: int
    height: int
    params: tuple[float, ...]
    known: bool = True


@dataclasses.dataclass(frozen=True)
class Pose:
    """Where a camera is: x_camera = rotation @ x_world + translation.

    Attributes:
        rotation: [3, 3] float64.
        translation: [3] float64, in units of the world.
    """

    rotation: np.ndarray
    translation: np.ndarray

    @property
    def center(self) -> np.ndarray:
        """Position of the camera in the world, [3]."""
        return -self.rotation.T @ self.translation

    def moved(self, offset: np.ndarray) -> Pose:
        """The same camera in a world whose points x have become x + offset, [3]."""
        return Pose(self.rotation, self.translation - self.rotation @ offset)

    @property
    def quaternion(self) -> np.ndarray:
        """The rotation as a unit quaternion w, x, y, z with w >= 0, [4]."""
        r = self.rotation
        # Of the four equivalent forms, the one whose divisor is largest (Shepperd 1978).
        products = np.array(
            [
                [1 + r[0, 0] + r[1, 1] + r[2, 2], r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]],
                [r[2, 1] - r[1, 2], 1 + r[0, 0] - r[1, 1] - r[2, 2], r[1, 0] + r[0, 1], r[0, 2] + r[2, 0]],
                [r[0, 2] - r[2, 0], r[1, 0] + r[0, 1], 1 - r[0, 0] + r[1, 1] - r[2, 2], r[2, 1] + r[1, 2]],
                [r[1, 0] - r[0, 1], r[0, 2] + r[2, 0], r[2, 1] + r[1, 2], 1 - r[0, 0] - r[1, 1] + r[2, 2]],
            ]
        )
        row = products[np.argmax(np.diagonal(products))]
        q = row / np.linalg.norm(row)
        return -q if q[0] < 0 else q

    @classmethod
    def from_quaternion(cls, wxyz: np.ndarray, translation: np.ndarray) -> Pose:
        """A pose of a quaternion w, x, y, z, of any length above 0, and a translation."""
        w, x, y, z = np.asarray(wxyz, np.float64) / np.linalg.norm(wxyz)
        rotation = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
        return cls(rotation, np.asarray(translation, np.float64))


@dataclasses.dataclass(frozen=True)
class Model:
    """A sparse model of V registered photos and P points with M observations, as arrays.

    Attributes:
        names: the photos, sorted.
        rotations: [V, 3, 3] and
        translations: [V, 3] take a world point into a photo's camera: R X + t.
        cameras: V intrinsics.
        focals_px: [V].
        points: [P, 3], world coordinates, in the order of
        point_ids: [P] int64, COLMAP's own, ascending; None in models that were not read from files, as `xy`.
        point: [M] int, which point an observation is of; ascending.
        view: [M] int, index into `names`.
        keypoint: [M] int, row of the keypoint in the database.
        residual_px: [M], distance of the projected point from the keypoint.
        xy: [M, 2], position of the keypoint in px; None in models that were not read from files.
        keypoint_counts: [V] int, keypoints of each photo, observed or not; None where `xy` is, and in models of other
            programs, which do not say.
    """

    names: tuple[str, ...]
    rotations: np.ndarray
    translations: np.ndarray
    cameras: tuple[Camera, ...]
    focals_px: np.ndarray
    points: np.ndarray
    point: np.ndarray
    view: np.ndarray
    keypoint: np.ndarray
    residual_px: np.ndarray
    xy: np.ndarray | None = None
    keypoint_counts: np.ndarray | None = None
    point_ids: np.ndarray | None = None

    @property
    def poses(self) -> dict[str, Pose]:
        """Photo name -> pose."""
        return {n: Pose(r, t) for n, r, t in zip(self.names, self.rotations, self.translations, strict=True)}
