"""What a training needs before its first step, for one run or for a population of them.

In: records, a configuration and devices. Out: the splits opened, figures of the training rows, validation rows on the
device, the step, batches for the loop, and a run directory with its settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from xdesc_jax.config import TrainConfig
from xdesc_jax.data.schema import TRAIN, VALIDATION, RecordInfo
from xdesc_jax.data.source import Source
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.whole import config_hash, content_hash
from xdesc_jax.networks.mlp import Networks
from xdesc_jax.train.run_directory import keep_settings
from xdesc_jax.train.translators import inputs
from xdesc_jax.train.translators.inputs import Statistics
from xdesc_jax.train.translators.step import train_step

Specs = dict[str, DescriptorSpec]


def open_splits(
    data: Path,
    config: TrainConfig,
    specs: Specs,
    looking: Sequence[str] | None = None,
    learning: Sequence[str] | None = None,
) -> tuple[Source, Source]:
    """This host's training rows, and all validation rows, with the columns that the run reads: see `open_split`."""
    host, hosts = jax.process_index(), jax.process_count()
    opened = partial(inputs.open_split, data, config=config, specs=specs, looking=looking, learning=learning)
    training = opened(TRAIN, batch_size=config.batch_size, host=host, num_hosts=hosts)
    return training, opened(VALIDATION, batch_size=min(config.batch_size, 1024))


def step_of(
    networks: Networks, config: TrainConfig, specs: Specs, statistics: Statistics, batches_per_epoch: int
) -> partial:
    """`train_step` with what a configuration says of it."""
    return partial(
        train_step,
        networks=networks,
        inputs_of=inputs.inputs_function(config, specs, statistics.scale, augment=True),
        variant=config.loss.variant,
        distance=config.loss.distance,
        negatives=config.loss.negatives,
        mining_precision=config.loss.mining_precision,
        temperature=config.loss.temperature if config.loss.matching == "contrastive" else None,
        target_matching=config.loss.beta > 0,
        total_steps=config.epochs * batches_per_epoch,
    )


def keep_run_settings(
    run: Path,
    config: TrainConfig,
    info: RecordInfo,
    specs: Specs,
    init: Path | None,
    addition: dict[str, Any],
) -> str:
    """Writes the run's settings, or compares them with what is there; returns their hash."""
    settings: dict[str, Any] = {
        "config": dataclasses.asdict(config),
        "data": {
            "path": str(info.path),
            "hash": info.config_hash,
            "rows": info.counts,
            "config": info.config,
        },
        "specs": {name: spec.to_dict() for name, spec in specs.items()},
        "init": content_hash(init) if init else None,
        "weights": {name: content_hash(file) for name, file in inputs.weight_files(config, specs).items()},
        **addition,
    }
    settings["hash"] = config_hash({"config": settings["config"], "data": info.config_hash, **_inputs(settings)})
    return keep_settings(run, settings, lambda kept: (kept["config"], {"data": kept["data"]["hash"]}, _inputs(kept)))


def _inputs(settings: dict[str, Any]) -> dict[str, Any]:
    extra = {
        key: settings[key] for key in ("freeze", "add", "retrain", "decoders", "start", "distill") if key in settings
    }
    return {key: settings.get(key) for key in ("init", "specs", "weights")} | extra


def statistics_of(
    run: Path,
    training: Source,
    specs: Specs,
    config: TrainConfig,
    looking: Sequence[str] | None = None,
    learning: Sequence[str] | None = None,
) -> Statistics:
    """Figures of the training rows, measured once and kept in the run; the same for any number of hosts."""
    path = run / "statistics.npz"
    if not path.exists():
        if training.num_hosts > 1:
            training = inputs.open_split(
                training.info.path, TRAIN, config, specs, config.batch_size, looking=looking, learning=learning
            )
        inputs.measure_statistics(training, specs, config).save(path)
    return Statistics.load(path)


def validation_rows(
    validation: Source, config: TrainConfig, specs: Specs, statistics: Statistics
) -> dict[str, jax.Array]:
    """Canonical rows [N, D] of each descriptor to validate on, on the device."""
    inputs_of = inputs.inputs_function(config, specs, statistics.scale, augment=False)
    rows, _ = inputs.collect_rows(validation.epoch(0), inputs_of, config.validation_rows)
    return {name: jnp.asarray(x) for name, x in rows.items()}
