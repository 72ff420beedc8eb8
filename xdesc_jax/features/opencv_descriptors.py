"""OpenCV's binary descriptors at given keypoints.

In: a gray photo and keypoints of any detector. Out: descriptors as they are stored, rows in the order of the
keypoints, and which of them are valid. Rows of keypoints whose centre lies outside the photo or whose sigma
exceeds its longer side are zero, and rows that are zero are not valid.

| name | width | kind | region | OpenCV |
|---|---|---|---|---|
| `orb` | 256 | bits | 18 sigma | `ORB`, at the level of its pyramid that shows 31 px there |
| `teblid-512`, `teblid-256` | 512, 256 | bits | 13.5 sigma | `xfeatures2d.TEBLID`, scale factor 6.75 (its for SIFT) |
| `beblid-512`, `beblid-256` | 512, 256 | bits | 13.5 sigma | `xfeatures2d.BEBLID`, scale factor 6.75 (its for SIFT) |

Bytes are OpenCV's own; bit k of a descriptor is bit k % 8, from the lowest, of byte k // 8.
"""

from __future__ import annotations

import cv2
import numpy as np

from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.opencv import opencv_keypoints

Described = tuple[np.ndarray, np.ndarray]

_ORB_PATCH_PX = 31
_ORB_SCALE = 1.2  # between levels of its pyramid; both are OpenCV's defaults
# Measured on the Oxford sequences with SIFT keypoints: AP .42 at 12 or 13.5 sigma, .43 from 18 on, and .37 on
# the photo itself, without regard to scale.
_ORB_SIGMAS = 18.0
_ORB_FINEST = -4  # the photo enlarged 2.07 times; beyond, pixels show nothing new
_SIFT_FACTOR = 6.75  # region over keypoint size, OpenCV's advice for SIFT keypoints


def describe_orb(gray: np.ndarray, keypoints: Keypoints) -> Described:
    """ORB; keypoints of sigma 31/18 * 1.2^k px get what OpenCV gives those of its octave k.

    OpenCV reads the level of its pyramid from a keypoint's octave, and of octaves as SIFT packs them it
    makes pyramids of many gigabytes. The level is derived from sigma here.

    Args:
        gray: uint8 [H, W], ITU-R 601.
        keypoints: N keypoints; affine shapes count by their mean scale and orientation.

    Returns:
        uint8 [N, 32], and valid bool [N].
    """
    level = orb_level(keypoints.scales, gray.shape)
    finest = min(0, int(level.min(initial=0)))
    # Rows do not depend on the levels that are left out: each is made from the photo or the one before.
    orb = cv2.ORB.create(scaleFactor=_ORB_SCALE, firstLevel=-finest, edgeThreshold=0, patchSize=_ORB_PATCH_PX)
    return _compute(orb, gray, keypoints, level - finest)


def orb_level(scales: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Level of ORB's pyramid for sigmas [N] in a photo of `shape` (H, W), int [N]; 0 is the photo itself.

    The coarsest one shows the photo's shorter side as one patch.
    """
    coarsest = max(0, int(np.log(min(shape[:2]) / _ORB_PATCH_PX) / np.log(_ORB_SCALE)))
    level = np.log(np.asarray(scales, np.float64) * (_ORB_SIGMAS / _ORB_PATCH_PX)) / np.log(_ORB_SCALE)
    return np.clip(np.rint(level), _ORB_FINEST, coarsest).astype(int)


def describe_teblid_512(gray: np.ndarray, keypoints: Keypoints) -> Described:
    """TEBLID of 512 bits: uint8 [N, 64], and valid bool [N]."""
    teblid = cv2.xfeatures2d.TEBLID.create(_SIFT_FACTOR, cv2.xfeatures2d.TEBLID_SIZE_512_BITS)
    return _compute(teblid, gray, keypoints)


def describe_teblid_256(gray: np.ndarray, keypoints: Keypoints) -> Described:
    """TEBLID of 256 bits: uint8 [N, 32], and valid bool [N]."""
    teblid = cv2.xfeatures2d.TEBLID.create(_SIFT_FACTOR, cv2.xfeatures2d.TEBLID_SIZE_256_BITS)
    return _compute(teblid, gray, keypoints)


def describe_beblid_512(gray: np.ndarray, keypoints: Keypoints) -> Described:
    """BEBLID of 512 bits: uint8 [N, 64], and valid bool [N]."""
    beblid = cv2.xfeatures2d.BEBLID.create(_SIFT_FACTOR, cv2.xfeatures2d.BEBLID_SIZE_512_BITS)
    return _compute(beblid, gray, keypoints)


def describe_beblid_256(gray: np.ndarray, keypoints: Keypoints) -> Described:
    """BEBLID of 256 bits: uint8 [N, 32], and valid bool [N]."""
    beblid = cv2.xfeatures2d.BEBLID.create(_SIFT_FACTOR, cv2.xfeatures2d.BEBLID_SIZE_256_BITS)
    return _compute(beblid, gray, keypoints)


def _compute(
    extractor: cv2.Feature2D, gray: np.ndarray, keypoints: Keypoints, octaves: np.ndarray | int = 0
) -> Described:
    """Rows in the order of the keypoints, whatever OpenCV drops or sorts."""
    n = len(keypoints)
    dtype = np.uint8 if extractor.descriptorType() == cv2.CV_8U else np.float32
    rows = np.zeros((n, extractor.descriptorSize()), dtype)
    asked = np.flatnonzero(_describable(keypoints, gray.shape))
    found = keypoints.take(asked)
    points = opencv_keypoints(found, 2 * found.scales, np.broadcast_to(octaves, n)[asked])
    if points:
        described, values = extractor.compute(gray, points)
        if described:
            rows[asked[[point.class_id for point in described]]] = values
    return rows, np.asarray(rows.any(axis=1))


def _describable(keypoints: Keypoints, shape: tuple[int, ...]) -> np.ndarray:
    """Where OpenCV neither reads memory beyond the photo nor computes with numbers beyond int."""
    height, width = shape
    inside = (keypoints.xy >= 0).all(axis=1) & (keypoints.xy <= (width - 1, height - 1)).all(axis=1)
    return np.asarray(inside & (keypoints.scales <= max(shape)))
