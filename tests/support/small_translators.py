"""Small translators with random weights, and what they compute by the definition, row by row, for tests."""

from __future__ import annotations

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.translation.bundle import Bundle, ParitySample
from xdesc_jax.translation.deviation import RowStatistics

SPECS = {
    "grid": DescriptorSpec("grid", 12, output="relu", storage_dtype="uint8", storage_scale=512.0),
    "plain": DescriptorSpec("plain", 9, normalized=False),
    "bits": binary_spec("bits", 19),
}
EMBEDDING_WIDTH = 8
ROUTES = [(s, t) for s in (*SPECS, "embedding") for t in (*SPECS, "embedding") if s != "embedding" or t != "embedding"]


def layers(rng, *widths):
    return [
        (rng.normal(0, a**-0.5, (a, b)).astype(np.float32), rng.normal(0, 0.3, b).astype(np.float32))
        for a, b in zip(widths, widths[1:], strict=False)
    ]


def rows(n, seed=1):
    """Canonical rows of each descriptor and of the joint space."""
    rng = np.random.default_rng(seed)
    return {
        "grid": unit_rows(rng.random((n, 12))),
        "plain": (5 * rng.normal(size=(n, 9))).astype(np.float32),
        "bits": rng.random((n, 19)) < 0.4,
        "embedding": unit_rows(rng.normal(size=(n, EMBEDDING_WIDTH))),
    }


def encoder_decoder(sample=True):
    """Three encoders and decoders, with the sample that `by_definition` gives."""
    rng = np.random.default_rng(0)
    networks = {f"encoder/{n}": layers(rng, s.width, 17, 13, EMBEDDING_WIDTH) for n, s in SPECS.items()}
    networks |= {f"decoder/{n}": layers(rng, EMBEDDING_WIDTH, 11, s.width) for n, s in SPECS.items()}
    return _with_sample("encoder_decoder", EMBEDDING_WIDTH, networks, sample)


def pairs(sample=True):
    """A network for each ordered pair."""
    rng = np.random.default_rng(0)
    networks = {
        f"pair/{s}/{t}": layers(rng, SPECS[s].width, 13, SPECS[t].width) for s in SPECS for t in SPECS if s != t
    }
    return _with_sample("pair", 0, networks, sample)


def _with_sample(kind, width, networks, sample):
    x = rows(6, seed=2)
    held = ParitySample()
    if sample:
        held.inputs.update({n: stored(x[n], s) for n, s in SPECS.items()})
        x["grid"] = unit_rows(held.inputs["grid"])  # what is stored is rounded
        if kind == "encoder_decoder":
            held.embeddings.update({n: by_definition(networks, x[n], n, "embedding")["target"] for n in SPECS})
        ends = [(s, t) for s in SPECS for t in SPECS if kind == "encoder_decoder" or s != t]
        for s, t in ends:
            found = by_definition(networks, x[s], s, t)
            held.translations[s, t] = found.get("probabilities", found["target"]).astype(np.float32)
    statistics = {
        n: RowStatistics(
            x[n].mean(axis=0).astype(np.float32), np.ones(s.width, np.float32), np.eye(s.width, dtype="f4")
        )
        for n, s in SPECS.items()
    }
    provenance = {"steps": 780}
    return Bundle(kind, SPECS, width, networks, statistics, held, provenance=provenance, ratios={"grid->bits": 0.8})


def by_definition(networks, x, source, target):
    """Outputs by name, each row by itself in float64."""
    found = {"target": [], "probabilities": []}
    for row in x.astype(np.float64):
        y = row
        if f"pair/{source}/{target}" in networks:
            y = _one(networks[f"pair/{source}/{target}"], y)
        else:
            if source != "embedding":
                y = _one(networks[f"encoder/{source}"], y)
                y = y / np.linalg.norm(y)
            if target != "embedding":
                y = _one(networks[f"decoder/{target}"], y)
        zero = not row.any()
        if target == "grid":
            y = np.maximum(y, 0)
            y = y / np.linalg.norm(y)
        if target == "bits":
            found["probabilities"].append(np.zeros_like(y) if zero else 1 / (1 + np.exp(-y)))
            y = y > 0
        found["target"].append(np.zeros_like(y) if zero else y)
    return {name: np.array(values) for name, values in found.items() if values}


def _one(network, row):
    for i, (kernel, bias) in enumerate(network):
        row = row @ kernel.astype(np.float64) + bias
        row = np.maximum(row, 0) if i < len(network) - 1 else row
    return row
