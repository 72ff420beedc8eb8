"""Mutual matches on an accelerator: `nearest.match` with its search for maxima in JAX.

In and out: as `nearest`. Products and maxima run on the device, block by block; what is left (distances of
the best, near ties, the ratio test) is numpy's, so both give the same matches, except perhaps where two
distances differ by less than 1e-5. Chosen by the caller (`xdesc match --backend jax`).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax.matching import nearest
from xdesc_jax.matching.nearest import Best, Matches
from xdesc_jax.matching.operands import Rows, slices

BLOCK = 4096  # rows a side of one block of the similarity matrix (64 MB)
SMALLEST = 256  # blocks are padded to powers of two from here on, so that few shapes are compiled


def match(a: np.ndarray, b: np.ndarray, *, binary: bool = False, ratio: float | None = None) -> Matches:
    """Mutual nearest neighbours with a symmetric ratio test; see `nearest.match`."""
    return nearest.match(a, b, binary=binary, ratio=ratio, search=search)


@functools.partial(jax.jit, static_argnames="both")
def _best_of_block(
    x: jax.Array, offset_x: jax.Array, y: jax.Array, offset_y: jax.Array, both: bool
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array] | None]:
    """The two largest similarities of each row, and of each column, and where they are: [2, n] each."""
    # On TPU and GPU a product is rounded to fewer bits unless told otherwise.
    similarity = jnp.matmul(x, y.T, precision="highest") - offset_x[:, None] - offset_y
    return _two_largest(similarity), _two_largest(similarity.T) if both else None


def _two_largest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows = jnp.arange(len(x))
    first = jnp.argmax(x, axis=1)
    rest = x.at[rows, first].set(-jnp.inf)
    second = jnp.argmax(rest, axis=1)
    values = jnp.stack([x[rows, first], rest[rows, second]])
    return values, jnp.stack([first, second])


def search(a: Rows, b: Rows, both: bool) -> tuple[Best, Best]:
    """As `nearest`'s own search; see `nearest.Search`."""
    rows, columns = Best(len(a)), Best(len(b))
    parts_b = list(slices(len(b), BLOCK))
    for at_a in slices(len(a), BLOCK):
        x = _padded(a, at_a)
        # Nothing is fetched before all blocks of the row are under way.
        found = [(at_b, _best_of_block(*x, *_padded(b, at_b), both)) for at_b in parts_b]
        for at_b, (of_rows, of_columns) in found:
            _merge(rows, at_a, of_rows, at_b.start, at_b.stop - at_b.start)
            if of_columns is not None:
                _merge(columns, at_b, of_columns, at_a.start, at_a.stop - at_a.start)
    return rows, columns


def _padded(rows: Rows, at: slice) -> tuple[np.ndarray, np.ndarray]:
    """Operand and offsets of some rows; rows that pad them are infinitely far from all."""
    x = rows.operand(at)
    size = max(SMALLEST, 1 << (len(x) - 1).bit_length())
    operand, offset = np.zeros((size, x.shape[1]), np.float32), np.full(size, np.inf, np.float32)
    operand[: len(x)], offset[: len(x)] = x, rows.offset[at]
    return operand, offset


def _merge(best: Best, at: slice, found: tuple[jax.Array, jax.Array], start: int, count: int) -> None:
    """Takes in a block's best; `start` and `count` are the rows that they index."""
    n = at.stop - at.start
    values, index = np.asarray(found[0], np.float64)[:, :n], np.asarray(found[1])[:, :n]
    # Where all is -inf, argmax may name a row that is padding.
    best.update(at, values, np.minimum(index, count - 1) + start)
