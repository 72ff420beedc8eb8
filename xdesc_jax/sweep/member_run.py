"""The run directory of a member: what a training of its own would have left there.

In: a member's part of a population's state, epoch by epoch. Out: `W/members/<name>` with settings, statistics,
checkpoints and validation figures, which `xdesc export` and `xdesc train` take; and the member's line of the results.
"""

from __future__ import annotations

import dataclasses
import statistics as numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.whole import read_json, write_json
from xdesc_jax.sweep.config import Member
from xdesc_jax.sweep.results import Record
from xdesc_jax.train.checkpoint import METRIC, Checkpoints, Position
from xdesc_jax.train.log import read_log
from xdesc_jax.train.run_directory import append_validation, history
from xdesc_jax.train.state import TrainState
from xdesc_jax.train.translators import preparation
from xdesc_jax.train.translators.inputs import Statistics


def folder_of(workdir: Path, member: Member) -> Path:
    return workdir / "members" / member.name


def divergence(folder: Path) -> str | None:
    """Why a member stopped, where it turned non-finite."""
    return read_json(folder / "diverged.json")["reason"] if (folder / "diverged.json").exists() else None


def epochs_done(folder: Path) -> int:
    return max((entry["epoch"] for entry in history(folder)), default=0)


class MemberRun:
    """An open run directory of a member.

    Args:
        workdir: the sweep's folder.
        member: the member.
        info: of the records.
        specs: its own descriptors.
        statistics: of the group's descriptors, its own among them.
        group: the population that it trains in, and of how many members.
    """

    def __init__(
        self,
        workdir: Path,
        member: Member,
        info: RecordInfo,
        specs: dict[str, DescriptorSpec],
        statistics: Statistics,
        group: tuple[str, int],
    ):
        self.folder, self.names = folder_of(workdir, member), tuple(specs)
        run_hash = preparation.keep_run_settings(self.folder, member.config, info, specs, None, {})
        if not (self.folder / "statistics.npz").exists():
            _of_descriptors(statistics, self.names).save(self.folder / "statistics.npz")
        write_json(self.folder / "group.json", dict(zip(("group", "members_together"), group, strict=True)))
        self.checkpoints = Checkpoints(self.folder, run_hash)

    def save(self, state: TrainState, position: Position, figures: dict[str, Any]) -> None:
        """Starts to write the member's state at the end of an epoch."""
        self.checkpoints.save(own_part(state, self.names), position, {METRIC: figures[METRIC]})

    def keep_figures(self, position: Position, figures: dict[str, Any]) -> None:
        """Keeps the figures of an epoch, by which the member has come there: once its state is written."""
        append_validation(self.folder, {"step": position.step, "epoch": position.epoch, **figures})

    def keep_divergence(self, step: int) -> None:
        """Notes that the member turned non-finite, once."""
        if not (self.folder / "diverged.json").exists():
            reason = f"loss or weights are not finite in step {step}"
            write_json(self.folder / "diverged.json", {"step": step, "reason": reason})

    def begin(self, fresh: TrainState, step: int) -> TrainState:
        """The member's state after `step` steps, among networks of all descriptors of its group.

        Raises:
            ValueError: there is no such checkpoint.
        """
        self.checkpoints.set_aside_after(step)
        (self.folder / "diverged.json").unlink(missing_ok=True)
        if step == 0:
            return fresh
        found = self.checkpoints.restore(own_part(fresh, self.names))
        if found is None or found[1].step != step:
            raise ValueError(f"{self.folder}: has no checkpoint of step {step}; remove it to train this member anew")
        return _filled(found[0], fresh)


def own_part(state: TrainState, names: Sequence[str]) -> TrainState:
    """The networks of some descriptors alone: 'encoder/<name>', 'decoder/<name>', 'pair/<source>/<target>'."""

    def own(by_network: Mapping[str, Any]) -> dict[str, Any]:
        return {key: tree for key, tree in by_network.items() if set(key.split("/")[1:]) <= set(names)}

    moments = state.opt_state._replace(mu=own(state.opt_state.mu), nu=own(state.opt_state.nu))
    average = state.average and {kind: own(tree) for kind, tree in state.average.items()}
    return TrainState(state.step, own(state.params), own(state.batch_stats), moments, average)


def _filled(own: TrainState, fresh: TrainState) -> TrainState:
    """Networks of others as they were at the start: they take no part, so nothing depends on them."""
    moments = own.opt_state._replace(
        mu={**fresh.opt_state.mu, **own.opt_state.mu}, nu={**fresh.opt_state.nu, **own.opt_state.nu}
    )
    average = own.average and {kind: {**fresh.average[kind], **tree} for kind, tree in own.average.items()}
    return TrainState(
        own.step, {**fresh.params, **own.params}, {**fresh.batch_stats, **own.batch_stats}, moments, average
    )


def _of_descriptors(statistics: Statistics, names: Sequence[str]) -> Statistics:
    rows, scale, sample = statistics.rows, statistics.scale, statistics.sample
    return dataclasses.replace(
        statistics,
        rows={n: rows[n] for n in names}, scale={n: scale[n] for n in names}, sample={n: sample[n] for n in names},
    )  # fmt: skip


def record(workdir: Path, member: Member, status: str) -> Record:
    """A member's line of the results.

    Args:
        workdir: the sweep's folder.
        member: the member.
        status: 'finished', 'diverged' or 'stopped'.
    """
    folder = folder_of(workdir, member)
    entries, group = history(folder), read_json(folder / "group.json")
    measured = [entry for entry in entries if entry[METRIC] is not None]
    best = max(measured, key=lambda entry: entry[METRIC], default=None)
    log = read_log(workdir / "groups" / group["group"])
    rates = [line["rows_per_second"] for line in log if "rows_per_second" in line]
    rate = numbers.median(rates) if rates else None
    steps = entries[-1]["step"] if entries else 0
    return {
        "member": member.name,
        "status": status,
        "reason": divergence(folder) if status == "diverged" else None,
        "fields": dict(member.fields),
        "config": read_json(folder / "config.json")["config"],
        "epoch": entries[-1]["epoch"] if entries else 0,
        "steps": steps,
        "best_epoch": best["epoch"] if best else None,
        METRIC: best[METRIC] if best else None,
        "figures": {k: v for k, v in best.items() if k not in ("step", "epoch")} if best else None,
        "history": [{"epoch": e["epoch"], "step": e["step"], METRIC: e[METRIC]} for e in entries],
        **group,
        "seconds": round(steps * member.config.batch_size / rate, 1) if rate else None,
        "rows_per_second": rate,
        "run": str(folder.relative_to(workdir)),
    }
