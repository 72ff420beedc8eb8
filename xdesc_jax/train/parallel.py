"""Devices: the one module that says pmap and Mesh.

In: a step function of (state, batch, key, hyper) with an `axis_name`. Out: the same over all local devices,
with the state replicated and the batch split; and the placing of states and batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "data"


def choose_devices(require_accelerator: bool = False) -> list[Any]:
    """This process's devices.

    Raises:
        ValueError: an accelerator is asked for, and jax found none.
    """
    devices = jax.local_devices()
    if require_accelerator and devices[0].platform == "cpu":
        raise ValueError(
            "an accelerator is required, but jax found the CPU alone; install jax's build for it, as 'jax[cuda13]' or "
            "'jax[tpu]'"
        )
    return devices


def keep_compiled(devices: list[Any]) -> None:
    """Keeps an accelerator's compiled programs for later processes, unless JAX_COMPILATION_CACHE_DIR says where.

    Not a CPU's: they are made for one kind of CPU, and a home folder may be shared by machines of several.
    """
    if devices[0].platform != "cpu" and getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "xdesc-jax" / "compiled"))


def pmapped_step(step: Callable, devices: list[Any], *, together: int = 1, donate: bool = False) -> Callable:
    """`step(..., axis_name=AXIS)` over the devices; state, key and hyper have no device axis.

    Args:
        step: (state, batch, key, hyper) -> (state, metrics).
        devices: to run on.
        together: steps of one dispatch. With more than one, batches come stacked (`split_batches`) and metrics leave
            stacked, a step a row; what happens in each step is the same.
        donate: the state given is used up, so that old and new one share their memory.
    """
    one = partial(step, axis_name=AXIS)

    def several(state: Any, batches: Any, key: jax.Array, hyper: Any) -> tuple[Any, Any]:
        return lax.scan(lambda held, batch: one(held, batch, key, hyper), state, batches)

    return jax.pmap(
        several if together > 1 else one, AXIS, in_axes=(None, 0, None, None), out_axes=None, devices=devices,
        donate_argnums=(0,) if donate else (),
    )  # fmt: skip


def replicate(state: Any, devices: list[Any]) -> Any:
    """A state on all devices, as the mapped step returns it: placed otherwise, the second step compiles anew."""
    return jax.device_put(state, NamedSharding(_mesh(devices), PartitionSpec()))


def _mesh(devices: list[Any]) -> Mesh:
    return Mesh(np.asarray(devices), (AXIS,))


def resident_batches(arrays: Mapping[str, np.ndarray], devices: list[Any]) -> Callable[..., dict[str, jax.Array]]:
    """Puts a whole set on every device; row numbers alone travel from then on.

    Args:
        arrays: columns, [rows, ...] each.
        devices: where the set and the batches go.

    Returns:
        (batches of 'row' int32 [B] and 'mask' bool [B]) -> the same as `split_batches` of these rows, gathered on
        the devices.
    """
    held = replicate(dict(arrays), devices)
    sharding = NamedSharding(_mesh(devices), PartitionSpec(AXIS))
    take = jax.jit(lambda columns, rows: {name: x[rows] for name, x in columns.items()}, out_shardings=sharding)

    def place(batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, jax.Array]:
        placed = split_batches(batches, devices)
        return take(held, placed.pop("row")) | placed

    return place


def split_batches(batches: Sequence[Mapping[str, np.ndarray]], devices: list[Any]) -> dict[str, jax.Array]:
    """Host batches for one dispatch, already on their devices.

    Args:
        batches: of rows [B, ...] each.
        devices: over which each batch is split.

    Returns:
        [devices, B / devices, ...] of one batch, [devices, steps, B / devices, ...] of several.

    Raises:
        ValueError: the device count does not divide the batch.
    """
    if len(batches) == 1:
        return split_batch(batches[0], devices)
    split = [{name: _split(x, len(devices)) for name, x in batch.items()} for batch in batches]
    sharding = NamedSharding(_mesh(devices), PartitionSpec(AXIS))
    return {name: jax.device_put(np.stack([part[name] for part in split], axis=1), sharding) for name in split[0]}


def split_batch(batch: Mapping[str, np.ndarray], devices: list[Any]) -> dict[str, jax.Array]:
    """Host rows [B, ...] -> device rows [devices, B / devices, ...], already on their devices.

    Raises:
        ValueError: the device count does not divide the batch.
    """
    sharding = NamedSharding(_mesh(devices), PartitionSpec(AXIS))
    return {name: jax.device_put(_split(x, len(devices)), sharding) for name, x in batch.items()}


def _split(x: np.ndarray, count: int) -> np.ndarray:
    if len(x) % count:
        raise ValueError(f"a batch of {len(x)} rows does not divide over {count} devices")
    return x.reshape(count, len(x) // count, *x.shape[1:])
