"""OpenCV's descriptors at given keypoints.

In: a gray photo and keypoints of any detector. Out: descriptors as they are stored, rows in the order of the
keypoints, and which of them are valid. Rows of keypoints whose centre lies outside the photo or whose sigma
exceeds its longer side are zero, and rows that are zero are not valid.

| name | width | kind | region | how |
|---|---|---|---|---|
| `orb` | 256 | bits | 18 sigma | at the level of ORB's pyramid that shows 31 px there |
| `brisk` | 512 | bits | 18 sigma | in a patch; turns it by an orientation of its own |
| `freak` | 512 | bits | 18 sigma | in a patch |
| `latch` | 256 | bits | 18 sigma | in a patch |
| `boostdesc-binboost-64`, `-128`, `-256` | 64, 128, 256 | bits | 13.5 sigma | in the photo, scale factor 6.75 |
| `beblid-256`, `beblid-512` | 256, 512 | bits | 13.5 sigma | in the photo, scale factor 6.75 |
| `teblid-256`, `teblid-512` | 256, 512 | bits | 13.5 sigma | in the photo, scale factor 6.75 |
| `boostdesc-lbgm` | 64 | real, of any length | 13.5 sigma | in the photo, scale factor 6.75 |
| `vgg` | 120 | real, of any length | 13.5 sigma | in the photo, scale factor 6.75 |
| `opencv-sift` | 128 | real, 0 to 255 | OpenCV's own | in the photo |
| `daisy` | 200 | real, unit length, not negative | 12 sigma | in a patch |

6.75 is OpenCV's advice for SIFT keypoints. BRISK, FREAK, LATCH and DAISY have patterns of fixed or least size
in px, wider than most keypoints of SIFT; they see the keypoint's region as a turned and scaled patch (as by
`patches.extract_patches`), and so follow any scale and drop no keypoint at the photo's border.
Bytes are OpenCV's own; bit k of a descriptor is bit k % 8, from the lowest, of byte k // 8.
OpenCV's SIFT reads octave and layer of its pyramid from each keypoint; they are derived from sigma here, so that
keypoints of any origin can be described, and its own ones get what `detectAndCompute` gives.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from xdesc_jax.features.frames import ORB_SIGMAS
from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.patches import extract_patches

Described = tuple[np.ndarray, np.ndarray]

_ORB_PATCH_PX = 31
_ORB_SCALE = 1.2  # between levels of its pyramid; both are OpenCV's defaults
_ORB_FINEST = -4  # the photo enlarged 2.07 times; beyond, pixels show nothing new
_SIFT_FACTOR = 6.75  # region over keypoint size
_SIFT_SIGMA, _SIFT_LAYERS = 1.6, 3  # of the first layer, and an octave's; both are OpenCV's defaults
_FIRST_OCTAVE = -1  # OpenCV's SIFT doubles the photo
_PATCHES_AT_ONCE = 1024


class _Contrib:
    """The module of OpenCV's contributed descriptors; a build without it still has ORB."""

    def __getattr__(self, name: str) -> Any:
        if not hasattr(cv2, "xfeatures2d"):
            raise ValueError(
                f"OpenCV {cv2.__version__} is installed without {name}; it needs opencv-contrib-python-headless"
            )
        return getattr(cv2.xfeatures2d, name)


_cv = _Contrib()
# Python has no names for the variants of BoostDesc and VGG.
_LBGM, _BINBOOST_64, _BINBOOST_128, _BINBOOST_256, _VGG_120 = 200, 300, 301, 302, 100
_MAKERS: dict[str, Callable[[], cv2.Feature2D]] = {
    "beblid-256": lambda: _cv.BEBLID.create(_SIFT_FACTOR, _cv.BEBLID_SIZE_256_BITS),
    "beblid-512": lambda: _cv.BEBLID.create(_SIFT_FACTOR, _cv.BEBLID_SIZE_512_BITS),
    "boostdesc-binboost-64": lambda: _cv.BoostDesc.create(_BINBOOST_64, True, _SIFT_FACTOR),
    "boostdesc-binboost-128": lambda: _cv.BoostDesc.create(_BINBOOST_128, True, _SIFT_FACTOR),
    "boostdesc-binboost-256": lambda: _cv.BoostDesc.create(_BINBOOST_256, True, _SIFT_FACTOR),
    "boostdesc-lbgm": lambda: _cv.BoostDesc.create(_LBGM, True, _SIFT_FACTOR),
    "brisk": lambda: (cv2 if hasattr(cv2, "BRISK") else _cv).BRISK.create(),  # OpenCV 5 has moved it
    "daisy": lambda: _cv.DAISY.create(norm=_cv.DAISY_NRM_FULL),
    "freak": lambda: _cv.FREAK.create(orientationNormalized=False),  # the patch is turned already
    "latch": lambda: _cv.LATCH.create(32),
    "teblid-256": lambda: _cv.TEBLID.create(_SIFT_FACTOR, _cv.TEBLID_SIZE_256_BITS),
    "teblid-512": lambda: _cv.TEBLID.create(_SIFT_FACTOR, _cv.TEBLID_SIZE_512_BITS),
    "vgg": lambda: _cv.VGG.create(_VGG_120, scale_factor=_SIFT_FACTOR),
}


@dataclasses.dataclass(frozen=True)
class Pattern:
    """How a descriptor of fixed size in px is laid over a patch.

    Attributes:
        size_px: width of what it reads.
        sigmas: how many sigmas of the keypoint that shows.
        patch_px: width of the patch, with room for OpenCV's smoothing and its test for borders.
        keypoint_px: keypoint size that gives the pattern this width.
    """

    size_px: float
    sigmas: float
    patch_px: int
    keypoint_px: float

    @property
    def mag(self) -> float:
        """Width of the patch in sigma."""
        return self.sigmas * self.patch_px / self.size_px


