"""Random numbers of a training: a key of its own for each use, and one for each row of the global batch.

In: the seeds of a configuration; the number of rows on this device. Out: keys that never meet, also where all seeds are
equal and in step 0; and keys of rows by their place in the global batch, so that what is drawn does not depend on how
many devices and hosts there are, on how the batch is spread over them, or on where a run was resumed.
"""

from __future__ import annotations

import enum

import jax
import jax.numpy as jnp
from jax import lax


class Use(enum.IntEnum):
    """What a key is for; its number is folded into the seed's. New uses get new numbers."""

    WEIGHTS = 1  # the first ones
    PERMUTATIONS = 2  # of the linear variant
    AUGMENTATION = 3  # of patches: jitter, flips, light
    DROPOUT = 4


def key_of(seed: int, use: Use) -> jax.Array:
    """The key of a seed for one use."""
    return jax.random.fold_in(jax.random.key(seed), use)


def row_keys(key: jax.Array, count: int, axis_name: str | None = None) -> jax.Array:
    """A key for each of this device's rows, by its place in the global batch.

    Args:
        key: of a use and a step, the same on all devices.
        count: rows of this device (of the batch, where the step sees all of it).
        axis_name: the mapped axis over which the batch is spread, if any.

    Returns:
        [count] keys.
    """
    first = lax.axis_index(axis_name) * count if axis_name else 0
    return jax.vmap(jax.random.fold_in, (None, 0))(key, first + jnp.arange(count))
