"""Trains one population up to a rung: members of one architecture, on the same batches.

In: members, records and devices. Out: their run directories after the given epoch, each as if it had trained alone;
`W/groups/<id>` with the log. A run that was killed goes on from the group's last checkpoint.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xdesc_jax import console
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.whole import config_hash
from xdesc_jax.networks.mlp import Networks, build_networks
from xdesc_jax.sweep.config import Member
from xdesc_jax.sweep.member_run import MemberRun
from xdesc_jax.train.checkpoint import METRIC, Checkpoints, Position
from xdesc_jax.train.devices import Devices
from xdesc_jax.train.loop import fit
from xdesc_jax.train.operands import settled
from xdesc_jax.train.optimizer import alike
from xdesc_jax.train.run_directory import resumed
from xdesc_jax.train.state import TrainState
from xdesc_jax.train.translators import inputs, preparation
from xdesc_jax.train.translators.population import member, population_step, stack, stack_hyper, stack_keys
from xdesc_jax.train.translators.step import Hyper, hyper_of, initialiser, keys_of, weights_key
from xdesc_jax.train.translators.validation import population_validator


def folder_of(workdir: Path, members: Sequence[Member], until: int) -> Path:
    """The folder of a population's training up to an epoch."""
    return workdir / "groups" / config_hash([[m.name for m in members], until])


def train_group(
    members: Sequence[Member], since: int, until: int, info: RecordInfo, workdir: Path, devices: Devices
) -> Path:
    """Trains members together from the end of epoch `since` to that of epoch `until`.

    Args:
        members: of one architecture, see `plan.groups`.
        since, until: epochs done before and afterwards.
        info: of the records.
        workdir: the sweep's folder.
        devices: what they train on.

    Returns:
        The group's folder.

    Raises:
        ValueError: settings that do not fit the data, or too many members for the device's memory.
    """
    taken = [inputs.choose_specs(info, m.config) for m in members]
    specs = {name: spec for own in taken for name, spec in own.items()}
    shared = dataclasses.replace(members[0].config, descriptors=tuple(specs))
    folder = folder_of(workdir, members, until)
    with console.status("reading the records"):
        training, validation = preparation.open_splits(info.path, shared, specs)
        statistics = preparation.statistics_of(folder, training, specs, shared)
        rows = preparation.validation_rows(validation, shared, specs, statistics)
    model = settled(shared.model, shared.batch_size // len(devices.devices), workdir)
    plain, networks = (build_networks(specs, model, axis) for axis in (None, devices.axis_name))
    group = (folder.name, len(members))
    runs = [MemberRun(workdir, m, info, own, statistics, group) for m, own in zip(members, taken, strict=True)]
    checkpoints = Checkpoints(folder, folder.name)
    batches = devices.batches(training)
    with console.status("preparing the networks"):
        state, start = _begin(checkpoints, plain, members, runs, Position(since * batches.per_epoch, since, 0))
    step = partial(
        population_step,
        step=preparation.step_of(networks, shared, specs, statistics, batches.per_epoch),
        in_turn=devices.platform == "cpu",
    )
    measure = population_validator(plain, [run.names for run in runs])

    def validate(now: Any) -> dict[str, Any]:
        held = jax.device_get(now)
        done = int(held.step)
        position = Position(done, done // batches.per_epoch, 0)
        measured = measure(held.weights, rows)
        going = [i for i in range(len(runs)) if not held.stopped[i]]
        for i, run in enumerate(runs):
            if i in going:
                run.save(member(held, i), position, measured[i])
            else:
                run.keep_divergence(int(held.stopped[i]))
        for run in runs:
            run.checkpoints.verify()
        for i in going:  # who has figures of the last epoch is not trained again, so its checkpoint has to be there
            runs[i].keep_figures(position, measured[i])
        found = {members[i].name: measured[i][METRIC] for i in going}
        return {METRIC: max(found.values(), default=0.0), "members": found}

    try:
        fit(
            state, start, step, devices, batches, validate, checkpoints, folder,
            dataclasses.replace(shared, epochs=until), stack_keys([keys_of(m.config) for m in members]),
            _hyper(members, taken, plain), members=[m.name for m in members],
        )  # fmt: skip
    except RuntimeError as error:  # what XLA raises
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise ValueError(
            f"{len(members)} members together do not fit into the memory of {devices.kind}; pass a smaller --population"
        ) from error
    finally:
        for open_one in (checkpoints, *(run.checkpoints for run in runs)):
            open_one.close()
    shutil.rmtree(checkpoints.directory)  # the members' own say all
    return folder


def _begin(
    checkpoints: Checkpoints, plain: Networks, members: Sequence[Member], runs: Sequence[MemberRun], first: Position
) -> tuple[TrainState, Position]:
    """The population's latest checkpoint, or its members' states at the start of this part."""
    create = initialiser(plain, members[0].config)  # those with an average of weights are in groups of their own
    fresh = [jax.device_get(create(weights_key(m.config))) for m in members]
    found = resumed(checkpoints, stack(fresh, [0] * len(members)))
    if found is None:
        return stack([run.begin(s, first.step) for run, s in zip(runs, fresh, strict=True)], [0] * len(members)), first
    for run in runs:
        run.checkpoints.set_aside_after(found[1].step)
    return found


def _hyper(members: Sequence[Member], taken: Sequence[Mapping[str, DescriptorSpec]], plain: Networks) -> Hyper:
    """Numbers of all members; masks of descriptors only where one member leaves some out."""
    active: list[Any] = [np.array([name in own for name in plain.names]) for own in taken]
    masked = not all(mask.all() for mask in active)
    hyper = [hyper_of(member.config) for member in members]
    numbers = alike([own.optimizer for own in hyper])
    return stack_hyper(
        [
            own._replace(optimizer=its, active=mask if masked else None)
            for own, its, mask in zip(hyper, numbers, active, strict=True)
        ]
    )
