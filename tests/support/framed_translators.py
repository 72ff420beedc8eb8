"""A small translator of a joint space of frame 'image', and what it computes by the definition, row by row."""

from __future__ import annotations

import math

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.translation.bundle import Bundle, ParitySample

SPECS = {
    "turned": DescriptorSpec("turned", 12, output="relu", storage_dtype="uint8", storage_scale=512.0),
    "turned-bits": binary_spec("turned-bits", 19),
    "upright": DescriptorSpec("upright", 7, frame="image"),
}
WIDTH, HARMONICS = 8, 3
ROUTES = [(s, t) for s in (*SPECS, "embedding") for t in (*SPECS, "embedding") if s != "embedding" or t != "embedding"]
FRAMED = {f"{role}/{name}" for role in ("encoder", "decoder") for name in ("turned", "turned-bits")}


def rows(n, seed=1):
    """Canonical rows of each descriptor and of the joint space, and frames."""
    rng = np.random.default_rng(seed)
    return {
        "turned": unit_rows(rng.random((n, 12))),
        "turned-bits": rng.random((n, 19)) < 0.4,
        "upright": unit_rows(rng.normal(size=(n, 7))),
        "embedding": unit_rows(rng.normal(size=(n, WIDTH))),
    }


def frames(n, seed=1):
    """Sigmas of .5 to 20 px, and angles all around."""
    rng = np.random.default_rng([seed, 7])
    return np.stack([np.exp(rng.uniform(-0.7, 3, n)), rng.uniform(-math.pi, math.pi, n)], axis=1).astype(np.float32)


def framed_translator():
    """Encoders and decoders with the sample that `by_definition` gives."""
    rng, extra = np.random.default_rng(0), 2 * HARMONICS + 1
    networks = {}
    for name, spec in SPECS.items():
        more = extra * (spec.frame == "keypoint")
        networks[f"encoder/{name}"] = _layers(rng, spec.width + more, 17, WIDTH)
        networks[f"decoder/{name}"] = _layers(rng, WIDTH + more, 11, spec.width)
    x, seen = rows(6, seed=2), frames(6, seed=2)
    held = ParitySample({n: stored(x[n], s) for n, s in SPECS.items()}, frames=dict.fromkeys(SPECS, seen))
    x["turned"] = unit_rows(held.inputs["turned"])  # what is stored is rounded
    for source in SPECS:
        held.embeddings[source] = by_definition(networks, x[source], source, "embedding", seen).astype(np.float32)
        for target in SPECS:
            held.translations[source, target] = by_definition(networks, x[source], source, target, seen, True)
    return Bundle("encoder_decoder", SPECS, WIDTH, networks, sample=held, frame="image", harmonics=HARMONICS)


def _layers(rng, *widths):
    return [
        (rng.normal(0, a**-0.5, (a, b)).astype(np.float32), rng.normal(0, 0.3, b).astype(np.float32))
        for a, b in zip(widths, widths[1:], strict=False)
    ]


def by_definition(networks, x, source, target, seen, probabilities=False):
    """[N, D], each row by itself in float64; bits or their probabilities."""
    found = []
    for row, (sigma, angle) in zip(x.astype(np.float64), seen.astype(np.float64), strict=True):
        told = [math.cos(k * angle) for k in (1, 2, 3)] + [math.sin(k * angle) for k in (1, 2, 3)]
        told.append((math.log(sigma) / math.log(2) - 1.5) / 2)
        y = row
        if source != "embedding":
            y = _one(networks, f"encoder/{source}", y, told)
            y = y / np.linalg.norm(y)
        if target != "embedding":
            y = _one(networks, f"decoder/{target}", y, told)
        if target == "turned":
            y = np.maximum(y, 0)
        if target in ("turned", "upright"):
            y = y / np.linalg.norm(y)
        if target == "turned-bits":
            y = 1 / (1 + np.exp(-y)) if probabilities else y > 0
        found.append(y)
    return np.array(found).astype(bool if target == "turned-bits" and not probabilities else np.float32)


def _one(networks, name, row, told):
    row = np.concatenate([row, told]) if name in FRAMED else row
    for i, (kernel, bias) in enumerate(networks[name]):
        row = (np.maximum(row, 0) if i else row) @ kernel.astype(np.float64) + bias
    return row
