"""What the tests of the descriptors compare with: golden arrays, reference arrays, a numpy convolution.

`golden/patches.npz` holds 8 of the reference patches [8, 32, 32] (the last two flat and a step edge) and what
the reference implementations made of them: `sift`, `sift_kornia05` [8, 128]; `brief` [8, 64] packed bits.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "patches.npz"
SHARED = Path(os.environ.get("XDESC_SHARED", "../shared")) / "reference"
FIXTURES = SHARED / "fixtures.npz"
TFEAT = SHARED / "tfeat-liberty.npz"
needs_shared = pytest.mark.skipif(not FIXTURES.exists(), reason=f"no reference arrays at {SHARED}")


def golden(name: str) -> np.ndarray:
    with np.load(GOLDEN) as file:
        return file[name]


def fixture(name: str) -> np.ndarray:
    with np.load(FIXTURES) as file:
        return file[name]


def fixture_patches() -> np.ndarray:
    return fixture("patches")[:, 0]


def convolve(x: np.ndarray, kernel: np.ndarray, stride: int = 1, padding: int = 0) -> np.ndarray:
    """float64 convolution of [B, C, H, W] with [D, C, h, w], channels first as in PyTorch."""
    x = np.pad(np.asarray(x, np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    return np.moveaxis(np.tensordot(windows, np.asarray(kernel, np.float64), ((1, 4, 5), (1, 2, 3))), -1, 1)