# AP at 12 and 18 sigma on four pairs of the Oxford sequences with SIFT keypoints: BRISK .39 and .46, FREAK .37
# and .48, LATCH .49 and .51. In the photo itself, with the keypoint's size: .35, .34 and .43.
PATTERNS = {
    "brisk": Pattern(24, 18, 48, 7.2),
    "daisy": Pattern(31, 12, 64, 7),
    "freak": Pattern(46, 18, 64, 7),
    "latch": Pattern(55, 18, 64, 7),
}


@functools.cache
def _extractor(name: str) -> cv2.Feature2D:
    """Once a process: BRISK takes long to lay out its pattern."""
    return _MAKERS[name]()


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
    level = np.log(np.asarray(scales, np.float64) * (ORB_SIGMAS / _ORB_PATCH_PX)) / np.log(_ORB_SCALE)
    return np.clip(np.rint(level), _ORB_FINEST, coarsest).astype(int)


def _in_photo(name: str, gray: np.ndarray, keypoints: Keypoints) -> Described:
    """[N, stored width], and valid bool [N], of a descriptor that scales and turns its pattern itself."""
    return _compute(_extractor(name), gray, keypoints)


def _in_patches(name: str, gray: np.ndarray, keypoints: Keypoints) -> Described:
    """[N, stored width], and valid bool [N], of a descriptor that needs a turned and scaled patch."""
    extractor, pattern = _extractor(name), PATTERNS[name]
    rows = _zeros(extractor, len(keypoints))
    asked = np.flatnonzero(_describable(keypoints, gray.shape))
    centre = pattern.patch_px // 2
    for start in range(0, len(asked), _PATCHES_AT_ONCE):
        some = asked[start : start + _PATCHES_AT_ONCE]
        patches, _ = extract_patches(gray, keypoints.take(some), pattern.mag, pattern.patch_px)
        for row, patch in zip(some, patches, strict=True):
            rows[row] = extractor.compute(patch, [cv2.KeyPoint(centre, centre, pattern.keypoint_px, 0)])[1]
    return rows, np.asarray(rows.any(axis=1))


describe_beblid_256 = functools.partial(_in_photo, "beblid-256")
describe_beblid_512 = functools.partial(_in_photo, "beblid-512")
describe_boostdesc_binboost_64 = functools.partial(_in_photo, "boostdesc-binboost-64")
describe_boostdesc_binboost_128 = functools.partial(_in_photo, "boostdesc-binboost-128")
describe_boostdesc_binboost_256 = functools.partial(_in_photo, "boostdesc-binboost-256")
describe_boostdesc_lbgm = functools.partial(_in_photo, "boostdesc-lbgm")
describe_brisk = functools.partial(_in_patches, "brisk")
describe_daisy = functools.partial(_in_patches, "daisy")
describe_freak = functools.partial(_in_patches, "freak")
describe_latch = functools.partial(_in_patches, "latch")
describe_teblid_256 = functools.partial(_in_photo, "teblid-256")
describe_teblid_512 = functools.partial(_in_photo, "teblid-512")
describe_vgg = functools.partial(_in_photo, "vgg")


def _compute(
    extractor: cv2.Feature2D, gray: np.ndarray, keypoints: Keypoints, octaves: np.ndarray | int = 0
) -> Described:
    """Rows in the order of the keypoints, whatever OpenCV drops or sorts."""
    n = len(keypoints)
    rows = _zeros(extractor, n)
    asked = np.flatnonzero(_describable(keypoints, gray.shape))
    found = keypoints.take(asked)
    points = opencv_keypoints(found, 2 * found.scales, np.broadcast_to(octaves, n)[asked])
    if points:
        described, values = extractor.compute(gray, points)
        if described:
            rows[asked[[point.class_id for point in described]]] = values
    return rows, np.asarray(rows.any(axis=1))


def _zeros(extractor: cv2.Feature2D, n: int) -> np.ndarray:
    dtype = np.uint8 if extractor.descriptorType() == cv2.CV_8U else np.float32
    return np.zeros((n, extractor.descriptorSize()), dtype)


def _describable(keypoints: Keypoints, shape: tuple[int, ...]) -> np.ndarray:
    """Where OpenCV neither reads memory beyond the photo nor computes with numbers beyond int."""
    height, width = shape
    inside = (keypoints.xy >= 0).all(axis=1) & (keypoints.xy <= (width - 1, height - 1)).all(axis=1)
    return np.asarray(inside & (keypoints.scales <= max(shape)))


# --- SIFT ------------------------------------------------------------------------------------------------


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
    points.append(cv2.KeyPoint(0, 0, 2 * _SIFT_SIGMA, 0, 0, (_FIRST_OCTAVE & 255) | 1 << 8, n))
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
    index = np.rint(np.log2(np.asarray(scales, np.float64) / _SIFT_SIGMA) * _SIFT_LAYERS).astype(int)
    octave = (index - 1) // _SIFT_LAYERS
    coarsest = max(_FIRST_OCTAVE, int(np.rint(np.log2(2 * min(shape[:2])) - 2)) - 2)
    octave = np.clip(octave, _FIRST_OCTAVE, coarsest)
    return octave, np.clip(index - octave * _SIFT_LAYERS, 1, _SIFT_LAYERS)
