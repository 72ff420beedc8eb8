"""The strength of keypoints: the difference of Gaussians at their place and scale.

In: a gray photo and keypoints. Out: one signed response a keypoint, in gray levels. COLMAP's
keypoints come without a strength; this one ranks them.
"""

from __future__ import annotations

import cv2
import numpy as np

CAMERA_SIGMA = 0.5  # blur that photos are taken to have, as in COLMAP and OpenCV
LAYERS = 3  # per octave
_BASE = 1.6  # sigma at which an octave starts, in its own px
_ROW = 1024  # keypoints a row of the sampling map; cv2.remap takes up to 32767 rows and columns


def dog_response(gray: np.ndarray, positions: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """G(2^(1/3) sigma) - G(sigma) at each keypoint's centre, where G(s) is the photo at blur s.

    Differences are computed at three scales an octave, sampled bicubically in the photo and linearly over
    the logarithm of the scale.

    Args:
        gray: uint8 [H, W].
        positions: [N, 2] float32, x and y in px, origin at the centre of the first pixel.
        scales: [N] float32, sigma in px.

    Returns:
        float32 [N]; keypoints above the coarsest octave get its response.
    """
    n = len(positions)
    response = np.zeros(n, np.float32)
    if n == 0:
        return response
    octave = np.maximum(np.floor(np.log2(scales / _BASE)), 0).astype(int)
    blurred, sigma = gray.astype(np.float32), CAMERA_SIGMA
    for o in range(octave.max() + 1):
        last = min(blurred.shape) < 4 or o == octave.max()
        rows = np.flatnonzero(octave >= o if last else octave == o)
        # Octave 0 also holds what lies below it: the photo is not doubled.
        first = -2 * LAYERS if o == 0 else 0
        xy = positions[rows] / np.float32(2**o)
        layer = np.log2(scales[rows] / 2**o / _BASE) * LAYERS
        layer = np.clip(layer, first, LAYERS)
        for i in range(first, LAYERS + 2):
            finer = blurred
            blurred, sigma = _blur(blurred, sigma, _BASE * 2 ** (i / LAYERS))
            if i == LAYERS:
                next_octave = blurred
            if i > first:
                weight = np.maximum(0, 1 - np.abs(layer - (i - 1)))
                near = np.flatnonzero(weight)
                response[rows[near]] += weight[near] * _sample(blurred - finer, xy[near])
        if last:
            break
        blurred, sigma = np.ascontiguousarray(next_octave[::2, ::2]), _BASE
    return response


def _blur(image: np.ndarray, sigma: float, target: float) -> tuple[np.ndarray, float]:
    """The image brought from blur `sigma` to `target`; left as it is where it has more already."""
    if target <= sigma:
        return image, sigma
    return cv2.GaussianBlur(image, (0, 0), float(np.sqrt(target**2 - sigma**2))), target


def _sample(image: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Bicubic samples float32 [N] at positions [N, 2]."""
    if len(xy) == 0:
        return np.zeros(0, np.float32)
    padded = np.zeros((2, -(-len(xy) // _ROW) * _ROW), np.float32)
    padded[:, : len(xy)] = xy.T
    x, y = padded.reshape(2, -1, _ROW)
    samples = cv2.remap(image, x, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return samples.ravel()[: len(xy)]
