"""BRIEF, 512 bits: comparisons of pixel pairs.

In: patches. Out: bool bits. The pattern is the one of the paper's BRIEF for 32x32 patches.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

BITS = 512
SIZE = 32


@functools.cache
def pattern() -> np.ndarray:
    """The compared pixels, int32 [2, 512, 2]: first and second points as (row, column).

    Points are normal draws of deviation 32/5 px about pixel (15, 15), cut towards zero, of which those
    outside the patch are dropped. numpy promises the legacy generator's stream, so the pattern is fixed.
    """
    draws = np.random.RandomState(1).randn(BITS * 8) * (SIZE / 5.0)
    offsets = draws.astype(np.int32)
    low, high = -(SIZE // 2 - 1), SIZE // 2
    inside = offsets[(offsets >= low) & (offsets <= high)] - low
    return inside[: 4 * BITS].reshape(2, BITS, 2)


def describe(patches: jax.Array) -> jax.Array:
    """BRIEF bits.

    Args:
        patches: float32 [B, 32, 32]; any range, only the order of gray values counts.

    Returns:
        bool [B, 512]: the first pixel of a pair is darker than the second. Equal pixels give False, so a
        flat patch gives no bit at all.

    Source: Calonder et al., "BRIEF: Binary Robust Independent Elementary Features", ECCV 2010.
    """
    first, second = (rows * SIZE + columns for rows, columns in np.moveaxis(pattern(), -1, 1))
    pixels = jnp.reshape(patches, (-1, SIZE * SIZE))
    return pixels[:, first] < pixels[:, second]
