"""Submits a sweep to Slurm as a job array, one shard a job, from Python.

    python -m pipelines.sweep_submitit --config configs/sweep_loss.py --data RECORDS --workdir sweeps/loss \
        --shards 8 --slurm slurm_partition=gpu slurm_gpus_per_node=1

A job that Slurm stops, because its time is over or another needs the device, is submitted again and goes on where it
was. `--cluster local` runs the shards as processes of this machine. Needs submitit (the extra of that name).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import submitit

from xdesc_jax import console
from xdesc_jax.config import load_config
from xdesc_jax.sweep.config import SweepConfig
from xdesc_jax.sweep.stage import sweep


@dataclasses.dataclass(frozen=True)
class Shard:
    """A job: trains one shard of a sweep."""

    config: Path
    data: Path
    workdir: Path
    shard: str
    population: int

    def __call__(self) -> str:
        config = load_config(self.config, SweepConfig)
        sweep(config=config, data=self.data, workdir=self.workdir, shard=self.shard, population=self.population)
        return self.shard

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """What takes the place of a job that is stopped; called by submitit."""
        return submitit.helpers.DelayedSubmission(self)


def submit(
    config: Path,
    data: Path,
    workdir: Path,
    *,
    shards: int,
    population: int = 16,
    cluster: str | None = None,
    minutes: int = 240,
    slurm: tuple[str, ...] = (),
) -> list[submitit.Job]:
    """Submits the shards of a sweep.

    Args:
        config: file with get_config() that returns a SweepConfig.
        data: records folder, seen by all jobs.
        workdir: the sweep's folder, seen by all jobs; logs of the jobs go to WORKDIR-jobs beside it.
        shards: how many jobs.
        population: the most configurations that train together.
        cluster: 'slurm', 'local' or 'debug'; none: Slurm where it is there.
        minutes: that a job may take.
        slurm: parameters of `submitit.AutoExecutor.update_parameters`, as NAME=VALUE.

    Returns:
        The jobs.
    """
    if shards < 1:
        raise ValueError(f"shards is {shards}, expected at least 1")
    config, data, workdir = (Path(path).resolve() for path in (config, data, workdir))
    executor = submitit.AutoExecutor(folder=workdir.with_name(f"{workdir.name}-jobs"), cluster=cluster)
    executor.update_parameters(timeout_min=minutes, **dict(_parameter(word) for word in slurm))
    with executor.batch():
        return [executor.submit(Shard(config, data, workdir, f"{i}/{shards}", population)) for i in range(shards)]


def _parameter(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"{word!r}: expected NAME=VALUE")
    return name, int(value) if value.isdigit() else value


def main(
    *,
    config: Path,
    data: Path,
    workdir: Path,
    shards: int = 8,
    population: int = 16,
    cluster: str | None = None,
    minutes: int = 240,
    slurm: tuple[str, ...] = (),
    wait: bool = False,
) -> None:
    """Submits a sweep as a job array.

    Args:
        config: file with get_config() that returns a SweepConfig.
        data: records folder.
        workdir: the sweep's folder; logs of the jobs go to WORKDIR-jobs.
        shards: how many jobs.
        population: the most configurations that train together.
        cluster: slurm, local or debug; none: Slurm where it is there.
        minutes: that a job may take.
        slurm: further parameters as NAME=VALUE: slurm_partition, slurm_gpus_per_node, cpus_per_task, mem_gb, ...
        wait: return when all have ended.
    """
    jobs = submit(
        config, data, workdir, shards=shards, population=population, cluster=cluster, minutes=minutes, slurm=slurm
    )
    console.info(f"submitted {', '.join(job.job_id for job in jobs)}")
    if wait:
        for job in jobs:
            console.info(f"shard {job.result()} has ended")
    console.result(workdir, next=f"xdesc sweep report {workdir}")


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(main))
