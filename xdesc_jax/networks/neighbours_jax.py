"""Neighbours of keypoints on an accelerator: `neighbours.find` with every keypoint against every other.

In and out: as `neighbours.Search`. Distances and the smallest of them are computed on the device, block by block, so
that memory grows with the photo's keypoints, not with their square. What is found is what the k-d tree finds, but that
of keypoints that are equally near the first is taken, and that distances are float32.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax.networks.neighbours import NONE, Search, by_tree

BLOCK = 2048  # keypoints that ask at once: 16 MB of distances for as many others
SMALLEST = 256  # photos are padded to powers of two from here on, so that few shapes are compiled


def fastest() -> Search:
    """What finds neighbours fastest on the devices that jax computes on: CPUs have the k-d tree."""
    return by_tree if jax.default_backend() == "cpu" else blocked


def blocked(
    positions: np.ndarray, octaves: np.ndarray | None, nearest: int, larger: int, among: np.ndarray | None
) -> np.ndarray:
    """The neighbours of each keypoint of a photo, computed on jax's first device; see `neighbours.Search`."""
    count = len(positions)
    size = 1 << (max(count, nearest, larger, SMALLEST) - 1).bit_length()
    at, of, asked = np.zeros((size, 2), np.float32), np.zeros(size, np.int32), np.zeros(size, bool)
    at[:count], of[:count] = positions, 0 if octaves is None else octaves
    asked[:count] = True if among is None else among
    return np.asarray(_search(at, of, asked, nearest, larger))[:count]


@partial(jax.jit, static_argnames=("nearest", "larger"))
def _search(at: jax.Array, octaves: jax.Array, asked: jax.Array, nearest: int, larger: int) -> jax.Array:
    """Neighbours among those `asked`, int32 [P, nearest + larger], of P keypoints, a power of two."""

    def of_block(rows: jax.Array) -> jax.Array:
        x, y = (at[rows, axis, None] - at[:, axis] for axis in (0, 1))
        others = asked & (rows[:, None] != jnp.arange(len(at)))
        square = jnp.where(others, x * x + y * y, jnp.inf)
        higher = jnp.where(octaves > octaves[rows, None], square, jnp.inf)
        return jnp.concatenate([_smallest(square, nearest), _smallest(higher, larger)], axis=1)

    blocks = jnp.arange(len(at)).reshape(-1, min(BLOCK, len(at)))
    return jax.lax.map(of_block, blocks).reshape(len(at), nearest + larger)


def _smallest(x: jax.Array, count: int) -> jax.Array:
    """Where the smallest of each row are, ascending, int32 [n, count]; `NONE` for those that are infinite."""
    values, index = jax.lax.top_k(-x, count)
    return jnp.where(jnp.isneginf(values), NONE, index)
