"""The one module that imports pycolmap.

In: arrays. Out: arrays. pycolmap exports zlib symbols of its own: imported before zlib or OpenCV, it
makes the process abort or hang on the first deflate (PNG, .npz, gzip), hence the order of imports here.
"""

from __future__ import annotations

import contextlib
import functools
import zlib  # noqa: F401

import numpy as np

with contextlib.suppress(ModuleNotFoundError):
    import cv2  # noqa: F401

import pycolmap

pycolmap.logging.minloglevel = pycolmap.logging.WARNING.value

# COLMAP's limit keeps the largest scales, so it is set out of reach and the caller chooses.
_NO_LIMIT = 1 << 30


@functools.cache
def _sift(first_octave: int) -> pycolmap.FeatureExtractor:
    options = pycolmap.FeatureExtractionOptions()
    options.use_gpu = False
    options.num_threads = 1
    options.sift.max_num_features = _NO_LIMIT
    options.sift.first_octave = first_octave
    return pycolmap.FeatureExtractor.create(options, pycolmap.Device.cpu)


def detect_sift(rgb: np.ndarray, first_octave: int = -1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """COLMAP's SIFT with its default settings, without a limit to the number of features.

    Args:
        rgb: uint8 [H, W, 3].
        first_octave: -1 doubles the photo first, 0 does not.

    Returns:
        Keypoints in COLMAP's form, float32 [N, 6] with corner origin; descriptors uint8 [N, 128]; and the
        Rec. 709 gray they come from, uint8 [H, W].
    """
    bitmap = pycolmap.Bitmap.from_array(np.ascontiguousarray(rgb)).clone_as_grey()
    keypoints, descriptors = _sift(first_octave).extract(bitmap)
    columns = np.array([(k.x, k.y, k.a11, k.a12, k.a21, k.a22) for k in keypoints], np.float32).reshape(-1, 6)
    gray = bitmap.to_array().reshape(rgb.shape[:2])
    return columns, np.asarray(descriptors.data, np.uint8).reshape(-1, 128), gray
