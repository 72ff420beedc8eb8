"""Devices: the one module that says pmap and Mesh.

In: a step function of (state, batch, key, hyper) with an `axis_name`, and a host's part of each batch. Out: the same
over the devices of all hosts, with the state replicated and the batch split; and the placing of states and batches.
Two forms do the same: pmap, in which each device computes its part and sums are psums, and `jit` over sharded arrays,
in which the step sees the global batch and XLA puts in the collectives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xdesc_jax.data.around import Neighbourhood, take

AXIS = "data"


def choose_devices(require_accelerator: bool = False) -> list[Any]:
    """The devices of all hosts, those of a host side by side; of one process, its own.

    Raises:
        ValueError: an accelerator is asked for, and jax found none.
    """
    # jax may number the devices of a pod by where they stand; a host's rows go to its own.
    devices = sorted(jax.devices(), key=lambda device: device.process_index)
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


Step = Callable[..., tuple[Any, Any]]
HostBatches = Sequence[Mapping[str, np.ndarray]]  # of one dispatch: this host's rows, [B / hosts, ...] each


class Backend(NamedTuple):
    """One form of training on many devices. `devices` are those of all hosts, as `choose_devices` gives them."""

    axis_name: str | None  # that networks and steps are built with
    step: Callable[..., Step]  # (step, devices, together=, donate=) -> (state, batch, key, hyper) -> (state, metrics)
    replicate: Callable[[Any, list[Any]], Any]  # (state, devices) -> it on all of them
    split: Callable[[HostBatches, list[Any]], dict[str, jax.Array]]  # (batches, devices) -> what the step takes
    # (columns [rows, ...], devices, whose neighbours) -> batches of row numbers -> what the step takes
    resident: Callable[
        [Mapping[str, np.ndarray], list[Any], Neighbourhood | None], Callable[[HostBatches], dict[str, jax.Array]]
    ]


# --- pmap ------------------------------------------------------------------------------------------------
# Arrays are of this host's devices alone; jax joins those of several hosts at each call.


def pmapped_step(step: Callable, devices: list[Any], *, together: int = 1, donate: bool = False) -> Step:
    """`step(..., axis_name=AXIS)` over the devices; state, key and hyper have no device axis.

    Args:
        step: (state, batch, key, hyper) -> (state, metrics).
        devices: to run on, of all hosts.
        together: steps of one dispatch. With more than one, batches come stacked (`split_batches`) and metrics leave
            stacked, a step a row; what happens in each step is the same.
        donate: the state given is used up, so that old and new one share their memory.
    """
    return jax.pmap(
        _dispatched(partial(step, axis_name=AXIS), together), AXIS, in_axes=(None, 0, None, None), out_axes=None,
        devices=devices, donate_argnums=(0,) if donate else (),
    )  # fmt: skip


def _dispatched(one: Step, together: int) -> Step:
    def several(state: Any, batches: Any, key: jax.Array, hyper: Any) -> tuple[Any, Any]:
        return lax.scan(lambda held, batch: one(held, batch, key, hyper), state, batches)

    return several if together > 1 else one


def replicate(state: Any, devices: list[Any]) -> Any:
    """A state on this host's devices, as the mapped step gives it: placed otherwise, the second step compiles anew."""
    return jax.device_put(state, NamedSharding(_mesh(_own(devices)), PartitionSpec()))


def _own(devices: list[Any]) -> list[Any]:
    return [device for device in devices if device.process_index == jax.process_index()]


def _mesh(devices: list[Any]) -> Mesh:
    return Mesh(np.asarray(devices), (AXIS,))


def resident_batches(
    arrays: Mapping[str, np.ndarray], devices: list[Any], around: Neighbourhood | None = None
) -> Callable[[HostBatches], dict[str, jax.Array]]:
    """Puts a whole set on every device of this host; row numbers alone travel from then on.

    Args:
        arrays: columns, [rows, ...] each.
        devices: where the set and the batches go.
        around: whose neighbours batches hold, see `ResidentSet`.

    Returns:
        (batches of 'row' int32 [B] and 'mask' bool [B]) -> the same as `split_batches` of these rows, gathered on
        the devices.
    """
    held = replicate(dict(arrays), devices)
    taken = _take(NamedSharding(_mesh(_own(devices)), PartitionSpec(AXIS)), around)

    def place(batches: HostBatches) -> dict[str, jax.Array]:
        placed = split_batches(batches, devices)
        return taken(held, placed.pop("row")) | placed

    return place


