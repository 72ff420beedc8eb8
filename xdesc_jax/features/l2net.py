"""L2-Net, the convolutional network of HardNet and SOSNet: its forward passes and weight files.

In: patches and weights. Out: unit float32 [B, 128]. HardNet and SOSNet share the network and differ in how
patches and outputs are normalised and in how their authors named the weights. Seven convolutions without
bias, each followed by a batch normalisation without scale and offset; ReLU behind all but the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax.features.weights import read_arrays, select
from xdesc_jax.networks.batch_norm import BN_MOMENTUM, masked_moments
from xdesc_jax.networks.folding import BN_EPSILON

WIDTH = 128
HIGHEST = jax.lax.Precision.HIGHEST


class Layer(NamedTuple):
    """One convolution: channels in and out, kernel size, stride and zero padding on each side, in px."""

    inputs: int
    outputs: int
    size: int = 3
    stride: int = 1
    padding: int = 1


# 'SAME' would pad stride-2 convolutions on one side only, hence explicit padding.
LAYERS = (
    Layer(1, 32),
    Layer(32, 32),
    Layer(32, 64, stride=2),
    Layer(64, 64),
    Layer(64, 128, stride=2),
    Layer(128, 128),
    Layer(128, WIDTH, size=8, padding=0),
)


class Statistics(NamedTuple):
    """Mean and variance of one layer's outputs per channel, each float32 [C]."""

    mean: jax.Array
    variance: jax.Array


# (inputs [B, H, W, C], kernel [h, w, C, D], stride, padding) -> [B, H', W', D]
Convolution = Callable[[jax.Array, jax.Array, int, int], jax.Array]


class L2Net(NamedTuple):
    """The network's parameters.

    Attributes:
        kernels: seven float32 [size, size, inputs, outputs]; what the gradient trains.
        statistics: the running statistics of the seven batch normalisations.
    """

    kernels: tuple[jax.Array, ...]
    statistics: tuple[Statistics, ...]


# --- The network -----------------------------------------------------------------------------------------


def init(key: jax.Array) -> L2Net:
    """Random parameters: normal kernels of variance 2 / inputs of a unit, running mean 0 and variance 1."""
    shapes = [(n.size, n.size, n.inputs, n.outputs) for n in LAYERS]
    ends = np.cumsum([math.prod(s) for s in shapes])
    draws = jnp.split(jax.random.normal(key, (ends[-1],)), ends[:-1])
    scaled = (d.reshape(s) * math.sqrt(2 / math.prod(s[:3])) for d, s in zip(draws, shapes, strict=True))
    return L2Net(tuple(scaled), tuple(Statistics(jnp.zeros(n.outputs), jnp.ones(n.outputs)) for n in LAYERS))


def apply(net: L2Net, patches: jax.Array) -> jax.Array:
    """The network in inference, with its running statistics.

    Args:
        net: parameters.
        patches: float32 [B, 32, 32], each normalised as the descriptor wants it.

    Returns:
        float32 [B, 128], not yet of unit length.

    Source: Tian et al., "L2-Net: Deep Learning of Discriminative Patch Descriptor", CVPR 2017.
    """
    return _forward(net.kernels, patches, lambda x, layer: _standardise(x, net.statistics[layer]))


def apply_train(
    kernels: Sequence[jax.Array],
    patches: jax.Array,
    keys: jax.Array,
    *,
    mask: jax.Array | None = None,
    dropout: float = 0.1,
    axis_name: str | None = None,
    convolution: Convolution | None = None,
) -> tuple[jax.Array, tuple[Statistics, ...]]:
    """The network in training: statistics of the batch itself, and dropout before the last convolution.

    Args:
        kernels: seven kernels, as in `L2Net`.
        patches: float32 [B, 32, 32] (this device's share of the batch), normalised.
        keys: [B] for dropout, one a patch.
        mask: bool [B], False where a patch is padding and must not count.
        dropout: share of values dropped.
        axis_name: mapped axis over which the batch is spread; statistics are those of the whole batch.
        convolution: how to convolve (`training_convolution` knows the fastest); None: `convolve`.

    Returns:
        float32 [B, 128], and the seven batch statistics for `update`.
    """
    seen: list[Statistics] = []

    def normalise(x: jax.Array, layer: int) -> jax.Array:
        places = x.shape[1] * x.shape[2]
        rows_mask = None if mask is None else jnp.repeat(mask, places)
        seen.append(Statistics(*masked_moments(x.reshape(-1, x.shape[-1]), rows_mask, axis_name)))
        return _standardise(x, seen[layer])

    drop = partial(_drop, keys=keys, rate=dropout)
    return _forward(kernels, patches, normalise, drop, convolution or convolve), tuple(seen)


