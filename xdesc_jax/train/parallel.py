"""Devices: the one module that says pmap and Mesh.

In: a step function of (state, batch, key, hyper) with an `axis_name`. Out: the same over all local devices,
with the state replicated and the batch split; and the placing of states and batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "data"


def pmapped_step(step: Callable, devices: list[Any]) -> Callable:
    """`step(..., axis_name=AXIS)` over the devices; state, key and hyper have no device axis."""
    return jax.pmap(partial(step, axis_name=AXIS), AXIS, in_axes=(None, 0, None, None), out_axes=None, devices=devices)


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
        ({'row': int32 [B], 'mask': bool [B]}) -> the same as `split_batch` of these rows, gathered on the devices.
    """
    held = replicate(dict(arrays), devices)
    sharding = NamedSharding(_mesh(devices), PartitionSpec(AXIS))
    take = jax.jit(lambda columns, rows: {name: x[rows] for name, x in columns.items()}, out_shardings=sharding)

    def place(batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        placed = split_batch(batch, devices)
        return take(held, placed.pop("row")) | placed

    return place


def split_batch(batch: Mapping[str, np.ndarray], devices: list[Any]) -> dict[str, jax.Array]:
    """Host rows [B, ...] -> device rows [devices, B / devices, ...], already on their devices.

    Raises:
        ValueError: the device count does not divide the batch.
    """
    sharding = NamedSharding(_mesh(devices), PartitionSpec(AXIS))
    count = len(devices)

    def place(x: np.ndarray) -> jax.Array:
        if len(x) % count:
            raise ValueError(f"a batch of {len(x)} rows does not divide over {count} devices")
        return jax.device_put(x.reshape(count, len(x) // count, *x.shape[1:]), sharding)

    return {name: place(x) for name, x in batch.items()}
