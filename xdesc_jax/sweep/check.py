"""Whether every member of a sweep can be trained, found out before the first one is.

In: the members, records and devices. Out: nothing, or an error that names the first member that cannot be trained and
why: fields and descriptors, batches against the rows of each split, networks, and the weights of a population against
the memory of a device, where jax knows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache, partial

import jax

from xdesc_jax.config import JitterConfig, ModelConfig, TrainConfig
from xdesc_jax.console import shown
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.files.whole import config_hash
from xdesc_jax.networks.mlp import build_networks
from xdesc_jax.sweep import plan
from xdesc_jax.sweep.config import Member
from xdesc_jax.train.devices import Devices
from xdesc_jax.train.translators import inputs, preparation
from xdesc_jax.train.translators.step import first_state

_GIB = 2**30


def check_members(members: Sequence[Member], info: RecordInfo, devices: Devices, population: int) -> None:
    """Raises ValueError where a member cannot be trained.

    Args:
        members: all of the sweep, of whatever shard.
        info: of the records.
        devices: what they train on.
        population: the most members that train together.
    """
    readable, describable = cache(partial(_read, info)), cache(partial(_describe, info))
    for member in members:
        config = member.config
        try:
            specs = inputs.choose_specs(info, config)
            readable(_reading(config), tuple(specs))
            describable(_describing(config), tuple(specs))
            build_networks(specs, config.model)
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"sweep: the member {_told(member)}: {error}") from error
    if (limit := devices.memory_bytes) is None:
        return
    sizes: dict[str, int] = {}
    for group in plan.groups(members, population, partial(inputs.frame_of, info)):
        for member in group:
            kind = config_hash([plan.architecture(member.config), member.config.descriptors])
            sizes[member.name] = sizes[kind] = sizes.get(kind) or state_bytes(member.config, info)
        if (needed := sum(sizes[member.name] for member in group)) > limit:
            raise ValueError(
                f"sweep: {len(group)} members together, first {_told(group[0])}, keep {needed / _GIB:.2f} GiB, and a "
                f"device ({devices.kind}) has {limit / _GIB:.2f}; pass a smaller --population"
            )


def state_bytes(config: TrainConfig, info: RecordInfo) -> int:
    """Bytes that a member keeps on a device from step to step: weights, their moments, statistics."""
    specs = inputs.choose_specs(info, config)
    state = jax.eval_shape(lambda: first_state(build_networks(specs, config.model), config))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _told(member: Member) -> str:
    return f"with {shown(member.fields)}" if member.fields else "as the base"


def _reading(config: TrainConfig) -> TrainConfig:
    """What of a configuration decides how its records are read, so that each way is tried once."""
    kept = {name: getattr(config, name) for name in ("batch_size", "inputs", "data_seed")}
    if not config.resident:  # what is held in memory has all neighbours at hand
        kept["model"] = ModelConfig(context=config.model.context)
    return TrainConfig(**kept)  # not held in memory: this only counts the rows


def _describing(config: TrainConfig) -> TrainConfig:
    return TrainConfig(inputs=config.inputs, weights=config.weights, jitter=config.jitter)


def _read(info: RecordInfo, config: TrainConfig, names: tuple[str, ...]) -> None:
    specs = inputs.choose_specs(info, dataclasses.replace(config, descriptors=names))
    preparation.open_splits(info.path, config, specs)


def _describe(info: RecordInfo, config: TrainConfig, names: tuple[str, ...]) -> None:
    specs = inputs.choose_specs(info, dataclasses.replace(config, descriptors=names))
    inputs.inputs_function(config, specs, dict.fromkeys(specs, 1.0), augment=config.jitter != JitterConfig())
