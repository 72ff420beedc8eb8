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

POOL_ROWS = 128  # of 40 neighbours and 192 values: 4 MB an array, of which two are in use
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
        sigmas = None if frames is None else frames[:, 0]
        self._near = neighbours.find(positions, sigmas, *config.neighbours(frames is not None), usable)
        self._projected = context.project(layers, x) + layers[1][1]  # with the bias of `geometry`, once a row
        self._tokens = np.empty((2, min(POOL_ROWS, len(x)), self._near.shape[1], config.width), self._projected.dtype)

    def __call__(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray:
        """[stop - start, (H + 1) * W] for these rows, `out` where given."""
        if out is None:
            out = np.empty((stop - start, self._width), self._x.dtype)
        asked = context.ask(self._layers, self._x[start:stop])
        for first in range(start, stop, POOL_ROWS):
            last = min(first + POOL_ROWS, stop)
            near = self._near[first:last]
            mask = near != neighbours.NONE
            tokens = self._tokens_of(first, last, near, mask)
            here = slice(first - start, last - start)
            out[here] = context.attend(asked[here], tokens, mask)
        return out

    def inputs(self, start: int, stop: int) -> np.ndarray:
        """What the encoder takes of these rows: with their frames, and behind them what they are told."""
        return np.concatenate([self._x[start:stop], self(start, stop)], axis=1)

    def _tokens_of(self, first: int, last: int, near: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """What stands for the neighbours, [n, K, W], as in `context.pool`, in buffers: a third of the time of new
        arrays."""
        _, (geometry, _), (token, token_bias), _ = self._layers
        offsets = self._positions[near] - self._positions[first:last, None]
        own, others = (None, None) if self._frames is None else (self._frames[first:last], self._frames[near])
        around = context.geometry(own, others, offsets, harmonics=self._turning)
        a, b = self._tokens[:, : last - first]
        rows = (-1, a.shape[-1])  # one product for all neighbours
        zero = np.zeros(a.shape[-1], a.dtype)  # a vector: numpy takes twice as long for a maximum with a scalar
        np.take(self._projected, near, axis=0, out=a, mode="clip")  # what stands for none is set to zero below
        np.matmul(around.reshape(-1, around.shape[-1]), geometry, out=b.reshape(rows))
        a += b
        np.maximum(a, zero, out=a)
        np.matmul(a.reshape(rows), token, out=b.reshape(rows))
        b += token_bias
        np.maximum(b, zero, out=b)
        b[~mask] = 0
        return b


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
