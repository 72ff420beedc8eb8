"""A small translator whose encoders look at a photo's other rows, and what it computes by the definition, in loops."""

from __future__ import annotations

import cmath
import dataclasses
import math

import numpy as np

from tests.support.framed_translators import SPECS, framed_translator, frames, rows
from tests.support.small_translators import layers
from xdesc_jax.config import ContextConfig
from xdesc_jax.descriptors import stored, unit_rows
from xdesc_jax.translation.bundle import Bundle, ParitySample

CONTEXT = ContextConfig(of="keypoint", nearest=3, larger=2, width=6, heads=2)
TOLD = (2 + 1) * 6
WIDTH, HARMONICS, EXTRA = 8, 3, 7


def positions(n, seed=1):
    """Px of keypoints in a photo of 200 x 150."""
    return np.random.default_rng([seed, 11]).uniform(0, (200, 150), (n, 2)).astype(np.float32)


def context_translator(of="keypoint"):
    """`framed_translator` with context for its descriptors of frame 'keypoint', or every one; its sample is by
    definition."""
    plain, rng = framed_translator(), np.random.default_rng(3)
    networks, contexts = dict(plain.networks), {}
    for name in ("turned", "turned-bits", *["upright"] * (of == "every")):
        wide = SPECS[name].width + EXTRA * (name != "upright")
        networks[f"encoder/{name}"] = layers(rng, wide + TOLD, 17, WIDTH)
        shapes = [(wide, 6), (8, 6), (6, 6), (wide, 12)]
        contexts[name] = [layer for shape in shapes for layer in layers(rng, *shape)]
    held = _sample(SPECS, networks, contexts)
    return Bundle(
        "encoder_decoder", SPECS, WIDTH, networks, sample=held, frame="image", harmonics=HARMONICS, contexts=contexts,
        context=dataclasses.replace(CONTEXT, of=of),
    )  # fmt: skip


def turning_translator():
    """Context in a joint space of frame 'keypoint': rows go without frames; its sample is by definition."""
    specs = {name: spec for name, spec in SPECS.items() if name != "upright"}
    rng, networks, contexts = np.random.default_rng(4), {}, {}
    for name, spec in specs.items():
        networks[f"encoder/{name}"] = layers(rng, spec.width + TOLD, 17, WIDTH)
        networks[f"decoder/{name}"] = layers(rng, WIDTH, 11, spec.width)
        shapes = [(spec.width, 6), (8 + 2 * HARMONICS, 6), (6, 6), (spec.width, 12)]
        contexts[name] = [layer for shape in shapes for layer in layers(rng, *shape)]
    held = _sample(specs, networks, contexts, turning=True)
    return Bundle(
        "encoder_decoder", specs, WIDTH, networks, sample=held, harmonics=HARMONICS, contexts=contexts, context=CONTEXT
    )


def _sample(specs, networks, contexts, turning=False):
    """What a model makes of nine rows of one photo, by definition."""
    x, seen, at = rows(9, seed=2), frames(9, seed=2), positions(9, seed=2)
    held = ParitySample(
        {n: stored(x[n], s) for n, s in specs.items()}, frames=dict.fromkeys(specs, seen),
        positions=dict.fromkeys(contexts, at),
    )  # fmt: skip
    x["turned"] = unit_rows(held.inputs["turned"])  # what is stored is rounded
    for source in specs:
        embedded = embedded_by_definition(networks, contexts, x[source], source, seen, at, turning)
        held.embeddings[source] = embedded.astype(np.float32)
        for target in specs:
            held.translations[source, target] = decoded_by_definition(
                networks, embedded, target, None if turning else seen
            )
    return held


