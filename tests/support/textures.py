"""Photos made of numbers, and what is extracted from them, for tests."""

import unicodedata
from pathlib import Path

import cv2
import numpy as np

from xdesc_jax.features.store import FeatureStore, ImageFeatures

# Two names differ by case alone, one holds blanks and one letters beyond ASCII.
NAMES = ["A.png", "a.png", "sub/B c.JPG", unicodedata.normalize("NFD", "sub/\u00e9 \u65e5.png")]
SETTINGS = {"descriptors": ("opencv-sift",), "keypoints": "opencv"}


def texture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth random gray uint8 [height, width] with detail at several scales, full contrast."""
    rng = np.random.default_rng(seed)
    image = np.zeros((height, width), np.float32)
    for sigma in (1.5, 4, 10):
        noise = cv2.GaussianBlur(rng.standard_normal((height, width)).astype(np.float32), (0, 0), sigma)
        image += noise / noise.std()
    image = (image - image.min()) / (image.max() - image.min())
    return np.rint(image * 255).astype(np.uint8)


def blob(height: int, width: int, x: float, y: float, sigma: float, amplitude: float = 200) -> np.ndarray:
    """A Gaussian spot on black, uint8; (x, y) from the centre of the first pixel."""
    v, u = np.mgrid[:height, :width]
    return np.rint(amplitude * np.exp(-((u - x) ** 2 + (v - y) ** 2) / (2 * sigma**2))).astype(np.uint8)


def read(out: Path, name: str) -> dict[str, ImageFeatures]:
    with FeatureStore(out / f"{name}.h5") as store:
        return dict(store)


def assert_same(a: ImageFeatures, b: ImageFeatures) -> None:
    for field in ("keypoints", "descriptors", "valid", "scales", "oris", "affine", "image_size"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field), err_msg=field)
