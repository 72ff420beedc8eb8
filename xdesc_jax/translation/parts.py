"""Parts of a model file as tensors: networks, contexts, statistics and sample, and their weights in smaller dtypes.

In: these parts. Out: tensors by the names that `bundle` lists; and back. Each reader takes what it reads out of the
tensors, so that what is left has no place. Imports numpy alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from xdesc_jax.networks.context import LAYERS
from xdesc_jax.translation.deviation import RowStatistics
from xdesc_jax.translation.int8 import from_int8, to_int8
from xdesc_jax.translation.parity import ParitySample

CONTEXT = "context/"
WEIGHTS = ("encoder/", "decoder/", "pair/", CONTEXT)

Dtype = Literal["float32", "float16", "int8"]
Layers = Sequence[tuple[np.ndarray, np.ndarray]]  # (kernel [in, out], bias [out]) in order


def tensors(
    weights: Mapping[str, Layers], statistics: Mapping[str, RowStatistics], sample: ParitySample
) -> dict[str, np.ndarray]:
    """All tensors of a model with float32 weights, by name.

    Args:
        weights: layers of networks and, as 'context/<name>', of contexts.
        statistics: by descriptor.
        sample: for the self-check.
    """
    found: dict[str, np.ndarray] = {}
    for name, layers in weights.items():
        for i, (kernel, bias) in enumerate(layers):
            found |= {f"{name}/{i}/kernel": kernel, f"{name}/{i}/bias": bias}
    for name, of_rows in statistics.items():
        found |= {f"statistics/{name}/{field}": value for field, value in of_rows.arrays().items()}
    found |= {f"sample/{name}/embedding": rows for name, rows in sample.embeddings.items()}
    found |= {f"sample/{s}/to/{t}": rows for (s, t), rows in sample.translations.items()}
    found |= {f"sample/{name}/frames": rows for name, rows in sample.frames.items()}
    found |= {f"sample/{name}/positions": rows for name, rows in sample.positions.items()}
    found = {name: np.ascontiguousarray(value, np.float32) for name, value in found.items()}
    return found | {f"sample/{name}/input": np.ascontiguousarray(rows) for name, rows in sample.inputs.items()}


def with_weights(of: Mapping[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """The tensors with weights of float32, float16 or int8; beside int8, covariances are float16."""
    if dtype != "int8":
        return {name: np.asarray(x, dtype) if name.startswith(WEIGHTS) else x for name, x in of.items()}
    small: dict[str, np.ndarray] = {}
    for name, value in of.items():
        if name.startswith(WEIGHTS) and name.endswith("/kernel"):
            small[name], small[name.removesuffix("kernel") + "scale"] = to_int8(value)
        else:
            small[name] = value.astype(np.float16) if name.endswith("/photo_covariance") else value
    return small


def weights_dtype(of: Mapping[str, np.ndarray]) -> Dtype:
    """In which dtype a file's tensors hold the weights, float32, float16 or int8; of several, the widest."""
    held = {x.dtype.name for name, x in of.items() if name.startswith(WEIGHTS) and name.endswith("/kernel")}
    dtypes: tuple[Dtype, ...] = ("float32", "float16", "int8")
    return next((dtype for dtype in dtypes if dtype in held), "float32")


def read_networks(of: dict[str, np.ndarray], described: Mapping[str, Any]) -> dict[str, Layers]:
    """Takes the networks out of `of`, which the header's entry `layers` describes."""
    networks: dict[str, Layers] = {}
    for name, description in described.items():
        if description["hidden_activation"] != "relu":
            raise ValueError(f"{name}: hidden activation is {description['hidden_activation']!r}, expected 'relu'")
        networks[name] = _layers(of, name, len(description["widths"]) - 1)
    return networks


def read_contexts(of: dict[str, np.ndarray], names: Iterable[str]) -> dict[str, Layers]:
    """Takes the layers of contexts out of `of`, of those of these descriptors that have one."""
    has = [name for name in names if f"{CONTEXT}{name}/0/kernel" in of]
    return {name: _layers(of, CONTEXT + name, len(LAYERS)) for name in has}


def read_statistics(of: dict[str, np.ndarray], names: Iterable[str]) -> dict[str, RowStatistics]:
    """Takes the statistics of these descriptors out of `of`, where it has them."""
    found = {}
    for name in names:
        at = f"statistics/{name}"
        if f"{at}/mean" in of:
            covariance = _floats(of, f"{at}/photo_covariance") if f"{at}/photo_covariance" in of else None
            found[name] = RowStatistics(_floats(of, f"{at}/mean"), _floats(of, f"{at}/std"), covariance)
    return found


def read_sample(of: dict[str, np.ndarray], names: Sequence[str]) -> ParitySample:
    """Takes the sample of these descriptors out of `of`."""
    sample = ParitySample()
    for name in names:
        if f"sample/{name}/input" in of:
            sample.inputs[name] = of.pop(f"sample/{name}/input")
        for part, rows in (
            ("embedding", sample.embeddings),
            ("frames", sample.frames),
            ("positions", sample.positions),
        ):
            if (key := f"sample/{name}/{part}") in of:
                rows[name] = _floats(of, key)
        for other in names:
            if (key := f"sample/{name}/to/{other}") in of:
                sample.translations[name, other] = _floats(of, key)
    return sample


def _layers(of: dict[str, np.ndarray], name: str, count: int) -> Layers:
    return [(_kernel(of, f"{name}/{i}"), _floats(of, f"{name}/{i}/bias")) for i in range(count)]


def _kernel(tensors: dict[str, np.ndarray], layer: str) -> np.ndarray:
    """Takes a layer's kernel out of `tensors` as float32, with its scale where it has one."""
    if f"{layer}/scale" not in tensors:
        return _floats(tensors, f"{layer}/kernel")
    q, scale = tensors.pop(f"{layer}/kernel", np.empty(0)), _floats(tensors, f"{layer}/scale")
    if q.dtype != np.int8 or q.ndim != 2 or scale.shape != q.shape[1:]:
        raise ValueError(
            f"{layer}: kernel {q.dtype} {q.shape} and scale {scale.shape}, expected int8 [in, out] and [out]"
        )
    if not np.isfinite(scale).all():
        raise ValueError(f"{layer}/scale holds a value that is not finite")
    return from_int8(q, scale)


def _floats(tensors: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Takes a tensor out of `tensors` as float32."""
    if name not in tensors:
        raise ValueError(f"tensor {name!r} is missing")
    value = tensors.pop(name)
    if value.dtype not in (np.float16, np.float32):
        raise ValueError(f"tensor {name!r} has dtype {value.dtype}, expected float32 or float16")
    return value.astype(np.float32)