def embedded_by_definition(networks, contexts, x, source, seen, at, turning=False):
    """Embeddings [N, E] of a photo's rows, each by itself in float64; zero rows are nobody's neighbours, and zero.

    With `turning` in a space of frame 'keypoint'.
    """
    framed = source != "upright" and not turning
    inputs = [[*map(float, row), *(_frame(*frame) if framed else [])] for row, frame in zip(x, seen, strict=True)]
    alive = [i for i in range(len(x)) if x[i].any()]
    found = np.zeros((len(x), WIDTH))
    for i in alive:
        told = []
        if source in contexts:
            near = _neighbours(i, alive, seen, at)
            if source == "upright":  # without sigmas: the nearest alone, as if all were of one size
                near, seen = near[:3], np.ones_like(seen)
            told = _told(contexts[source], i, inputs, seen, at, near, turning)
        y = _mlp(networks[f"encoder/{source}"], np.array([*inputs[i], *told]))
        found[i] = y / np.linalg.norm(y)
    return found


def decoded_by_definition(networks, embedded, target, seen):
    """Float32 rows of the target, probabilities of bits; in a space of frame 'keypoint' where `seen` is None."""
    found = []
    for i, row in enumerate(embedded):
        told = _frame(*seen[i]) if target != "upright" and seen is not None else []
        y = _mlp(networks[f"decoder/{target}"], np.array([*row, *told]))
        if target == "turned-bits":
            found.append(1 / (1 + np.exp(-y)))
            continue
        y = np.maximum(y, 0) if target == "turned" else y
        found.append(y / np.linalg.norm(y))
    return np.array(found, np.float32).reshape(len(embedded), SPECS[target].width)


def _frame(sigma, angle):
    turns = [k * float(angle) for k in range(1, HARMONICS + 1)]
    return [*map(math.cos, turns), *map(math.sin, turns), (math.log2(float(sigma)) - 1.5) / 2]


def _neighbours(i, alive, seen, at):
    """The 3 nearest others, and the 2 nearest of a higher octave; one may be among both."""

    def nearest(of, count):
        return sorted(of, key=lambda j: math.dist(at[i].tolist(), at[j].tolist()))[:count]

    def octave(j):
        return math.floor(math.log2(seen[j, 0]))

    others = [j for j in alive if j != i]
    return [*nearest(others, 3), *nearest([j for j in others if octave(j) > octave(i)], 2)]


def _told(context, i, inputs, seen, at, near, turning):
    """Two weighted means of the neighbours' tokens, and their maximum."""
    (row, row_bias), (geometry, geometry_bias), (token, token_bias), (query, query_bias) = (
        (kernel.astype(np.float64), bias.astype(np.float64)) for kernel, bias in context
    )
    if not near:
        return [0.0] * TOLD
    tokens = []
    for j in near:
        away, reaches, turns = complex(*(at[j].astype(float) - at[i].astype(float))), (4, 16, 64), []
        if turning:  # in the plane of complex numbers: divided by the keypoint's own length and direction
            away, reaches = away / cmath.rect(float(seen[i, 0]), float(seen[i, 1])), (3, 12, 48)
            between = cmath.rect(1, float(seen[j, 1])) / cmath.rect(1, float(seen[i, 1]))
            turns = [between**k for k in (1, 2, 3)]
        lies = [math.tanh(d / reach) for reach in reaches for d in (away.real, away.imag)]
        lies += [math.log2(1 + (abs(away) / reaches[0]) ** 2) / 8, math.log2(float(seen[j, 0]) / float(seen[i, 0])) / 2]
        lies += [turn.real for turn in turns] + [turn.imag for turn in turns]
        hidden = np.maximum(np.array(inputs[j]) @ row + row_bias + np.array(lies) @ geometry + geometry_bias, 0)
        tokens.append(np.maximum(hidden @ token + token_bias, 0))
    told, asked = [], np.array(inputs[i]) @ query + query_bias
    for head in range(2):
        weights = [math.exp(float(asked[6 * head : 6 * head + 6] @ t) / math.sqrt(6)) for t in tokens]
        told += [sum(w * t[k] for w, t in zip(weights, tokens, strict=True)) / sum(weights) for k in range(6)]
    return told + [max(t[k] for t in tokens) for k in range(6)]


def _mlp(network, row):
    for i, (kernel, bias) in enumerate(network):
        row = (np.maximum(row, 0) if i else row) @ kernel.astype(np.float64) + bias
    return row
