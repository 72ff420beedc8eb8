"""TFeat: a shallow convolutional descriptor, not of unit length.

In: patches and weights. Out: float32 [B, 128] in -1..1.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xdesc_jax.features.l2net import HIGHEST, convolve, normalize_instance
from xdesc_jax.features.weights import read_arrays, select

SHAPES = {
    "features.1.weight": (32, 1, 7, 7),
    "features.1.bias": (32,),
    "features.4.weight": (64, 32, 6, 6),
    "features.4.bias": (64,),
    "descr.0.weight": (128, 64 * 8 * 8),
    "descr.0.bias": (128,),
}


class TFeat(NamedTuple):
    """Two convolutions [h, w, in, out], a linear layer [4096, 128], and their biases [out]; float32."""

    kernel1: jax.Array
    bias1: jax.Array
    kernel2: jax.Array
    bias2: jax.Array
    linear: jax.Array
    bias: jax.Array


def describe(params: TFeat, patches: jax.Array) -> jax.Array:
    """TFeat descriptors.

    Args:
        params: weights from `load`.
        patches: float32 [B, 32, 32] in 0..1.

    Returns:
        float32 [B, 128], each value in -1..1 and most near its ends: norms are about 9.

    Source: Balntas et al., "Learning local feature descriptors with triplets and shallow convolutional
    neural networks", BMVC 2016.
    """
    x = normalize_instance(patches)[..., None]
    x = jnp.tanh(convolve(x, params.kernel1) + jnp.expand_dims(params.bias1, (0, 1, 2)))
    x = x.reshape(-1, 13, 2, 13, 2, 32).max(axis=(2, 4))
    x = jnp.tanh(convolve(x, params.kernel2) + jnp.expand_dims(params.bias2, (0, 1, 2)))
    rows = x.reshape(-1, params.linear.shape[0])
    return jnp.tanh(jnp.dot(rows, params.linear, precision=HIGHEST) + params.bias[None])


def load(path: Path | str, prefix: str = "") -> TFeat:
    """Reads TFeat weights under the names of its authors' checkpoint, float32 or float16.

    Args:
        path: .npz, .safetensors or .pth with the arrays of `SHAPES`.
        prefix: stands before all these names in the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a weight file, or not of this network; names the file and what differs.
    """
    arrays = select(read_arrays(path, prefix), SHAPES, path)
    # The checkpoint's linear layer reads [64, 8, 8] (channel first); here channels come last.
    linear = arrays["descr.0.weight"].reshape(128, 64, 8, 8).transpose(2, 3, 1, 0).reshape(-1, 128)
    kernel1, kernel2 = (arrays[f"features.{i}.weight"].transpose(2, 3, 1, 0) for i in (1, 4))
    biases = arrays["features.1.bias"], arrays["features.4.bias"], arrays["descr.0.bias"]
    ordered = (kernel1, biases[0], kernel2, biases[1], linear, biases[2])
    return TFeat(*(jnp.asarray(array) for array in ordered))
