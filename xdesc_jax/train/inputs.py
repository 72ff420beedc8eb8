"""From records to what the networks take, and the figures of the training rows.

In: a records folder and a configuration. Out: batches for the loop, the function that makes canonical rows of a
batch on the device, and mean, deviation and scale of each descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xdesc_jax.config import JitterConfig, TrainConfig
from xdesc_jax.data import open_source
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.data.source import Source
from xdesc_jax.descriptors import DescriptorSpec, get_spec, stored
from xdesc_jax.features.describe import describer
from xdesc_jax.features.jitter import JitterSettings, jitter
from xdesc_jax.train.step import Batch, describe_inputs, read_inputs

STATISTICS_ROWS = 65536
SAMPLE_ROWS = 64

InputsOf = Callable[[Batch, jax.Array], dict[str, jax.Array]]


@dataclass(frozen=True)
class Statistics:
    """Figures of the training rows of each descriptor.

    Attributes:
        mean, std: [D] of canonical rows, bits as 0 and 1.
        scale: the root mean square norm where the descriptor is neither binary nor of unit length, else 1;
            training divides by it, so that every translation loss is in units of a descriptor's length.
        sample: up to 64 rows in stored form, aligned between descriptors.
    """

    mean: dict[str, np.ndarray]
    std: dict[str, np.ndarray]
    scale: dict[str, float]
    sample: dict[str, np.ndarray]

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {}
        for field in ("mean", "std", "scale", "sample"):
            arrays |= {f"{field}/{name}": value for name, value in getattr(self, field).items()}
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> Statistics:
        found: dict[str, dict[str, Any]] = {"mean": {}, "std": {}, "scale": {}, "sample": {}}
        with np.load(path) as arrays:
            for key in arrays.files:
                field, name = key.split("/", 1)
                found[field][name] = float(arrays[key]) if field == "scale" else arrays[key]
        return cls(**found)


def choose_specs(info: RecordInfo | None, config: TrainConfig) -> dict[str, DescriptorSpec]:
    """The descriptors of a run, in the configuration's order.

    Raises:
        ValueError: fewer than one, or one that the records lack.
    """
    if config.inputs == "patches":
        if not config.descriptors:
            raise ValueError("descriptors: name them where they are computed from patches")
        return {name: get_spec(name) for name in config.descriptors}
    assert info is not None
    names = config.descriptors or tuple(info.specs)
    if missing := [name for name in names if name not in info.specs]:
        raise ValueError(f"{info.path}: records lack {missing} (they hold {', '.join(info.specs)})")
    return {name: info.specs[name] for name in names}


def open_split(
    data: Path, split: str, config: TrainConfig, specs: Mapping[str, DescriptorSpec], batch_size: int
) -> Source:
    """One split of the records with the columns that this run reads."""
    patches = config.inputs == "patches"
    columns = [] if patches else list(specs)
    return open_source(
        data, split, batch_size, columns=columns, patches=patches, seed=config.seed, resident=config.resident
    )


def inputs_function(
    config: TrainConfig, specs: Mapping[str, DescriptorSpec], scales: Mapping[str, float], augment: bool
) -> InputsOf:
    """(batch, key) -> canonical rows by descriptor; traceable, with jitter of patches where `augment`.

    Raises:
        ValueError: a descriptor that cannot be computed from patches, or lacks its weights.
    """
    if config.inputs == "columns":
        return lambda batch, key: read_inputs(batch, specs, scales)
    files = dict(entry.split("=", 1) for entry in config.weights)
    describers = {name: describer(name, Path(files[name]) if name in files else None) for name in specs}
    settings = jitter_settings(config.jitter)

    def describe(batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
        patches = batch["patch"].astype(np.float32) / 255
        if augment and config.jitter != JitterConfig():
            patches = jitter(key, patches, settings)
        return describe_inputs(patches, specs, scales, describers)

    return describe


def jitter_settings(config: JitterConfig) -> JitterSettings:
    return JitterSettings(
        rotation_deg=config.rotation_deg, scale=config.scale, shift_px=config.shift_px,
        brightness=config.brightness, contrast=config.contrast, noise=config.noise,
    )  # fmt: skip


def collect_rows(batches: Iterable[Mapping[str, np.ndarray]], inputs_of: InputsOf, rows: int) -> dict[str, np.ndarray]:
    """Canonical rows of the first batches, padding left out, at most `rows` of them, [n, D] each."""
    parts: list[dict[str, np.ndarray]] = []
    found = 0
    compiled = jax.jit(inputs_of)
    for batch in batches:
        keep = np.asarray(batch["mask"])
        made = compiled(dict(batch), jax.random.key(0))
        parts.append({name: np.asarray(x)[keep] for name, x in made.items()})
        found += int(keep.sum())
        if found >= rows:
            break
    return {name: np.concatenate([part[name] for part in parts])[:rows] for name in parts[0]}


def measure_statistics(
    source: Source, specs: Mapping[str, DescriptorSpec], config: TrainConfig, rows: int = STATISTICS_ROWS
) -> Statistics:
    """Mean, deviation and scale over the first rows of the first epoch, and a sample."""
    ones = dict.fromkeys(specs, 1.0)
    found = collect_rows(source.epoch(0), inputs_function(config, specs, ones, augment=False), rows)
    plain = {name: not (spec.binary or spec.normalized) for name, spec in specs.items()}
    rms: Callable[[np.ndarray], float] = lambda x: float(np.sqrt(np.mean(np.sum(np.square(x), axis=1))))  # noqa: E731
    return Statistics(
        mean={n: x.mean(axis=0) for n, x in found.items()},
        std={n: x.std(axis=0) for n, x in found.items()},
        scale={n: (rms(x) or 1.0) if plain[n] else 1.0 for n, x in found.items()},
        sample={n: stored(_canonical(x[:SAMPLE_ROWS], specs[n]), specs[n]) for n, x in found.items()},
    )


def _canonical(rows: np.ndarray, spec: DescriptorSpec) -> np.ndarray:
    return rows > 0.5 if spec.binary else rows


validation_inputs = partial(inputs_function, augment=False)
