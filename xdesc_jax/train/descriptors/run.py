"""The training of a descriptor: records of pairs -> run directory.

In: records folders of pairs, mixed by weight, and a configuration. Out: a run directory with configuration,
checkpoints, log and validation figures. Started again with the same settings, it goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jax

from xdesc_jax import console, pretrained
from xdesc_jax.data.mixture import Mixture, Part, validation_rows
from xdesc_jax.features import l2net
from xdesc_jax.features.l2net import L2Net
from xdesc_jax.files.whole import config_hash, content_hash, read_json, write_json
from xdesc_jax.train import hosts
from xdesc_jax.train.checkpoint import Checkpoints, Position
from xdesc_jax.train.descriptors.config import DescriptorConfig
from xdesc_jax.train.descriptors.step import DescriptorHyper, augment, create_state, keys_of, network_of, train_step
from xdesc_jax.train.descriptors.validation import validator
from xdesc_jax.train.devices import Backend, Devices
from xdesc_jax.train.loop import fit
from xdesc_jax.train.optimizer import numbers_of
from xdesc_jax.train.randomness import Use, key_of
from xdesc_jax.train.run_directory import clear, figure_told, history, keep_settings, resumed
from xdesc_jax.train.state import TrainState


def train_descriptor(
    config: DescriptorConfig,
    parts: list[Part],
    workdir: Path,
    *,
    init: Path | None = None,
    steps_per_dispatch: int = 1,
    backend: Backend = "pmap",
    require_accelerator: bool = False,
    overwrite: bool = False,
) -> Path:
    """Trains a descriptor, or goes on with a run that was stopped.

    Args:
        config: the configuration.
        parts: records folders of pairs, with weights.
        workdir: the run directory.
        init: weight file to start from, of either network.
        steps_per_dispatch: steps that the host hands to the devices at once; changes nothing but the speed.
        backend: how the step runs on several devices, see `parallel.BACKENDS`; changes nothing but the speed.
        require_accelerator: fail where there is none, instead of training on the CPU.
        overwrite: discard what is in `workdir`.

    Returns:
        The run directory.

    Raises:
        ValueError: settings that do not fit the data or the devices, or a run made with other settings.
        FloatingPointError: training diverged.
    """
    run = Path(workdir)
    devices = Devices.choose([config.batch_size], require_accelerator, steps_per_dispatch, backend)
    device = f"{devices} ({os.cpu_count()} cores)" if devices.platform == "cpu" else str(devices)
    # What cannot be carried out must fail here, before anything is written.
    init = pretrained.resolve(init, "weights") if init else None
    given = l2net.load_either(init) if init else None
    with console.status("opening the records"):
        training = Mixture(
            parts, config.batch_size, config.seed, config.resident, config.rows_per_epoch, jax.process_index(),
            jax.process_count(),
        )  # fmt: skip
        held_out = {name: validation_rows(p, config.validation_rows) for name, p in _names(parts).items()}
    with hosts.lead_first("settings"):
        clear(run, overwrite)
        run_hash = _prepare(run, config, parts, training, init, device)
    console.settings(
        f"xdesc train-descriptor -> {run}",
        {
            "": config,
            "data": "; ".join(
                f"{info.path}: {share} of {config.batch_size} pairs a batch, {console.shown(info.counts)}"
                for info, share in zip(training.infos, training.shares, strict=True)
            ),
            "init": init,
            "epoch": f"{training.batches_per_epoch:,} steps, {training.rows:,} pairs",
            "devices": f"{device}, {jax.process_count()} host(s), {backend}",
        },
    )
    measure = validator(config.network, config.loss, config.margin, config.batch_size)

    def validate(state: TrainState) -> dict[str, Any]:
        # Every host measures, by itself.
        held = jax.device_get(state.weights)
        return measure(network_of(**held), held_out)

    with closing(Checkpoints(run, run_hash)) as checkpoints:
        with console.status("preparing the network"):
            state, start = _begin(checkpoints, config, given)
        if hosts.is_lead() and not (run / "start.json").exists():
            with console.status("validating what training starts from"):
                write_json(run / "start.json", validate(state))  # untrained, or of the weights given
        fit(
            state, start, _step(config, training, devices.platform), devices, devices.batches(training), validate,
            checkpoints, run, config, keys_of(config.seed),
            DescriptorHyper(numbers_of(config.optimizer), config.margin),
        )  # fmt: skip
    if hosts.is_lead():
        _summary(run)
    return run


def _names(parts: list[Part]) -> dict[str, Part]:
    """Parts by the names of their folders, or by their paths where names repeat."""
    names = [part.path.resolve().name for part in parts]
    return {name if names.count(name) == 1 else str(p.path): p for name, p in zip(names, parts, strict=True)}


def _step(config: DescriptorConfig, training: Mixture, platform: str) -> partial:
    changes = dataclasses.asdict(config.augmentation)
    return partial(
        train_step,
        kind=config.network,
        loss=config.loss,
        augmentation=partial(augment, **changes) if any(changes.values()) else None,
        dropout=config.dropout,
        weight_decay=config.weight_decay,
        total_steps=config.epochs * training.batches_per_epoch,
        convolution=l2net.training_convolution(platform, config.precision),
        mining_precision=config.mining_precision,
    )


def _begin(checkpoints: Checkpoints, config: DescriptorConfig, given: L2Net | None) -> tuple[TrainState, Position]:
    """The state to start from: the latest good checkpoint, the weights given with --init, or fresh ones."""
    net = given or jax.jit(l2net.init)(key_of(config.seed, Use.WEIGHTS))
    state = create_state(net, average=config.optimizer.ema > 0)
    return resumed(checkpoints, state) or (state, Position(0, 0, 0))


def _prepare(
    run: Path, config: DescriptorConfig, parts: list[Part], training: Mixture, init: Path | None, device: str
) -> str:
    """Writes the run's settings, or compares them with what is there; returns their hash."""
    data = {
        name: {"hash": info.config_hash, "weight": weight, "share": share}
        for name, info, weight, share in zip(
            _names(parts), training.infos, training.weights, training.shares, strict=True
        )
    }
    decisive: dict[str, Any] = {
        "config": dataclasses.asdict(config),
        "data": data,
        "init": content_hash(init) if init else None,
    }
    settings = {**decisive, "hash": config_hash(decisive), "device": device}
    settings["started_from"] = started_from(init) if init else None
    settings["rows"] = {name: info.counts for name, info in zip(_names(parts), training.infos, strict=True)}
    settings["rows_per_epoch"] = training.rows
    return keep_settings(run, settings, lambda kept: ({key: kept.get(key) for key in decisive},))


def started_from(init: Path) -> dict[str, Any]:
    """Which weights a run starts from: their hash, and what their card says of them where it lies beside them."""
    beside = init.with_suffix(".json")
    card = read_json(beside) if beside.exists() else {}
    told = {key: card.get(key) for key in ("name", "run_hash", "pairs")}
    return {"hash": content_hash(init), **told}


def _summary(run: Path) -> None:
    start, figures = read_json(run / "start.json"), history(run)[-1]
    console.table(
        f"validation after epoch {figures['epoch']} (at the start)",
        ("records", "rank-1", "FPR at 95 % recall", "loss"),
        [
            (
                name,
                *(
                    f"{figure_told(figures[figure][name], 4)} ({figure_told(start[figure][name], 4)})"
                    for figure in ("rank1", "fpr95", "loss")
                ),
            )
            for name in figures["rank1"]
        ],
    )
    following = f"xdesc export-descriptor {run} weights.safetensors"
    console.result(run, figures=run / "validation.json", next=following)
