"""Batch norms into the linear layers before them.

In: layers with batch norms, as a checkpoint holds them. Out: layers that need a matrix product and a sum each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

BN_EPSILON = 1e-5  # added to variances; PyTorch's default


def fold(layers: Sequence[Mapping[str, np.ndarray]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Batch norms into the linear layers before them.

    scale * (x W + b - mean) / sqrt(var + eps) + offset = x (W g) + (b - mean) g + offset, where
    g = scale / sqrt(var + eps); computed in float64.

    Args:
        layers: each {kernel [N, M], bias [M]} and, where a norm follows, {scale, offset, mean, var} [M].

    Returns:
        (kernel [N, M], bias [M]) float32 of each.
    """
    folded = []
    for layer in layers:
        values = {name: np.asarray(value, np.float64) for name, value in layer.items()}
        kernel, bias = values["kernel"], values["bias"]
        if "mean" in values:
            gain = values["scale"] / np.sqrt(values["var"] + BN_EPSILON)
            kernel, bias = kernel * gain, (bias - values["mean"]) * gain + values["offset"]
        folded.append((kernel.astype(np.float32), bias.astype(np.float32)))
    return folded
