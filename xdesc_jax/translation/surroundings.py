"""Surroundings: what the rows of one photo tell each other, where an encoder looks at a photo's other rows.

In: all rows of a photo with frames and positions, and the layers of the source's context. Out: what is appended to the
encoder's input, and that input whole, block by block: a row's neighbours are gathered for some rows at a time, so that
they stay in the cache. Rows that are zero (not valid) are nobody's neighbours. Imports numpy; neighbours are found by
scipy.
"""

from __future__ import annotations

import numpy as np

from xdesc_jax.config import ContextConfig
from xdesc_jax.networks import context, neighbours
from xdesc_jax.translation.parts import Layers

POOL_ROWS = 32  # of 40 neighbours and 192 values: 1 MB an array, of which two are in use, as a core's cache holds
_FARTHEST_PX = 1e6  # no photo reaches so far; squares of more leave float32
_SLACK = 0.02  # of the photo's longer side: how far outside keypoints may lie that were refined or undistorted


class Surroundings:
    """What each row of a photo is told of its neighbours.

    Args:
        layers: of the source's context.
        config: how many neighbours.
        x: [N, D] rows with their frames behind them where the encoder takes these.
        frames: [N, 2] sigma px and orientation of their keypoints; None for rows of frame 'image'.
        positions: [N, 2] px.
        usable: [N] bool, rows that may be neighbours, and are told of theirs.
        turning: harmonics by which it is told how neighbours are turned, see `context.turning`.
    """

    def __init__(
        self, layers: Layers, config: ContextConfig, x: np.ndarray, frames: np.ndarray | None, positions: np.ndarray,
        usable: np.ndarray, turning: int = 0,
    ):  # fmt: skip
        self._turning = turning
        self._layers, self._width = layers, context.output_width(config.width, config.heads)
        self._x, self._frames, self._positions = x, frames, positions
        near = neighbours.find(positions, frames, *config.neighbours(frames is not None), usable)
        self._near = np.ascontiguousarray(near.T)  # [K, N]: the maximum over neighbours is then one of whole arrays
        _, (geometry, geometry_bias), token, _ = layers
        # Behind what neighbours show of themselves stands a 1, by which the token's bias is multiplied; the last row,
        # which `NONE` leads to, is the neighbour that is not there: nothing behind the ReLU, and no bias.
        seen = context.project(layers, x) + geometry_bias
        self._seen = np.pad(seen, ((0, 1), (0, 1)), constant_values=1)
        self._seen[-1] = context.FAR
        self._geometry, self._token = np.pad(geometry, ((0, 0), (0, 1))), np.vstack(token)

    def __call__(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray:
        """[stop - start, (H + 1) * W] for these rows, `out` where given."""
        if out is None:
            out = np.empty((stop - start, self._width), self._x.dtype)
        buffers = np.empty((2, self._near[:, :POOL_ROWS].size * len(self._token)), self._seen.dtype)
        for first in range(start, stop, POOL_ROWS):
            own = slice(first, min(first + POOL_ROWS, stop))
            near = self._near[:, own]
            tokens = self._tokens_of(own, near, buffers).swapaxes(0, 1)
            asked = context.ask(self._layers, self._x[own])
            out[first - start : own.stop - start] = context.attend(asked, tokens, near.T != neighbours.NONE)
        return out

    def inputs(self, start: int, stop: int) -> np.ndarray:
        """What the encoder takes of these rows: with their frames, and behind them what they are told."""
        own = self._x[start:stop]
        inputs = np.empty((len(own), own.shape[1] + self._width), own.dtype)
        inputs[:, : own.shape[1]] = own
        self(start, stop, inputs[:, own.shape[1] :])
        return inputs

    def _tokens_of(self, own: slice, near: np.ndarray, buffers: np.ndarray) -> np.ndarray:
        """What stands for the neighbours `near` [K, n] of these rows, [K, n, W], as in `context.pool`; in buffers: a
        third of the time of new arrays."""
        offsets = (np.take(self._positions, near, axis=0) - self._positions[own]).swapaxes(0, 1)
        frames = others = None
        if self._frames is not None:
            frames, others = self._frames[own], np.take(self._frames, near, axis=0).swapaxes(0, 1)
        around = context.geometry(frames, others, offsets, harmonics=self._turning).swapaxes(0, 1)
        inner, width = self._token.shape
        seen, added = buffers[:, : near.size * inner].reshape(2, near.size, inner)
        tokens = buffers[1, : near.size * width].reshape(near.size, width)  # once `added` is no longer needed
        np.take(self._seen, near.ravel(), axis=0, out=seen, mode="wrap")
        seen += np.matmul(around.reshape(near.size, -1), self._geometry, out=added)
        _relu(seen, near.shape)
        np.matmul(seen, self._token, out=tokens)
        return _relu(tokens, near.shape)


def _relu(x: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """[K * n, W] to [K, n, W], in place: with an array of zeros, as numpy is several times slower with one zero."""
    x = x.reshape(*shape, -1)
    return np.maximum(x, np.zeros(x.shape[1:], x.dtype), out=x)


def check_positions(positions: np.ndarray, rows: int, where: str = "", size: tuple[int, int] = (0, 0)) -> np.ndarray:
    """The positions of `rows` keypoints of one photo as float32 [N, 2].

    Args:
        positions: px.
        rows: how many there are.
        where: file and image, for errors.
        size: (width, height) of the photo in px; (0, 0) where it is not known.

    Raises:
        ValueError: another shape, a value that is not finite or no px, or a position outside the photo.
    """
    at = f"{where}: " if where else ""
    found = np.asarray(positions, np.float32)
    if found.shape != (rows, 2):
        raise ValueError(f"{at}positions have shape {found.shape}, expected ({rows}, 2): px of each row's keypoint")
    if (bad := ~(np.abs(found) <= _FARTHEST_PX).all(axis=1)).any():
        row = int(np.argmax(bad))
        raise ValueError(f"{at}keypoint {row} is at {found[row].tolist()}, expected px within {_FARTHEST_PX:g}")
    slack = _SLACK * max(size)
    if all(size) and (far := ((found < -slack) | (found > np.array(size) + slack)).any(axis=1)).any():
        row = int(np.argmax(far))
        raise ValueError(
            f"{at}keypoint {row} is at {found[row].tolist()}, outside the photo of {size[0]}x{size[1]} px: are "
            "positions those of the photo at another size?"
        )
    return found
