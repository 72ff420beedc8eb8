"""Context: what the other rows of its photo tell an encoder of a row.

In: a row with its keypoint's frame behind it, and rows, frames and offsets of keypoints near it in the photo. Out: what
is appended to the encoder's input. A row of frame 'keypoint' holds too little of what an upright network sees around
its keypoint; its neighbours in the photo hold the rest. Numpy and jax.numpy compute the same; imports numpy alone.

In a joint space of frame 'keypoint' embeddings turn and grow with their keypoints, and so does what an encoder is told
there: where neighbours lie, and how they are turned, is told as the keypoint itself would see it.

Four linear layers, `LAYERS`, with D the width of a row, and of its frame where the space is of frame 'image' (rows of
frame 'image' have none):
    row [D, W]           a neighbour's row and frame; the same for all who ask, so computed once a row
    geometry [G, W]      where it lies: added to the former, and ReLU behind the sum
    token [W, W]         another layer with ReLU: what stands for the neighbour
    query [D, H * W]     what the row asks: H vectors, whose products with the tokens, by softmax, weigh them
The result is the H weighted means of the tokens and their maximum, (H + 1) * W values; zero without neighbours. It does
not depend on the neighbours' order, and follows when the photo is shifted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import matmul
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from xdesc_jax.networks.frames import KEYPOINT

LAYERS = ("row", "geometry", "token", "query")
OF_ROWS = {"encoder": (0,), "pair": (0,), "context": (0, 3)}  # layers that take descriptor rows, by kind of network
GEOMETRY = 8  # values of `geometry`, and two a harmonic in a space of frame 'keypoint'
REACHES_PX = (4.0, 16.0, 64.0)  # distances that offsets are told apart at
REACHES_SIGMA = (3.0, 12.0, 48.0)  # the same as the keypoint sees it: a patch of SIFT reaches 6 to 8 sigma
FAR = -1e9  # a score that softmax gives no weight

Layers = Sequence[tuple[Any, Any]]  # (kernel, bias) in the order of LAYERS
Product = Callable[[Any, Any], Any]


class Around(NamedTuple):
    """The neighbours of N rows: their rows with frames [N, K, D], `geometry` [N, K, G], and which there are [N, K]."""

    rows: Any
    geometry: Any
    mask: Any


def turning(space: str, harmonics: int) -> int:
    """The harmonics by which `geometry` tells how neighbours are turned to the keypoint: those of the model in a joint
    space of frame 'keypoint', none in one of frame 'image', where the rows come with their orientations."""
    return harmonics if space == KEYPOINT else 0


def shapes(row_width: int, width: int, heads: int, harmonics: int = 0) -> list[tuple[int, int]]:
    """(inputs, outputs) of the four layers for rows that are `row_width` wide with their frame."""
    return [(row_width, width), (GEOMETRY + 2 * harmonics, width), (width, width), (row_width, heads * width)]


def output_width(width: int, heads: int) -> int:
    """Values that `pool` gives for a row."""
    return (heads + 1) * width


def geometry(frames: Any, other_frames: Any, offsets: Any, xp: ModuleType = np, harmonics: int = 0) -> Any:
    """How neighbours lie to a keypoint, float32 [N, K, 8 + 2 H].

    Args:
        frames: [N, 2] of the keypoints, sigma px and orientation; orientations are the rows' matter, and not used where
            H is 0. None for rows of frame 'image', which have no size of their own: all are alike.
        other_frames: [N, K, 2] of their neighbours; None where `frames` is.
        offsets: [N, K, 2], neighbour's position less keypoint's, px of the photo as it lies.
        xp: numpy, or jax.numpy.
        harmonics: H, see `turning`; over 0, all is told as the keypoint sees it, and frames are needed.

    Returns:
        tanh of the offset at each of `REACHES_PX`, log2 of the distance, and log2 of sigma over the keypoint's; with
        H over 0, the offset is turned back by the keypoint's orientation and in units of its sigma, at each of
        `REACHES_SIGMA`, and behind it stand cos and sin of 1 to H times the difference of the orientations.
    """
    reaches, turned = REACHES_PX, []
    x, y = offsets[..., 0], offsets[..., 1]
    if harmonics:
        reaches, (x, y) = REACHES_SIGMA, _seen(x, y, frames, xp)
        angle = other_frames[..., 1] - frames[:, 1:]
        turned = [f(angle * n) for f in (xp.cos, xp.sin) for n in range(1, harmonics + 1)]
    near = [xp.tanh(along / reach) for reach in reaches for along in (x, y)]
    far = xp.log2(1 + (x * x + y * y) / reaches[0] ** 2) / 8
    size = xp.zeros_like(far) if frames is None else xp.log2(other_frames[..., 0] / frames[:, :1]) / 2
    return xp.stack([*near, far, size, *turned], axis=-1).astype(np.float32)


def _seen(x: Any, y: Any, frames: Any, xp: ModuleType) -> tuple[Any, Any]:
    """Offsets [N, K] along and across the keypoints' orientations, in units of their sigmas (`frames` [N, 2])."""
    cos, sin = (f(frames[:, 1:]) / frames[:, :1] for f in (xp.cos, xp.sin))
    return cos * x + sin * y, cos * y - sin * x


