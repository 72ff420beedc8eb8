"""The training of a translator: records -> run directory.

In: a records folder and a configuration. Out: a run directory with configuration, statistics, checkpoints, log
and validation figures. Started again with the same settings, it goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax

from xdesc_jax import console, pretrained
from xdesc_jax.config import TrainConfig
from xdesc_jax.data.schema import TRAIN, RecordInfo
from xdesc_jax.data.source import Source
from xdesc_jax.files.whole import content_hash
from xdesc_jax.networks.mlp import Networks, build_networks
from xdesc_jax.train import hosts
from xdesc_jax.train.checkpoint import Checkpoints, Position
from xdesc_jax.train.devices import Backend, Devices
from xdesc_jax.train.loop import fit
from xdesc_jax.train.operands import settled
from xdesc_jax.train.run_directory import clear, figure_told, history, resumed
from xdesc_jax.train.state import TrainState
from xdesc_jax.train.translators import inputs, preparation
from xdesc_jax.train.translators.distilled import pupils, settings_of, taught, with_teacher
from xdesc_jax.train.translators.frozen import (
    check_start,
    freeze_members,
    keep_frozen,
    like,
    with_added,
    without,
    without_decoders,
)
from xdesc_jax.train.translators.inputs import Statistics
from xdesc_jax.train.translators.step import create_state, hyper_of, initialiser, keys_of, weights_key
from xdesc_jax.train.translators.validation import validator
from xdesc_jax.train.translators.warmstart import check_fit, start_from_bundle
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.bundle import load as load_bundle


def train(
    config: TrainConfig,
    data: Path,
    workdir: Path,
    *,
    init: Path | None = None,
    freeze: Literal["all", "none"] = "none",
    add: tuple[str, ...] = (),
    retrain: tuple[str, ...] = (),
    decoders: tuple[str, ...] = (),
    start: Path | None = None,
    distill: Path | None = None,
    steps_per_dispatch: int = 1,
    backend: Backend = "pmap",
    require_accelerator: bool = False,
    overwrite: bool = False,
) -> Path:
    """Trains a translator, or goes on with a run that was stopped.

    Args:
        config: the configuration.
        data: records folder (for TFDS its version directory).
        workdir: the run directory.
        init: model file to start from, or the name of one that ships with the package.
        freeze: 'all' leaves the model's members as they are, bit for bit, and so the name of its joint space.
        add: descriptors of the records to add to the model.
        retrain: members of the model to train anew in its joint space, while the others stay as they are.
        decoders: members whose decoders learn on, while their encoders, which hold the joint space, stay.
        start: where members stay as they are, another model file, from which what is added or retrained starts.
        distill: the model whose embeddings encoders learn to give; a model file, or the name of one that ships.
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
    data, run = Path(data), Path(workdir)
    info = RecordInfo.load(data)
    init = pretrained.resolve(init) if init else None
    bundle = load_bundle(init) if init else None
    for option, names in (("--retrain", retrain), ("--decoders", decoders)):
        if names and (bundle is None or freeze != "all"):
            raise ValueError(f"{option} {' '.join(names)}: is for members of --init with --freeze all")
    if bundle is not None and retrain:
        bundle = without(bundle, retrain)
    new = (*retrain, *add)
    start = pretrained.resolve(start) if start else None
    start_bundle = load_bundle(start) if start else None
    teacher = None
    if distill is not None:
        if freeze != "none" or new or start is not None:
            raise ValueError("--distill trains encoders, fresh ones or those of --init, without --freeze and --start")
        distill = pretrained.resolve(distill)
        teacher = load_bundle(distill)
        config = taught(config, info.specs, teacher)
    config = with_added(
        config, None if config.inputs == "patches" else tuple(info.specs), bundle, freeze, new, decoders
    )
    if bundle is not None:
        config = like(config, bundle, info.specs)
    specs = inputs.choose_specs(info, config)
    devices = Devices.choose([config.batch_size], require_accelerator, steps_per_dispatch, backend)
    # What cannot be carried out must fail here, before anything is written.
    frozen = without_decoders(bundle, decoders) if bundle is not None and freeze == "all" else None
    looking = inputs.looking_at_neighbours(specs, config, frozen, teacher)
    learning = (*new, *decoders) if frozen is not None else None  # all
    with console.status("opening the records"):
        training, validation = preparation.open_splits(data, config, specs, looking, learning)
    inputs.inputs_function(config, specs, dict.fromkeys(specs, 1.0), augment=True)
    plain = build_networks(specs, config.model)
    if bundle is not None:
        asked = pupils(plain, looking) if teacher is not None else plain
        check_fit(bundle, asked, _shapes(asked), frozen=frozen is not None)
    check_start(start_bundle, freeze, new)
    # The decoders of members start from the model itself, whatever what is added or retrained starts from.
    begun = [("--start", start_bundle)] if start_bundle is not None else []
    begun += [("--init", bundle)] if bundle is not None and (frozen is None or decoders) else []
    if frozen is not None:
        asked = freeze_members(plain, frozen, {})
        for option, held in begun:
            check_fit(held, asked, _shapes(asked), option=option)
    addition: dict[str, Any] = {"freeze": freeze, "add": new} if new or frozen is not None else {}
    addition |= {"decoders": decoders} if decoders else {}
    addition |= {"retrain": retrain} if retrain else {}
    addition |= {"start": content_hash(start)} if start else {}
    if teacher is not None:
        assert distill is not None
        addition["distill"] = settings_of(teacher, content_hash(distill))
    with hosts.lead_first("settings"):
        clear(run, overwrite)
        run_hash = preparation.keep_run_settings(run, config, info, specs, init, addition)
        if frozen is not None:
            assert init is not None
            keep_frozen(run, init)
        with console.status("measuring the training rows"):
            statistics = preparation.statistics_of(run, training, specs, config, looking, learning)
        model = settled(config.model, config.batch_size // len(devices.devices), run)
    with console.status("reading the validation rows"):
        rows = preparation.validation_rows(validation, config, specs, statistics)
    console.settings(
        f"xdesc train -> {run}",
        {
            "": dataclasses.replace(config, descriptors=()),  # those below
            "data": f"{data} ({_told(training)} to train on, {len(next(iter(rows.values()))):,} to validate)",
            "descriptors": ", ".join(specs),
            "init": init,
            "freeze": freeze if freeze != "none" else None,
            "add": add,
            "retrain": retrain,
            "decoders": decoders,
            "start": start,
            "distill": distill,
            "devices": f"{devices}, {console.counted(jax.process_count(), 'host')}",
            "backend": backend if backend != "pmap" else None,
        },
    )
    plain, networks = (build_networks(specs, model, axis) for axis in (None, devices.axis_name))
    if frozen is not None:
        plain, networks = (freeze_members(n, frozen, statistics.scale) for n in (plain, networks))
    if teacher is not None:
        plain, networks = (with_teacher(n, config, teacher, statistics.scale) for n in (plain, networks))
    step = preparation.step_of(networks, config, specs, statistics, training.batches_per_epoch)
    measure = validator(plain)

    def validate(state: TrainState) -> dict[str, Any]:
        # Every host measures, by itself: from its own copy, as a computation on global arrays is all hosts' together.
        held = jax.device_get(state) if hosts.several() else state
        return measure(held.weights, rows)

    with closing(Checkpoints(run, run_hash)) as checkpoints:
        with console.status("preparing the networks"):
            state, position = _begin(checkpoints, plain, config, [held for _, held in begun], rows, statistics)
        fit(
            state, position, step, devices, devices.batches(training), validate, checkpoints, run, config,
            keys_of(config), hyper_of(config),
        )  # fmt: skip
    if hosts.is_lead():
        _summary(run)
    return run


def _told(training: Source) -> str:
    """How many rows are trained on, and of how many, where those that nothing learns from are passed over."""
    every = training.info.counts[TRAIN]
    return f"{training.rows:,} rows" + (f" of {every:,}" if training.rows < every else "")


def _shapes(networks: Networks) -> TrainState:
    """The shapes of a state of these networks."""
    return jax.eval_shape(partial(create_state, networks), jax.random.key(0))


def _begin(
    checkpoints: Checkpoints,
    networks: Networks,
    config: TrainConfig,
    begun: Sequence[Bundle],
    rows: dict[str, jax.Array],
    statistics: Statistics,
) -> tuple[TrainState, Position]:
    """The state to start from: the latest good checkpoint, the models given, the last one last, or fresh weights."""
    create, key = initialiser(networks, config), weights_key(config)
    if (found := resumed(checkpoints, jax.eval_shape(create, key))) is not None:
        return found
    state = create(key)
    for bundle in begun:
        state = start_from_bundle(state, networks, bundle, rows, statistics.scale)
    return state, Position(0, 0, 0)


def _summary(run: Path) -> None:
    figures = history(run)[-1]
    console.table(
        f"validation after epoch {figures['epoch']}",
        ("pair", "translation error", "bit accuracy", "rank-1"),
        [
            (p, *map(figure_told, (figures["translation_error"][p], figures["bit_accuracy"].get(p, "-"), rank1)))
            for p, rank1 in figures["rank1"].items()
        ]
        + [(f"joint {p}", "-", "-", figure_told(v)) for p, v in figures["joint_rank1"].items()],
    )
    console.result(run, figures=run / "validation.json", next=f"xdesc export {run} model.safetensors")
