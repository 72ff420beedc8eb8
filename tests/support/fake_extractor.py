"""An extractor without torch: what it gives follows from the pixels by arithmetic that a test can repeat."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from tests.support.network_calls import CALLS
from xdesc_jax.features.extractors.protocol import Detected

DIES, FAILS, LACKS, LONG = 1, 2, 3, 4  # values of a photo's first pixel that make it go wrong


class Fake:
    """Keypoints are the pixels of value 255, their scores the value to the right, their rows `rows_at`."""

    least_px = 16

    def __init__(self, name: str, weights: Path, device: str):
        self.factor = float(np.load(weights)["factor"])
        if self.factor <= 0:
            raise ValueError(f"{weights}: factor is {self.factor}, expected more than 0")

    def detect(self, photo: np.ndarray) -> Detected:
        y, x = np.nonzero(photo[:, :, 0] == 255)
        xy = np.stack([x, y], axis=1).astype(np.float32)
        scores = photo[y, np.minimum(x + 1, photo.shape[1] - 1), 0].astype(np.float32)
        return Detected(xy, scores, self._rows(photo, xy))

    def describe(self, photo: np.ndarray, xy: np.ndarray) -> np.ndarray:
        return self._rows(photo, xy)

    def _rows(self, photo: np.ndarray, xy: np.ndarray) -> np.ndarray:
        print("what a library prints is no reply")
        if CALLS in os.environ:
            with open(os.environ[CALLS], "a") as file:
                file.write(f"{photo.shape[1]} x {photo.shape[0]}\n")
        match int(photo[0, 0, 0]):
            case 1:
                os._exit(3)
            case 2:
                raise RuntimeError("not enough memory\nfor this photo")
            case 3:
                return rows_at(xy, self.factor)[1:]
            case 4:
                return 2 * rows_at(xy, self.factor)
        assert "pycolmap" not in sys.modules
        return rows_at(xy, self.factor)


class Looks(Fake):
    """Rows are of the gray values around a keypoint, so that those of one place in two photos are alike."""

    def _rows(self, photo: np.ndarray, xy: np.ndarray) -> np.ndarray:
        reach = np.arange(-9, 10, 6)
        at = np.rint(xy).astype(int)
        y, x = (np.clip(at[:, k, None] + reach, 0, photo.shape[1 - k] - 1) for k in (1, 0))
        around = photo[y[:, :, None], x[:, None, :], 0].reshape(len(xy), 16).astype(np.float32)
        around -= around.mean(axis=1, keepdims=True) - 1e-3
        return around / np.linalg.norm(around, axis=1, keepdims=True)


def rows_at(xy: np.ndarray, factor: float) -> np.ndarray:
    """Unit rows [N, 2] that tell x and y apart."""
    angle = factor * (xy[:, 0] + 0.1 * xy[:, 1])
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