def update(running: Sequence[Statistics], batch: Sequence[Statistics]) -> tuple[Statistics, ...]:
    """Running statistics after a training step: 0.9 * running + 0.1 * batch."""
    return jax.tree.map(lambda a, b: BN_MOMENTUM * a + (1 - BN_MOMENTUM) * b, tuple(running), tuple(batch))


def _forward(
    kernels: Sequence[jax.Array],
    patches: jax.Array,
    normalise: Callable[[jax.Array, int], jax.Array],
    before_last: Callable[[jax.Array], jax.Array] = lambda x: x,
    convolution: Convolution | None = None,
) -> jax.Array:
    convolution = convolution or convolve
    x = patches[..., None]
    last = len(LAYERS) - 1
    for i, (layer, kernel) in enumerate(zip(LAYERS, kernels, strict=True)):
        x = before_last(x) if i == last else x
        x = normalise(convolution(x, kernel, layer.stride, layer.padding), i)
        x = x if i == last else jax.nn.relu(x)
    return x.reshape(-1, WIDTH)


def convolve(
    x: jax.Array, kernel: jax.Array, stride: int = 1, padding: int = 0, precision: jax.lax.Precision | str = HIGHEST
) -> jax.Array:
    """Convolution of [B, H, W, C] with [h, w, C, D] as PyTorch's (no flip), in full float32 precision by default."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=precision,
    )


def convolve_columns(x: jax.Array, kernel: jax.Array, stride: int = 1, padding: int = 0) -> jax.Array:
    """The same as `convolve`, as one matrix product of what each output sees.

    On CPU, XLA's own gradient of a convolution takes twice the time of this one's; its forward pass alone is faster.
    """
    height, width, _, outputs = kernel.shape
    if x.shape[1:3] == (height, width) and not padding:
        columns = x.reshape(len(x), 1, 1, -1)
    else:
        x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
        rows, places = ((n - size) // stride + 1 for n, size in zip(x.shape[1:3], (height, width), strict=True))
        shifted = [
            x[:, top : top + (rows - 1) * stride + 1 : stride, left : left + (places - 1) * stride + 1 : stride]
            for top in range(height)
            for left in range(width)
        ]
        columns = jnp.concatenate(shifted, axis=-1)
    product = jnp.dot(columns.reshape(-1, columns.shape[-1]), kernel.reshape(-1, outputs), precision=HIGHEST)
    return product.reshape(*columns.shape[:3], outputs)


def training_convolution(platform: str, precision: str = "default") -> Convolution:
    """The faster one in training on a JAX platform; off the CPU in a precision of jax's terms (see `ModelConfig`)."""
    return convolve_columns if platform == "cpu" else partial(convolve, precision=precision)


def _standardise(x: jax.Array, statistics: Statistics) -> jax.Array:
    mean, variance = (jnp.expand_dims(s, (0, 1, 2)) for s in statistics)
    return (x - mean) * jax.lax.rsqrt(variance + BN_EPSILON)


def _drop(x: jax.Array, keys: jax.Array, rate: float) -> jax.Array:
    kept = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - rate, x.shape[1:]))(keys)
    return jnp.where(kept, x / (1 - rate), 0)


# --- HardNet and SOSNet ----------------------------------------------------------------------------------


def describe_hardnet(net: L2Net, patches: jax.Array) -> jax.Array:
    """HardNet descriptors.

    Args:
        net: weights from `load_hardnet`.
        patches: float32 [B, 32, 32] in 0..1 (the result does not depend on the range).

    Returns:
        float32 [B, 128], unit rows; a flat patch gives one fixed row.

    Source: Mishchuk et al., "Working hard to know your neighbor's margins", NeurIPS 2017.
    """
    return unit_hardnet(apply(net, normalize_hardnet(patches)))


def describe_sosnet(net: L2Net, patches: jax.Array) -> jax.Array:
    """SOSNet descriptors.

    Args:
        net: weights from `load_sosnet`.
        patches: float32 [B, 32, 32] in 0..1; other ranges give other descriptors.

    Returns:
        float32 [B, 128], unit rows; a flat patch gives one fixed row.

    Source: Tian et al., "SOSNet: Second Order Similarity Regularization", CVPR 2019.
    """
    return unit_sosnet(apply(net, normalize_instance(patches)))


def normalize_hardnet(patches: jax.Array) -> jax.Array:
    """(x - mean) / (std + 1e-6) of each patch of [B, 32, 32], std with N - 1."""
    deviations = _deviations(patches)
    variance = jnp.sum(deviations**2, axis=(1, 2), keepdims=True) / (patches[0].size - 1)
    return deviations / (jnp.sqrt(variance) + 1e-6)


