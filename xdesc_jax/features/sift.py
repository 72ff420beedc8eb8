"""SIFT on 32x32 patches: `sift` with cells centred in the patch, `sift-kornia05` with the paper's grid.

In: patches. Out: unit rows of 128 values; value angle * 16 + y * 4 + x is the gradient energy in direction
angle * 45 degrees (from x towards y, which points down) in the spatial cell of row y and column x.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

SIZE = 32
ANGLES = 8
CELLS = 4
CELL_STEP_PX = 8
CELL_REACH_PX = 12  # a cell's triangular weight spans 12 px, so neighbours overlap
CLIP = 0.2
HIGHEST = jax.lax.Precision.HIGHEST


def describe(patches: jax.Array) -> jax.Array:
    """SIFT with cell centres at 3.5, 11.5, 19.5 and 27.5 px; a flat patch gives zeros.

    Args:
        patches: float32 [B, 32, 32] in 0..1.

    Returns:
        float32 [B, 128], unit rows, or zero rows for flat patches.

    Source: Lowe, "Distinctive Image Features from Scale-Invariant Keypoints", IJCV 2004, section 6.
    """
    return _describe(patches, padding=2, flat_is_zero=True)


def describe_kornia05(patches: jax.Array) -> jax.Array:
    """SIFT as kornia 0.5 computed it in 2021: cell centres at 2.5, 10.5, 18.5 and 26.5 px.

    The paper's SIFT, kept to translate from and to models and maps of that time. A flat patch gives one
    fixed unit row: its rounding constant of 1e-10 is normalised like a gradient along x.

    Args:
        patches: float32 [B, 32, 32] in 0..1.

    Returns:
        float32 [B, 128], unit rows.
    """
    return _describe(patches, padding=3, flat_is_zero=False)


def _describe(patches: jax.Array, padding: int, flat_is_zero: bool) -> jax.Array:
    dx, dy = _gradients(patches)
    magnitude = jnp.sqrt(dx * dx + dy * dy + 1e-10)
    if flat_is_zero:
        magnitude = jnp.where((dx == 0) & (dy == 0), 0, magnitude)
    angle = jnp.arctan2(dy, dx + 1e-10) + 2 * np.pi
    votes = _angular_votes(angle, magnitude * _window()[None])
    pool = _pooling(padding)
    cells = jnp.einsum("iy,bayx,jx->baij", pool, votes, pool, precision=HIGHEST)
    rows = _unit(cells.reshape(-1, ANGLES * CELLS * CELLS))
    return _unit(jnp.clip(rows, 0, CLIP))


def _gradients(patches: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Central differences [B, 32, 32] along x and along y (down); the border is replicated."""
    p = jnp.pad(patches, ((0, 0), (1, 1), (1, 1)), mode="edge")
    return (p[:, 1:-1, 2:] - p[:, 1:-1, :-2]) / 2, (p[:, 2:, 1:-1] - p[:, :-2, 1:-1]) / 2


def _angular_votes(angle: jax.Array, magnitude: jax.Array) -> jax.Array:
    """Splits each pixel's magnitude linearly between the two nearest of 8 directions, [B, 8, 32, 32]."""
    position = ANGLES * angle / (2 * np.pi)
    lower = jnp.floor(position)
    share = position - lower
    first = (lower.astype(jnp.int32) % ANGLES)[:, None]
    bins = jnp.arange(ANGLES)[None, :, None, None]
    to_first = jnp.where(bins == first, ((1 - share) * magnitude)[:, None], 0)
    to_second = jnp.where(bins == (first + 1) % ANGLES, (share * magnitude)[:, None], 0)
    return to_first + to_second


@functools.cache
def _window() -> np.ndarray:
    """Gaussian over the patch, [32, 32] with sum 1, deviation 32 / sqrt(2) px about 15.5."""
    offset = np.arange(SIZE) - (SIZE - 1) / 2
    profile = np.exp(-(offset**2) / SIZE**2)
    profile /= profile.sum()
    return np.outer(profile, profile).astype(np.float32)


@functools.cache
def _pooling(padding: int) -> np.ndarray:
    """Weight of each pixel row (or column) in each of the 4 cells along it, [4, 32].

    A cell's 2-D weight is the product of two triangles, so pooling is a matrix product from either side;
    `padding` is how far the first cell's triangle starts outside the patch, in px.
    """
    half = CELL_REACH_PX / 2
    start = CELL_STEP_PX * np.arange(CELLS)[:, None] - padding
    position = np.arange(SIZE)[None] - start + 0.5  # within the triangle, 0..12
    return np.maximum(1 - np.abs(position - half) / half, 0).astype(np.float32)


def _unit(rows: jax.Array) -> jax.Array:
    norms = jnp.sqrt(jnp.sum(rows * rows, axis=-1, keepdims=True))
    return rows / jnp.maximum(norms, 1e-12)
