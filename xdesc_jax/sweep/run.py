"""Many training configurations -> a run directory each, and one table of results.

In: a sweep configuration and records. Out: `W/sweep.json`, `W/members/<name>` (run directories), `W/results/` (a line a
member as it ends), and all of them merged in `W/results.jsonl` and `W/results.parquet`. Started again, it goes on where
it stopped; what has ended is not done again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.files.claim import claimed, inside
from xdesc_jax.sweep import plan
from xdesc_jax.sweep.check import check_members
from xdesc_jax.sweep.config import Member, SweepConfig, expand, sweep_hash
from xdesc_jax.sweep.group import train_group
from xdesc_jax.sweep.member_run import divergence, epochs_done, record
from xdesc_jax.sweep.member_run import folder_of as run_of
from xdesc_jax.sweep.results import append_result, read_results, write_merged
from xdesc_jax.sweep.shards import WORK, claimed_shard
from xdesc_jax.train.checkpoint import METRIC
from xdesc_jax.train.devices import Backend, Devices
from xdesc_jax.train.run_directory import clear, history, keep_settings
from xdesc_jax.train.translators.inputs import frame_of

SETTINGS = "sweep.json"
SHOWN = 10


def run_sweep(
    settings: SweepConfig,
    data: Path,
    workdir: Path,
    *,
    shard: str = "0/1",
    population: int = 16,
    steps_per_dispatch: int = 1,
    backend: Backend = "pmap",
    require_accelerator: bool = False,
    overwrite: bool = False,
) -> Path:
    """Trains the members of a sweep; arguments as those of the stage (see `stage.sweep`).

    Raises:
        ValueError: a field or value that does not exist, settings that do not fit the data or the devices, or a folder
            of another sweep.
        InUse: another process trains members of this shard.
    """
    if population < 1 or steps_per_dispatch < 1:
        raise ValueError(f"population is {population}, steps_per_dispatch {steps_per_dispatch}; expected at least 1")
    index, count = plan.parse_shard(shard)
    info = RecordInfo.load(data)
    members = expand(settings)
    # What cannot be carried out must fail before anything is trained.
    devices = Devices.choose([m.config.batch_size for m in members], require_accelerator, steps_per_dispatch, backend)
    with console.status("checking all members"):
        check_members(members, info, devices, population)
    if settings.halving and len({m.config.epochs for m in members}) > 1:
        raise ValueError("halving compares members after as many epochs: epochs cannot vary with it")
    with claimed_shard(workdir, members, index, count, overwrite) as start:
        _keep_settings(workdir, settings, info, members, overwrite)
        start.close()
        mine = plan.shard_of(members, index, count)
        console.settings(
            f"xdesc sweep -> {workdir}",
            {
                "configurations": f"{len(members)}, of them {len(mine)} in shard {shard}",
                "data": data,
                "fields": ", ".join(settings.fields) or "none",
                "members of each population": [
                    len(group) for group in plan.groups(mine, population, partial(frame_of, info))
                ],
                "halving": f"one of {settings.halving} goes on" if settings.halving else None,
                "devices": f"{devices}, {backend}",
            },
        )
        lines = workdir / "results" / f"{index}-of-{count}.jsonl"
        _train(mine, settings, info, workdir, lines, population, devices)
        write_merged(workdir)
    _summary(workdir, settings.fields)
    return workdir


def _train(
    members: list[Member],
    settings: SweepConfig,
    info: RecordInfo,
    workdir: Path,
    lines: Path,
    population: int,
    devices: Devices,
) -> None:
    """Trains the members of a shard from rung to rung, and writes their results."""
    ended = {entry["member"] for entry in read_results(workdir)}
    since = 0
    last = max((member.config.epochs for member in members), default=0)
    for rung in plan.rungs(last, settings.halving, settings.first_rung):
        groups = plan.groups(members, population, partial(frame_of, info))
        for number, group in enumerate(groups, 1):
            until = min(rung, group[0].config.epochs)
            # Who has ended, in another division into shards or populations, is not trained again.
            due = [member for member in group if member.name not in ended]
            if not all(_has_come_to(run_of(workdir, member), until) for member in due):
                told = console.counted(len(due), "member")
                console.info(f"population {number} of {len(groups)}: {told} to epoch {until}")
                with contextlib.ExitStack() as claims:
                    for folder in (run_of(workdir, member) for member in due):
                        claims.enter_context(claimed(inside(folder), WORK, folder))
                    train_group(due, since, until, info, workdir, devices)
            for member in due:
                status = "diverged" if divergence(run_of(workdir, member)) else "finished"
                if status == "diverged" or until == member.config.epochs:
                    append_result(lines, record(workdir, member, status))
                    ended.add(member.name)
        if rung < last:
            kept = _survivors(members, rung, settings.halving, workdir)
            for member in members:
                if member not in kept and member.name not in ended:
                    append_result(lines, record(workdir, member, "stopped"))
                    ended.add(member.name)
            console.info(f"after epoch {rung}: {len(kept)} of {len(members)} go on")
            members = kept
        since = rung


def _has_come_to(run: Path, epoch: int) -> bool:
    return epochs_done(run) >= epoch or divergence(run) is not None


def _survivors(members: Sequence[Member], rung: int, halving: int, workdir: Path) -> list[Member]:
    """Who goes on, by the figures of that very epoch; who has diverged does not."""
    figures = {}
    for member in members:
        run = run_of(workdir, member)
        for entry in history(run):
            if entry["epoch"] == rung and divergence(run) is None and entry[METRIC] is not None:
                figures[member.name] = entry[METRIC]
    return plan.survivors(members, figures, halving)


def _keep_settings(
    workdir: Path, settings: SweepConfig, info: RecordInfo, members: Sequence[Member], overwrite: bool
) -> None:
    """Writes `sweep.json`, or compares it with what is there."""
    clear(workdir, overwrite, file=SETTINGS, kind="sweep")
    described: dict[str, Any] = {
        "hash": sweep_hash(settings, info.config_hash),
        "config": json.loads(json.dumps(settings.describe())),
        "fields": settings.fields,
        "data": {"path": str(info.path), "hash": info.config_hash},
        "members": [member.name for member in members],
    }

    def progress() -> tuple[int, int, str]:
        return len(read_results(workdir)), len(members), "members"

    def decisive(kept: dict[str, Any]) -> tuple[Any, ...]:
        return kept["config"], {"data": kept["data"]["hash"]}

    keep_settings(workdir, described, decisive, file=SETTINGS, progress=progress)


def _summary(workdir: Path, fields: Sequence[str]) -> None:
    entries = read_results(workdir)
    ranked = sorted(entries, key=lambda entry: -1 if entry[METRIC] is None else entry[METRIC], reverse=True)
    console.table(
        f"best of {len(entries)} configurations that have ended",
        ("member", *fields, "status", "epoch", "mean rank-1"),
        [
            (
                entry["member"],
                *(entry["fields"].get(field, "-") for field in fields),
                entry["status"],
                entry["best_epoch"] or "-",
                "-" if entry[METRIC] is None else entry[METRIC],
            )
            for entry in ranked[:SHOWN]
        ],
    )
    console.result(workdir, next=f"xdesc sweep report {workdir}", export=f"xdesc export {workdir}/members/NAME OUT")