def normalize_instance(patches: jax.Array) -> jax.Array:
    """(x - mean) / sqrt(variance + 1e-5) of each patch of [B, 32, 32], as SOSNet and TFeat."""
    deviations = _deviations(patches)
    return deviations / jnp.sqrt(jnp.mean(deviations**2, axis=(1, 2), keepdims=True) + 1e-5)


def _deviations(patches: jax.Array) -> jax.Array:
    # Taking a pixel off first makes a flat patch exactly zero; the rounding of its mean over 1e-6 is not.
    relative = patches - patches[:, :1, :1]
    return relative - relative.mean(axis=(1, 2), keepdims=True)


def unit_hardnet(rows: jax.Array) -> jax.Array:
    """HardNet's output normalisation: rows / sqrt(sum of squares + 1e-10)."""
    return rows / jnp.sqrt(jnp.sum(rows * rows, axis=-1, keepdims=True) + 1e-10)


def unit_sosnet(rows: jax.Array) -> jax.Array:
    """SOSNet's output normalisation: (rows + 1e-10) / ||rows + 1e-10||."""
    rows = rows + 1e-10
    return rows / jnp.sqrt(jnp.sum(rows * rows, axis=-1, keepdims=True))


# --- Weight files ----------------------------------------------------------------------------------------

HARDNET_NAMES = tuple((f"features.{i}", f"features.{i + 1}") for i in (0, 3, 6, 9, 12, 15, 19))
SOSNET_NAMES = tuple((f"layers.{i}", f"layers.{i + 1}") for i in (1, 4, 7, 10, 13, 16, 20))
NETWORK_NAMES = {"hardnet": HARDNET_NAMES, "sosnet": SOSNET_NAMES}


def load_hardnet(path: Path | str, prefix: str = "") -> L2Net:
    """Reads HardNet weights under the names of its authors' checkpoint (see `load`)."""
    return load(path, HARDNET_NAMES, prefix)


def load_sosnet(path: Path | str, prefix: str = "") -> L2Net:
    """Reads SOSNet weights under the names of its authors' checkpoint (see `load`)."""
    return load(path, SOSNET_NAMES, prefix)


def load_either(path: Path | str) -> L2Net:
    """Reads weights under HardNet's names or SOSNet's, whichever the file has (see `load`)."""
    arrays = read_arrays(path)
    return load(path, SOSNET_NAMES if f"{SOSNET_NAMES[0][0]}.weight" in arrays else HARDNET_NAMES)


def load(path: Path | str, names: Sequence[tuple[str, str]], prefix: str = "") -> L2Net:
    """Reads L2-Net weights, float32 or float16.

    Args:
        path: .npz, .safetensors or .pth with `<convolution>.weight` [out, in, h, w] and
            `<normalisation>.running_mean` and `.running_var` [out].
        names: (convolution, normalisation) of each layer.
        prefix: stands before all these names in the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a weight file, or not of this network; names the file and what differs.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for (convolution, normalisation), n in zip(names, LAYERS, strict=True):
        shapes[f"{convolution}.weight"] = (n.outputs, n.inputs, n.size, n.size)
        shapes |= {f"{normalisation}.{s}": (n.outputs,) for s in ("running_mean", "running_var")}
    arrays = select(read_arrays(path, prefix), shapes, path)
    kernels, statistics = [], []
    for convolution, normalisation in names:
        kernels.append(jnp.asarray(np.transpose(arrays[f"{convolution}.weight"], (2, 3, 1, 0))))
        mean, variance = (jnp.asarray(arrays[f"{normalisation}.{s}"]) for s in ("running_mean", "running_var"))
        if (variance < 0).any():
            raise ValueError(f"{path}: '{normalisation}.running_var' holds a negative value")
        statistics.append(Statistics(mean, variance))
    return L2Net(tuple(kernels), tuple(statistics))


def arrays_of(net: L2Net, names: Sequence[tuple[str, str]]) -> dict[str, np.ndarray]:
    """The inverse of `load`: a network's arrays under the names of a weight file."""
    arrays = {}
    for (convolution, normalisation), kernel, statistics in zip(names, net.kernels, net.statistics, strict=True):
        arrays[f"{convolution}.weight"] = np.transpose(np.asarray(kernel), (3, 2, 0, 1))
        arrays[f"{normalisation}.running_mean"] = np.asarray(statistics.mean)
        arrays[f"{normalisation}.running_var"] = np.asarray(statistics.variance)
    return arrays
