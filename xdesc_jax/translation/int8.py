"""Kernels as int8 with a scale for each output, symmetric about zero.

In: a float32 kernel. Out: int8 values and scales that stand for the nearest kernel; and back. Scales have 16
significant bits, so each product is exact in float32: the weights that a file stands for are the same however often it
is read and written, and with them the name of the joint space. Imports numpy alone.
"""

from __future__ import annotations

import numpy as np

LARGEST = 127
_SCALE_BITS = 16
_SMALLEST = 1e-30  # columns below are zeros: their scales would be subnormal, which have few digits


def to_int8(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest q * scale, where the largest weight of each output becomes 127 or -127.

    Args:
        kernel: [in, out] float32.

    Returns:
        q int8 [in, out] and scale float32 [out]; `from_int8` of them gives them again.
    """
    largest = np.abs(kernel).max(axis=0).astype(np.float64)
    mantissa, exponent = np.frexp(largest / LARGEST)
    # Rounded up, so that nothing exceeds 127.
    scale = np.ldexp(np.ceil(np.ldexp(mantissa, _SCALE_BITS)), exponent - _SCALE_BITS)
    scale = np.where(largest > _SMALLEST, scale, 1.0)
    return np.rint(kernel / scale).astype(np.int8), scale.astype(np.float32)


def from_int8(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The kernel that these stand for, float32 [in, out]."""
    return q.astype(np.float32) * scale