def _take(sharding: NamedSharding, around: Neighbourhood | None) -> Callable[..., dict[str, jax.Array]]:
    return jax.jit(lambda columns, rows: take(columns, rows, around, jnp), out_shardings=sharding)


def split_batches(batches: HostBatches, devices: list[Any]) -> dict[str, jax.Array]:
    """Host batches for one dispatch, already on this host's devices.

    Args:
        batches: of this host's rows, [B, ...] each.
        devices: over whose own ones each batch is split.

    Returns:
        [own devices, B / own devices, ...] of one batch, [own devices, steps, B / own devices, ...] of several.

    Raises:
        ValueError: the device count does not divide the batch.
    """
    if len(batches) == 1:
        return split_batch(batches[0], devices)
    own = _own(devices)
    split = [{name: _split(x, len(own)) for name, x in batch.items()} for batch in batches]
    sharding = NamedSharding(_mesh(own), PartitionSpec(AXIS))
    return {name: jax.device_put(np.stack([part[name] for part in split], axis=1), sharding) for name in split[0]}


def split_batch(batch: Mapping[str, np.ndarray], devices: list[Any]) -> dict[str, jax.Array]:
    """Host rows [B, ...] -> device rows [own devices, B / own devices, ...], already on this host's devices.

    Raises:
        ValueError: the device count does not divide the batch.
    """
    own = _own(devices)
    sharding = NamedSharding(_mesh(own), PartitionSpec(AXIS))
    return {name: jax.device_put(_split(x, len(own)), sharding) for name, x in batch.items()}


def _split(x: np.ndarray, count: int) -> np.ndarray:
    _check_divides(len(x), count)
    return x.reshape(count, len(x) // count, *x.shape[1:])


def _check_divides(rows: int, count: int) -> None:
    if rows % count:
        raise ValueError(f"a batch of {rows} rows does not divide over {count} devices")


# --- jit over sharded arrays -----------------------------------------------------------------------------
# Arrays are global: each host holds the parts of its own devices.


def sharded_step(step: Callable, devices: list[Any], *, together: int = 1, donate: bool = False) -> Step:
    """`step(..., axis_name=None)` of the global batch, spread over the devices; arguments as for `pmapped_step`."""
    whole = NamedSharding(_mesh(devices), PartitionSpec())
    return jax.jit(
        _dispatched(partial(step, axis_name=None), together),
        in_shardings=(whole, _rows_of(devices, together), whole, whole),
        out_shardings=whole,
        donate_argnums=(0,) if donate else (),
    )


def replicate_globally(state: Any, devices: list[Any]) -> Any:
    """The same values, given on every host, as arrays on the devices of all hosts."""
    sharding = NamedSharding(_mesh(devices), PartitionSpec())
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), state)


def shard_batches(batches: HostBatches, devices: list[Any]) -> dict[str, jax.Array]:
    """This host's rows of the batches of one dispatch, as its parts of global arrays.

    Returns:
        [B, ...] of one batch, [steps, B, ...] of several, with the B rows of all hosts in their order.

    Raises:
        ValueError: the device count does not divide the batch.
    """
    _check_divides(len(next(iter(batches[0].values()))), len(_own(devices)))
    sharding = _rows_of(devices, len(batches))
    stacked = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    return {
        name: jax.make_array_from_process_local_data(sharding, x if len(batches) > 1 else x[0])
        for name, x in stacked.items()
    }


def _rows_of(devices: list[Any], together: int) -> NamedSharding:
    return NamedSharding(_mesh(devices), PartitionSpec(None, AXIS) if together > 1 else PartitionSpec(AXIS))


def shard_resident(
    arrays: Mapping[str, np.ndarray], devices: list[Any], around: Neighbourhood | None = None
) -> Callable[[HostBatches], dict[str, jax.Array]]:
    """`resident_batches` for the sharded step."""
    held = replicate_globally(dict(arrays), devices)
    takes = {several: _take(_rows_of(devices, 1 + several), around) for several in (False, True)}

    def place(batches: HostBatches) -> dict[str, jax.Array]:
        placed = shard_batches(batches, devices)
        return takes[len(batches) > 1](held, placed.pop("row")) | placed

    return place


BACKENDS = {
    "pmap": Backend(AXIS, pmapped_step, replicate, split_batches, resident_batches),
    "sharded": Backend(None, sharded_step, replicate_globally, shard_batches, shard_resident),
}
