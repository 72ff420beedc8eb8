"""The stage `xdesc sweep`: many training configurations -> a run directory each, and one table of results.

In: a sweep configuration and records. Out: what `run` makes of them. Imports jax when it runs, and not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from xdesc_jax import console
from xdesc_jax.sweep.config import SweepConfig


def sweep(
    *,
    config: SweepConfig,
    data: Path,
    workdir: Path,
    shard: str = "0/1",
    population: int = 16,
    steps_per_dispatch: int = 1,
    backend: Literal["pmap", "sharded"] = "pmap",
    require_accelerator: bool = False,
    overwrite: bool = False,
) -> Path:
    """Trains every configuration of a sweep. Started again with the same settings, it goes on where it stopped.

    Configurations that differ in seed, numbers of the optimiser, weights and margins of the losses or in which
    descriptors take part train together, on the same batches; others in turn. Each ends as if it had trained alone.

    Args:
        config: what is tried.
        data: records folder (for TFDS its version directory).
        workdir: the sweep's folder; the shards of one sweep share it.
        shard: i/n, i from 0: train only part i of n; for job arrays. Successive halving chooses within a shard.
        population: the most configurations that train together.
        steps_per_dispatch: steps that the host hands to the devices at once; changes nothing but the speed.
        backend: how the step runs on several devices: `pmap` (each computes its part), or `sharded` (`jit` of the
            global batch, XLA puts in the collectives); changes nothing but the speed.
        require_accelerator: fail where there is none, instead of training on the CPU.
        overwrite: discard what is in the folder.

    Returns:
        The sweep's folder.

    Raises:
        ValueError: a field or value that does not exist, settings that do not fit the data or the devices, or a folder
            of another sweep.
        InUse: another process trains members of this shard.
    """
    with console.status("starting jax"):
        from xdesc_jax.sweep.run import run_sweep

    return run_sweep(
        config, data, workdir, shard=shard, population=population, steps_per_dispatch=steps_per_dispatch,
        backend=backend, require_accelerator=require_accelerator, overwrite=overwrite,
    )  # fmt: skip
