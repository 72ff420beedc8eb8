"""Photos made of numbers, for tests."""

import cv2
import numpy as np


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
