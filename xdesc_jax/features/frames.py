"""Frames of keypoints: the one module that knows how files and libraries write them down.

In: what a feature file, a COLMAP database or OpenCV says of a keypoint. Out: float32 [N, 2]: sigma in px, and the
orientation in radians from x towards y (clockwise as one sees it, y points down), both in the pixels of the photo as
they lie in its file: EXIF orientation is never applied, by COLMAP neither. None where nothing is known of them.

    feature files       `scales` sigma, `oris` radians; or `affine` [N, 2, 2], of which COLMAP's reading is taken
    hloc's of SIFT      `scales` sigma, `oris` degrees in the same sense
    COLMAP databases    4 columns: x, y, sigma, radians; 6: x, y and the shape a11 a12 a21 a22; 2: none
    OpenCV              `size`, the diameter of sigma's circle, of ORB's own keypoints 18 sigma (`ORB_SIGMAS`), and
                        `angle` in degrees in the same sense
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from xdesc_jax.features.keypoints import Keypoints, from_colmap, read_shapes
from xdesc_jax.networks.frames import MOST_TURN

# How wide ORB's patch is. AP on the Oxford sequences with SIFT keypoints: .43 at 12 or 13.5 sigma, .45 at 18.
ORB_SIGMAS = 18.0


class Shaped(Protocol):
    """What has frames; `store.ImageFeatures` does."""

    @property
    def scales(self) -> np.ndarray | None: ...
    @property
    def oris(self) -> np.ndarray | None: ...
    @property
    def affine(self) -> np.ndarray | None: ...


def of_features(features: Shaped) -> np.ndarray | None:
    """Frames of the keypoints of a photo; None where they lack scales or orientations."""
    return of_fields(features.scales, features.oris, features.affine)


def of_fields(
    scales: np.ndarray | None = None, oris: np.ndarray | None = None, affine: np.ndarray | None = None
) -> np.ndarray | None:
    """Frames of what a feature file may have of keypoints (`FeatureStore.frames`); None where that is too little."""
    if scales is not None and oris is not None:
        return np.stack([scales, oris], axis=1).astype(np.float32)
    return None if affine is None else np.stack(read_shapes(affine), axis=1).astype(np.float32)


def of_others(fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a feature file that is not ours has of a photo's keypoints, as ours have it: `oris` in radians.

    hloc writes them in degrees. No radian is beyond a full turn, while of degrees nearly all are.
    """
    found = dict(fields)
    if "oris" in found and (np.abs(found["oris"]) > MOST_TURN).any():
        found["oris"] = np.deg2rad(found["oris"], dtype=np.float32)
    return found


def of_usable(frames: np.ndarray | None, usable: np.ndarray) -> np.ndarray | None:
    """Frames of keypoints of which those that are not `usable` [N] may say anything: they become 1 px and 1 radian."""
    return None if frames is None else np.where(usable[:, None], frames, np.float32(1)).astype(np.float32)


def has_frames(columns: np.ndarray, keypoints: Keypoints) -> bool:
    """Whether COLMAP's keypoints [N, 2 | 4 | 6], and what `from_colmap` reads in them, say more than where they are.

    COLMAP writes features that have none, as ALIKED's, with sigma 1 and orientation 0 throughout.
    """
    if columns.shape[1] == 2:
        return False
    plain = (keypoints.scales == 1) & (keypoints.oris == 0) if keypoints.affine is None else np.zeros(1, bool)
    return not (len(plain) and plain.all())


def of_colmap(columns: np.ndarray) -> np.ndarray | None:
    """Frames of COLMAP's keypoints, float32 [N, 2 | 4 | 6]; None where they have none."""
    if columns.shape[1] == 2:
        return None
    keypoints = from_colmap(columns)
    return of_features(keypoints) if has_frames(columns, keypoints) else None


def of_opencv(sizes: np.ndarray, angles_deg: np.ndarray, sigmas: float = 2.0) -> np.ndarray:
    """Frames of OpenCV's keypoints, float32 [N, 2].

    Args:
        sizes: `size` of each, [N] px.
        angles_deg: `angle` of each, [N]; -1 says that there is none.
        sigmas: how many sigmas a size is: 2 where a SIFT found the keypoints, `ORB_SIGMAS` where `cv2.ORB` did, which
            gives its patch for a size.
    """
    return np.stack([np.asarray(sizes) / sigmas, np.deg2rad(angles_deg)], axis=1).astype(np.float32)
