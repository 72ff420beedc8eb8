"""Networks with smaller weights: float16, or int8 with a scale for each output, and what that costs.

In: a model with float32 weights. Out: the model with the values that the smaller weights stand for, its sample as
these networks compute it, and in its provenance how far that is from what it was. Imports numpy alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, from_stored, unit_rows
from xdesc_jax.networks.frames import KEYPOINT, behind
from xdesc_jax.translation import copies
from xdesc_jax.translation.bundle import Bundle, Layers, ParitySample
from xdesc_jax.translation.int8 import from_int8, to_int8
from xdesc_jax.translation.surroundings import Surroundings


def quantized(bundle: Bundle, dtype: Literal["float16", "int8"]) -> Bundle:
    """The model that its weights in `dtype` stand for; biases stay float32 beside int8.

    It is of the same joint space and says so (see `copies`).

    Args:
        bundle: the model.
        dtype: of the weights.

    Raises:
        ValueError: a weight is beyond float16's range.
    """
    networks: dict[str, Layers] = {n: _rounded_layers(x, dtype, n) for n, x in bundle.networks.items()}
    contexts: dict[str, Layers] = {n: _rounded_layers(x, dtype, f"context/{n}") for n, x in bundle.contexts.items()}
    small = dataclasses.replace(bundle, networks=networks, contexts=contexts)
    weights = small.weights()
    if all(equal(layers, weights[name]) for name, layers in bundle.weights().items()):
        return bundle
    sample = computed(small)
    loss = accuracy_loss(bundle.sample, sample, bundle.specs)
    return dataclasses.replace(
        small,
        sample=sample,
        provenance={
            **bundle.provenance,
            "rounding": loss["largest_change"],
            copies.WEIGHTS: {**copies.record(dtype, bundle.space_id), **loss},
        },
    )


def _rounded_layers(layers: Layers, dtype: str, name: str) -> Layers:
    return [_rounded(kernel, bias, dtype, name) for kernel, bias in layers]


def _rounded(kernel: np.ndarray, bias: np.ndarray, dtype: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    if dtype == "int8":
        return from_int8(*to_int8(kernel)), bias
    with np.errstate(over="ignore"):
        half = [a.astype(np.float16).astype(np.float32) for a in (kernel, bias)]
    if not all(np.isfinite(a).all() for a in half):
        largest = max(float(np.abs(a).max()) for a in (kernel, bias))
        raise ValueError(f"{name}: a weight is {largest:g}, beyond the 65504 of float16; export as float32")
    return half[0], half[1]


def equal(a: Layers, b: Layers) -> bool:
    """Whether two networks hold the same numbers."""
    flat_a, flat_b = ([array for layer in layers for array in layer] for layers in (a, b))
    return len(flat_a) == len(flat_b) and all(map(np.array_equal, flat_a, flat_b))


def computed(bundle: Bundle) -> ParitySample:
    """The results of the model's sample, where it has them, as its networks give them in float64."""
    specs, sample = bundle.specs, bundle.sample
    rows = {n: from_stored(x, specs[n]).astype(np.float64) for n, x in sample.inputs.items()}
    embeddings = {n: _unit(_forward(bundle, f"encoder/{n}", rows[n], n)) for n in sample.embeddings}
    translations = {}
    for source, target in sample.translations:
        if (pair := f"pair/{source}/{target}") in bundle.networks:
            y = _forward(bundle, pair, rows[source], source)
        else:
            y = _forward(bundle, f"decoder/{target}", embeddings[source], source)
        translations[source, target] = _finished(y, specs[target])
    as_float32 = {n: x.astype(np.float32) for n, x in embeddings.items()}
    return dataclasses.replace(
        sample, embeddings=as_float32, translations={k: x.astype(np.float32) for k, x in translations.items()}
    )


def _forward(bundle: Bundle, network: str, x: np.ndarray, source: str) -> np.ndarray:
    layers = bundle.networks[network]
    usable = np.asarray(x.any(axis=1))
    frames = bundle.sample.frames[source].astype(np.float64) if source in bundle.sample.frames else None
    if bundle.takes_frames(network):
        assert frames is not None
        x = behind(x, frames, bundle.harmonics)
    if bundle.takes_context(network) and bundle.context is not None:
        context = [(kernel.astype(np.float64), bias.astype(np.float64)) for kernel, bias in bundle.contexts[source]]
        positions = bundle.sample.positions[source]
        own = frames if bundle.specs[source].frame == KEYPOINT else None
        around = Surroundings(context, bundle.context, x, own, positions, usable, bundle.turning)
        x = around.inputs(0, len(x))
    for i, (kernel, bias) in enumerate(layers):
        x = (np.maximum(x, 0) if i else x) @ kernel.astype(np.float64) + bias
    return x


def _unit(x: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1)


def _finished(y: np.ndarray, spec: DescriptorSpec) -> np.ndarray:
    if spec.binary:
        return 0.5 * (1 + np.tanh(0.5 * y))
    y = np.maximum(y, 0) if spec.output == "relu" else y
    return _unit(y) if spec.normalized else y


def accuracy_loss(
    before: ParitySample, after: ParitySample, specs: Mapping[str, DescriptorSpec]
) -> dict[str, float | None]:
    """How far two models' results on one sample are apart.

    Returns:
        largest_change: of any value; cosine_distance: mean of embeddings and real targets; bits_flipped: mean share of
        the bits of binary targets. Each is None where the sample holds no such rows.
    """
    pairs: list[tuple[Any, Any, bool]] = [(x, after.embeddings[n], False) for n, x in before.embeddings.items()]
    pairs += [(x, after.translations[k], specs[k[1]].binary) for k, x in before.translations.items()]
    changes = [float(np.abs(a - b).max(initial=0)) for a, b, _ in pairs]
    cosines = [1 - float(np.mean(np.sum(unit_rows(a) * unit_rows(b), axis=1))) for a, b, bits in pairs if not bits]
    flipped = [float(np.mean((a > 0.5) != (b > 0.5))) for a, b, bits in pairs if bits]
    return {
        "largest_change": max(changes, default=None),
        "cosine_distance": float(np.mean(cosines)) if cosines else None,
        "bits_flipped": float(np.mean(flipped)) if flipped else None,
    }