def described(nearest: int, larger: int, of: Iterable[str]) -> str:
    """What the encoders of the descriptors `of` look at, in words."""
    return f"{nearest} nearest and {larger} larger neighbours (encoders of {', '.join(sorted(of))})"


def project(layers: Layers, x: Any, product: Product = matmul) -> Any:
    """Rows with their frames [..., D] as their neighbours see them, [..., W], before `geometry` is added."""
    kernel, bias = layers[0]
    return product(x, kernel) + bias


def pool(
    layers: Layers, x: Any, projected: Any, around: Any, mask: Any, xp: ModuleType = np, product: Product = matmul
) -> Any:
    """What a row is told of its neighbours.

    Args:
        layers: of the descriptor.
        x: [N, D], rows with their frames.
        projected: [N, K, W], `project` of their neighbours.
        around: [N, K, G], `geometry` of their neighbours.
        mask: [N, K] bool, which neighbours there are.
        xp: numpy, or jax.numpy.
        product: of [..., A] and a kernel [A, B].

    Returns:
        [N, (H + 1) * W].
    """
    _, (near, near_bias), (token, token_bias), _ = layers
    tokens = xp.maximum(projected + (around @ near + near_bias), 0)
    tokens = xp.maximum(product(tokens, token) + token_bias, 0) * mask[:, :, None]
    return attend(ask(layers, x, product), tokens, mask, xp)


def ask(layers: Layers, x: Any, product: Product = matmul) -> Any:
    """What rows with their frames [N, D] look for in their neighbours' tokens, [N, H * W]."""
    query, bias = layers[3]
    return product(x, query) + bias


def attend(asked: Any, tokens: Any, mask: Any, xp: ModuleType = np) -> Any:
    """What rows read of their neighbours' tokens: the last part of `pool`.

    Args:
        asked: [N, H * W], `ask` of the rows.
        tokens: [N, K, W], zero where there is no neighbour.
        mask: [N, K] bool, which neighbours there are.
        xp: numpy, or jax.numpy.

    Returns:
        [N, (H + 1) * W].
    """
    width = tokens.shape[-1]
    # shape[0] and not len: in an exported function N is a symbol.
    asked = asked.reshape(tokens.shape[0], -1, width)  # [N, H, W]
    scores = xp.matmul(asked, xp.swapaxes(tokens, 1, 2)) * np.float32(width**-0.5)  # [N, H, K]
    scores = xp.where(mask[:, None, :], scores, np.float32(FAR))
    shares = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = shares / shares.sum(axis=-1, keepdims=True)
    means = xp.matmul(shares, tokens).reshape(tokens.shape[0], -1)
    return xp.concatenate([means, tokens.max(axis=1)], axis=1)
