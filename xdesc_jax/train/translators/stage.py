"""The stage `xdesc train`: records -> run directory.

In: a records folder and a configuration. Out: what `run` makes of them, on one host or several. Imports jax when it
runs, and not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from xdesc_jax import console
from xdesc_jax.config import TrainConfig


def train(
    *,
    data: Path,
    workdir: Path,
    config: TrainConfig = TrainConfig(),  # noqa: B008
    init: Path | None = None,
    freeze: Literal["all", "none"] = "none",
    add: tuple[str, ...] = (),
    retrain: tuple[str, ...] = (),
    decoders: tuple[str, ...] = (),
    start: Path | None = None,
    distill: Path | None = None,
    steps_per_dispatch: int = 1,
    backend: Literal["pmap", "sharded"] = "pmap",
    coordinator: str | None = None,
    num_hosts: int | None = None,
    host_id: int | None = None,
    host_timeout: int = 100,
    require_accelerator: bool = False,
    overwrite: bool = False,
) -> Path:
    """Records -> run directory. Started again with the same settings, it goes on where it stopped.

    Args:
        data: records folder (for TFDS its version directory).
        workdir: the run directory.
        config: the configuration.
        init: model file to start from, or the name of one that ships with the package (see `xdesc models`).
        freeze: `all` trains what --add names into the joint space of --init and leaves its members as they are,
            bit for bit: embeddings made with it before match those made afterwards.
        add: descriptors of the records to add to the model of --init.
        retrain: with `--freeze all`, members of --init whose networks are made anew in its joint space, which the
            others hold: with more rows, other widths (`--model.hidden 384 384`) or context.
        decoders: with `--freeze all`, members of --init whose decoders learn on from where they are, while their
            encoders stay: translations to them change, embeddings do not.
        start: with `--freeze all`, another model file that holds what is added or retrained, in a joint space near that
            of --init (as one trained on all together from it), or --init itself: they start from its networks, not
            from fresh weights.
        distill: a model file, or the name of one that ships: encoders alone are trained, to give what those of this
            model give, in its joint space; smaller ones for devices, by the widths of the configuration. With --init,
            those of an earlier such model learn on.
        steps_per_dispatch: steps that the host hands to the devices at once; changes nothing but the speed.
        backend: how the step runs on several devices: `pmap` (each computes its part), or `sharded` (`jit` of the
            global batch, XLA puts in the collectives); changes nothing but the speed.
        coordinator: host:port of the first of several hosts, where jax does not find them out by itself (as it
            does in a Slurm step, an indexed Kubernetes job, on TPU pods).
        num_hosts: how many processes train together; 1: this one alone, wherever it runs.
        host_id: which of them this is, from 0.
        host_timeout: seconds after which a host that does not answer ends the run.
        require_accelerator: fail where there is none, instead of training on the CPU.
        overwrite: discard what is in the run directory.

    Returns:
        The run directory.

    Raises:
        ValueError: settings that do not fit the data or the devices, or a run made with other settings.
        InUse: another process trains in the run directory.
        FloatingPointError: training diverged.
    """
    with console.status("starting jax"):
        from xdesc_jax.train import hosts
        from xdesc_jax.train.run_directory import claimed
        from xdesc_jax.train.translators import run

    with hosts.joined(coordinator, num_hosts, host_id, host_timeout), claimed(Path(workdir), "xdesc train"):
        return run.train(
            config, data, workdir, init=init, freeze=freeze, add=add, retrain=retrain, decoders=decoders, start=start,
            distill=distill,
            steps_per_dispatch=steps_per_dispatch, backend=backend, require_accelerator=require_accelerator,
            overwrite=overwrite,
        )  # fmt: skip
