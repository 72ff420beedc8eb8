"""The objective of a training step written out from the paper's definitions in numpy, float64, one row at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec

Pairs = Sequence[tuple[str, str]]


def network(params: Mapping, x: np.ndarray) -> np.ndarray:
    """Linear -> batch norm with the batch's own statistics -> ReLU a hidden layer, then Linear."""
    layer = 0
    while f"norm{layer}" in params:
        x = x @ np.float64(params[f"linear{layer}"]["kernel"])
        norm = params[f"norm{layer}"]
        x = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5) * np.float64(norm["scale"]) + np.float64(
            norm["offset"]
        )
        x = np.maximum(x, 0)
        layer += 1
    last = params[f"linear{layer}"]
    return x @ np.float64(last["kernel"]) + np.float64(last["bias"])


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def errors(raw: np.ndarray, target: np.ndarray, spec: DescriptorSpec) -> tuple[np.ndarray, np.ndarray]:
    """L^T of each row, and the translation (for bits: probabilities)."""
    if spec.binary:
        p = 1 / (1 + np.exp(-raw))
        return -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean(axis=1), p
    if spec.output == "relu":
        raw = np.maximum(raw, 0)
    if spec.normalized:
        raw = unit(raw)
    return np.linalg.norm(raw - target, axis=1), raw


def triplets(
    anchor: np.ndarray, other: np.ndarray, margin: float, distance: str, points: np.ndarray | None = None,
    positive: np.ndarray | None = None,
) -> list[float]:  # fmt: skip
    """max(m + d(positive) - d(nearest other row), 0) of each row of `anchor`, whose positive is that of `other`.

    Rows of the same of `points` are no others; `positive` are the rows that are, if not those of the same number.
    """
    found = []
    points = np.arange(len(anchor)) if points is None else points
    for i, row in enumerate(anchor):
        apart = ((row - other) ** 2).sum(axis=1)
        apart = apart if distance == "squared" else np.sqrt(apart)
        near = apart[i if positive is None else positive[i]]
        found.append(max(margin + near - apart[points != points[i]].min(), 0.0))
    return found


def objective(
    specs: Mapping[str, DescriptorSpec],
    params: Mapping,
    inputs: Mapping[str, np.ndarray],
    translated: Pairs,
    matched: Pairs,
    *,
    margin: float,
    target_margin: float,
    distance: str,
    held: Mapping[str, np.ndarray] | None = None,
    points: np.ndarray | None = None,
) -> dict[str, float]:
    """'translation', 'matching' and 'target_matching', each the mean over its pairs and rows.

    Args:
        specs: the descriptors; no two rows of one are equal.
        params: of the networks 'encoder/<name>' and 'decoder/<name>'.
        inputs: canonical rows [B, D].
        translated: (source, target); a decoder's batch norm sees the rows of all its sources together.
        matched: (anchor, positive) in the joint space.
        held: [B] bool by descriptor, which rows it has; all where not given.
        points: [B], of rows 2 k and 2 k + 1 the same; these two are each other's positives in the joint space.
    """
    twos = None if points is None else np.arange(len(points)) // 2 * 2 + 1 - np.arange(len(points)) % 2
    inputs = {name: np.float64(x) for name, x in inputs.items()}
    has = held or {name: np.ones(len(x), bool) for name, x in inputs.items()}
    z = {}
    for name, x in inputs.items():
        own = unit(network(params[f"encoder/{name}"], x[has[name]]))
        z[name] = np.full((len(x), own.shape[1]), np.nan)
        z[name][has[name]] = own
    translation, target_matching = [], []
    for target, spec in specs.items():
        both = {s: has[s] & has[target] for s, t in translated if t == target}
        raw = network(params[f"decoder/{target}"], np.concatenate([z[s][rows] for s, rows in both.items()]))
        ends = np.cumsum([rows.sum() for rows in both.values()])
        for part, own in zip(np.split(raw, ends[:-1]), both.values(), strict=True):
            error, rows = errors(part, inputs[target][own], spec)
            translation += error.tolist()
            signed = [(2 * x - 1) / np.sqrt(spec.width) if spec.binary else x for x in (rows, inputs[target][own])]
            for anchor, other in (signed, signed[::-1]):
                target_matching += triplets(anchor, other, target_margin, distance, points)
    matching = []
    for a, b in matched:
        own = has[a] & has[b]
        matching += triplets(z[a][own], z[b][own], margin, distance, points, twos)
    return {
        "translation": float(np.mean(translation)),
        "matching": float(np.mean(matching)),
        "target_matching": float(np.mean(target_matching)),
    }
