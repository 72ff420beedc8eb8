"""One translation as other run times get it: what goes in, what comes out, and whether a written file does that.

In: a model, a source and a target. Out: the networks between them with specs, metadata, and rows with the results that
`translator` gives for them, against which a file is checked. Imports numpy alone.

The function, with [N, D] rows for any N (in StableHLO from 1 on):
    input `source`          canonical rows: bool for binary descriptors, float32 else. Where the spec is of unit length,
                            rows are normalised first, so any scale will do (512-scaled SIFT as floats, too).
    input `frames`          [N, 2] float32: sigma px and orientation in radians of the keypoints; only where a network
                            on the way takes them (joint spaces of frame 'image').
    inputs `neighbours` [N, K, D], `neighbour_frames` [N, K, 2], `offsets` [N, K, 2] px and `mask` [N, K] bool
                            rows near each row in its photo, as `photo_inputs` makes them; only where the encoder looks
                            at the photo's other rows, and `neighbour_frames` where it takes frames. What they hold
                            where `mask` is false has no effect.
    output `target`         canonical rows: float32, or bool for binary ones. Zero rows give zero rows.
    output `probabilities`  of the bits, float32 [N, bits]; only where the target is binary.
A joint space is a source or target as any descriptor, `embedding:<space id>`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xdesc_jax import __version__
from xdesc_jax.descriptors import DescriptorSpec, from_stored, unit_rows
from xdesc_jax.export.photo_inputs import photo_inputs
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.networks.context import turning
from xdesc_jax.translation import copies
from xdesc_jax.translation.bundle import Layers
from xdesc_jax.translation.translator import EMBEDDING, PARITY_TOLERANCE, Translator

FORMAT_VERSION = 1
CHECK_ROWS = 32
# What the inputs hold, as the JSON beside a file says it.
HOLDS = {
    "source": "canonical rows; zero rows give zero rows",
    "frames": "of the rows' keypoints: sigma in px, over 0, and orientation in radians from x towards y",
    "neighbours": "rows of each row's neighbours in its photo, as `source` holds them: first the `nearest` keypoints, "
    "nearest first, then the `larger` nearest of those whose sigma is in a higher octave, by floor(log2(sigma)); a row "
    "may be among both, and zero rows are nobody's neighbours",
    "neighbour_frames": "of the neighbours' keypoints",
    "offsets": "px in the photo as it lies: position of the neighbour less that of the row",
    "mask": "whether there is a neighbour; what the other inputs hold where there is none has no effect",
}

Run = Callable[..., Mapping[str, np.ndarray]]  # inputs, in order -> outputs by name


@dataclasses.dataclass(frozen=True)
class Graph:
    """One translation.

    Attributes:
        name: 'encoder/<name>', 'decoder/<name>', 'pair/<source>/<target>', or '<source>/to/<target>' for an encoder and
            a decoder.
        source: spec of the rows it takes.
        target: spec of the rows it gives.
        networks: layers by the names of the networks, in order.
        metadata: what a file says of itself, texts by name; values but the first four are JSON.
        given: inputs by name and in order, [n, ...] each: rows of a photo, the last of them zero.
        expected: outputs for these.
        framed: the networks that take frames.
        harmonics: of the orientations.
        context: the four layers by which the first network looks at neighbours; None where it does not.
        space: frame of the joint space.
    """

    name: str
    source: DescriptorSpec
    target: DescriptorSpec
    networks: dict[str, Layers]
    metadata: dict[str, str]
    given: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    framed: tuple[str, ...] = ()
    harmonics: int = 0
    context: Layers | None = None
    space: str = frame_form.KEYPOINT

    @property
    def turning(self) -> int:
        """Harmonics by which context tells how neighbours are turned, see `networks.context.turning`."""
        return turning(self.space, self.harmonics)

    @property
    def steps(self) -> list[tuple[str, Layers, bool]]:
        """The networks in order: name, layers, and whether the rows that it takes are brought to unit length first."""
        units = [self.source.normalized, *(True for _ in self.networks)]  # embeddings between encoder and decoder are
        return [(name, layers, unit) for (name, layers), unit in zip(self.networks.items(), units, strict=False)]

    @property
    def outputs(self) -> dict[str, np.dtype]:
        """Dtypes of the outputs by name."""
        if self.target.binary:
            return {"target": np.dtype(np.bool_), "probabilities": np.dtype(np.float32)}
        return {"target": np.dtype(np.float32)}


def graph(translator: Translator, source: str, target: str, config_hash: str) -> Graph:
    """The translation from `source` to `target`; either may be 'embedding'.

    Raises:
        ValueError: unknown names, or the model has no such translation.
    """
    route = translator.route(source, target)
    start, end = translator.spec(source), translator.spec(target)
    metadata = {
        "format": "xdesc-translation",
        "version": str(FORMAT_VERSION),
        "xdesc_jax": __version__,
        "config_hash": config_hash,
        "source": json.dumps(start.to_dict()),
        "target": json.dumps(end.to_dict()),
        "space_id": json.dumps(translator.space_id),
        "networks": json.dumps(route),
    }
    if (weights := copies.described(translator.bundle)) is not None:
        metadata["weights"] = json.dumps(weights)
    name = route[0] if len(route) == 1 else f"{source}/to/{target}"
    networks = {network: translator.bundle.networks[network] for network in route}
    rows, bundle, layers = _rows(translator, start), translator.bundle, None
    given, positions = {"source": rows}, None
    framed = tuple(network for network in route if bundle.takes_frames(network))
    if translator.takes_frames(source, target):
        given["frames"] = _frames(translator, start, len(rows))
    if bundle.context is not None and bundle.takes_context(route[0]):
        layers, positions = bundle.contexts[start.name], _positions(translator, start, len(rows))
        turns = start.frame == frame_form.KEYPOINT
        taken = dict(zip(("nearest", "larger"), bundle.context.neighbours(turns), strict=True))
        metadata["context"] = json.dumps(taken)
        given |= photo_inputs(rows, given["frames"] if turns else None, positions, **taken)
    expected = _expected(translator, source, target, rows, given.get("frames"), positions)
    return Graph(name, start, end, networks, metadata, given, expected, framed, bundle.harmonics, layers, bundle.frame)


def every(translator: Translator, config_hash: str) -> list[Graph]:
    """The translations that make up a model: each encoder and decoder, or each pair."""
    found = []
    for name in sorted(translator.bundle.networks):
        role, *ends = name.split("/")
        source, target = ends if role == "pair" else (ends[0], EMBEDDING) if role == "encoder" else (EMBEDDING, ends[0])
        found.append(graph(translator, source, target, config_hash))
    return found


def _rows(translator: Translator, spec: DescriptorSpec) -> np.ndarray:
    """Rows of the model's sample, or random ones where it has none, and a zero row."""
    sample = translator.bundle.sample
    if spec.name in sample.inputs:
        rows = from_stored(sample.inputs[spec.name], spec)[:CHECK_ROWS]
    elif spec.is_embedding and sample.embeddings:
        rows = np.concatenate(list(sample.embeddings.values()))[:: len(sample.embeddings)][:CHECK_ROWS]
    else:
        normal = np.random.default_rng(0).normal(size=(CHECK_ROWS, spec.width)).astype(np.float32)
        normal = np.maximum(normal, 0) if spec.output == "relu" else normal
        rows = normal > 0 if spec.binary else unit_rows(normal) if spec.normalized else normal
    rows = np.concatenate([rows, np.zeros_like(rows[:1])])
    return rows.astype(np.bool_ if spec.binary else np.float32, copy=False)


