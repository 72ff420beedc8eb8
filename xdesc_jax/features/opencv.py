"""OpenCV's SIFT descriptor at given keypoints: the descriptor `opencv-sift`.

In: a gray photo and keypoints. Out: descriptors as OpenCV gives them, floats of 0..255. OpenCV reads octave
and layer of its pyramid from each keypoint; they are derived from sigma here, so that keypoints of any
origin can be described, and its own ones get what `detectAndCompute` gives.
"""

from __future__ import annotations

import cv2
import numpy as np

from xdesc_jax.features.keypoints import Keypoints

_SIGMA = 1.6  # of the first layer, OpenCV's default
_LAYERS = 3
_FIRST_OCTAVE = -1  # OpenCV doubles the photo


def describe_sift(gray: np.ndarray, keypoints: Keypoints) -> tuple[np.ndarray, np.ndarray]:
    """Describes keypoints with OpenCV's SIFT; affine shapes count by their mean scale and orientation.

    Args:
        gray: uint8 [H, W], ITU-R 601.
        keypoints: N keypoints.

    Returns:
        float32 [N, 128] of 0..255 (norm about 512), and valid bool [N]: False where the region is flat.
    """
    n = len(keypoints)
    if n == 0:
        return np.zeros((0, 128), np.float32), np.zeros(0, bool)
    octave, layer = octave_and_layer(keypoints.scales, gray.shape)
    packed = (octave & 255) | (layer << 8)
    points = opencv_keypoints(keypoints, 2 * keypoints.scales, packed)
    # Without a keypoint of the first octave OpenCV would not double the photo, which changes all others.
    points.append(cv2.KeyPoint(0, 0, 2 * _SIGMA, 0, 0, (_FIRST_OCTAVE & 255) | 1 << 8, n))
    described, descriptors = cv2.SIFT.create().compute(gray, points)
    result = np.zeros((n + 1, 128), np.float32)
    result[[k.class_id for k in described]] = descriptors
    rows = result[:n]
    return rows, np.asarray(rows.any(axis=1))


def opencv_keypoints(keypoints: Keypoints, sizes: np.ndarray, octaves: np.ndarray | int = 0) -> list[cv2.KeyPoint]:
    """Keypoints as OpenCV takes them, `class_id` their row.

    Args:
        keypoints: N keypoints.
        sizes: [N] px, OpenCV's diameters: 2 sigma where an extractor is told the same as by OpenCV's SIFT.
        octaves: [N] int, or one for all.
    """
    angles = np.rad2deg(keypoints.oris.astype(np.float64)) % 360
    codes = np.broadcast_to(octaves, len(keypoints))
    return [
        cv2.KeyPoint(float(x), float(y), float(size), float(angle), 0, int(code), row)
        for row, ((x, y), size, angle, code) in enumerate(zip(keypoints.xy, sizes, angles, codes, strict=True))
    ]


def octave_and_layer(scales: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """OpenCV's octave (from -1) and layer (1..3) of sigmas [N] in a photo of `shape` (H, W), int arrays [N].

    OpenCV's sigma is 1.6 * 2^(octave + (layer + offset) / 3) with |offset| <= 1/2. Scales beyond
    its pyramid get the nearest octave of it.
    """
    index = np.rint(np.log2(np.asarray(scales, np.float64) / _SIGMA) * _LAYERS).astype(int)
    octave = (index - 1) // _LAYERS
    coarsest = max(_FIRST_OCTAVE, int(np.rint(np.log2(2 * min(shape[:2])) - 2)) - 2)
    octave = np.clip(octave, _FIRST_OCTAVE, coarsest)
    return octave, np.clip(index - octave * _LAYERS, 1, _LAYERS)