def _frames(translator: Translator, spec: DescriptorSpec, n: int) -> np.ndarray:
    """Frames of the model's sample, or random ones where it has none."""
    held = translator.bundle.sample.frames.get(spec.name, np.zeros((0, frame_form.COLUMNS), np.float32))[: n - 1]
    rng = np.random.default_rng(1)
    drawn = np.stack([np.exp2(rng.uniform(0, 4, n)), rng.uniform(-np.pi, np.pi, n)], axis=1).astype(np.float32)
    return np.concatenate([held, drawn[len(held) :]])


def _positions(translator: Translator, spec: DescriptorSpec, n: int) -> np.ndarray:
    """Positions of the model's sample, or random ones where it has none."""
    held = translator.bundle.sample.positions.get(spec.name, np.zeros((0, 2), np.float32))[: n - 1]
    drawn = np.random.default_rng(2).uniform(0, 200, (n, 2)).astype(np.float32)
    return np.concatenate([held, drawn[len(held) :]])


def _expected(
    translator: Translator, source: str, target: str, rows: np.ndarray, frames: np.ndarray | None,
    positions: np.ndarray | None,
) -> dict[str, np.ndarray]:  # fmt: skip
    stream = translator.stream(source, target)
    outputs = {"target": stream(rows, frames=frames, positions=positions)}
    if stream.target.binary:
        alive = rows.any(axis=1, keepdims=True)
        outputs["probabilities"] = np.where(alive, stream.probabilities(rows, frames, positions), 0)
    return outputs


def deviation(of: Graph, run: Run, where: str, least_rows: int = 0) -> float:
    """Largest deviation of `run` from the graph's expected outputs, over batches of all, one and `least_rows` rows.

    It is absolute, but for descriptors with values over 1, where it is relative to the largest.

    Raises:
        ValueError: outputs of other names, shapes or dtypes, other bits, or off by more than 1e-5.
    """
    worst = 0.0
    for n in (len(of.given["source"]), 1, least_rows):
        found = run(*(x[:n] for x in of.given.values()))
        for name, dtype in of.outputs.items():
            expected, y = of.expected[name][:n], np.asarray(found[name])
            if y.shape != expected.shape or y.dtype != dtype:
                raise ValueError(
                    f"{where}: output {name!r} of {n} rows is {y.dtype} {y.shape}, expected {dtype} {expected.shape}"
                )
            off = _difference(y, expected, of.expected["probabilities"][:n] if dtype == np.bool_ else None)
            if not off <= PARITY_TOLERANCE:
                raise ValueError(
                    f"{where}: output {name!r} of {n} rows is off by {off:.2g} from numpy's, "
                    f"expected at most {PARITY_TOLERANCE:g}"
                )
            worst = max(worst, off)
    return worst


def _difference(found: np.ndarray, expected: np.ndarray, probabilities: np.ndarray | None) -> float:
    if probabilities is not None:  # a bit of probability 0.5 may fall either way
        return float(np.any((found != expected) & (np.abs(probabilities - 0.5) > PARITY_TOLERANCE)))
    return float(np.abs(found - expected).max(initial=0) / np.abs(expected).max(initial=1))


def description(of: Graph) -> dict[str, Any]:
    """The graph's metadata, inputs and outputs, as JSON beside its file holds them."""
    plain = ("format", "version", "xdesc_jax", "config_hash")
    return {
        **{k: v if k in plain else json.loads(v) for k, v in of.metadata.items()},
        "inputs": {
            name: {"dtype": str(x.dtype), "shape": ["N", *x.shape[1:]], "holds": HOLDS[name]}
            for name, x in of.given.items()
        },
        "outputs": {k: {"dtype": str(v), "shape": ["N", of.target.width]} for k, v in of.outputs.items()},
    }
