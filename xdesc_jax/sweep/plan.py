"""Which members train together, on which shard, and which go on at a rung.

In: the members of a sweep. Out: groups of one architecture, the part of a shard, and the epochs of successive halving.
Pure functions of their arguments, so that a sweep that is started again decides as before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from xdesc_jax.config import TrainConfig
from xdesc_jax.files.whole import config_hash
from xdesc_jax.sweep.config import Member
from xdesc_jax.train.optimizer import structure

# What may differ within a population: the numbers of `train.translators.step.Hyper`, and the seed of the first weights.
VARYING = {
    "": ("seed", "descriptors"),
    "loss": ("alpha", "margin", "beta", "target_margin"),
    "optimizer": (
        "learning_rate",
        "schedule",
        "warmup_steps",
        "b1",
        "b2",
        "eps",
        "clip_norm",
        "weight_decay",
        "ema",
    ),  # fmt: skip
}


def architecture(config: TrainConfig) -> str:
    """What members of a population have in common, as a hash."""
    fields = dataclasses.asdict(config)
    for part, names in VARYING.items():
        for name in names:
            (fields[part] if part else fields).pop(name)
    # These are computed or not.
    return config_hash({**fields, "target_matching": config.loss.beta > 0, **structure(config.optimizer)})


def parse_shard(text: str) -> tuple[int, int]:
    """'i/n' -> (i, n), i from 0.

    Raises:
        ValueError: not of that form, or i not below n.
    """
    index, slash, count = text.partition("/")
    if not (slash and index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise ValueError(f"shard is {text!r}, expected i/n with i from 0 to n - 1")
    return int(index), int(count)


def shard_of(members: Sequence[Member], index: int, count: int) -> list[Member]:
    """Part `index` of `count` about equal ones, those of one architecture side by side."""
    first: dict[str, int] = {}
    for position, member in enumerate(members):
        first.setdefault(architecture(member.config), position)
    together = sorted(members, key=lambda member: first[architecture(member.config)])
    return together[len(members) * index // count : len(members) * (index + 1) // count]


def groups(members: Sequence[Member], most: int, frame_of: Callable[[TrainConfig], str]) -> list[list[Member]]:
    """Members that train together: of one architecture, `most` at a time, in parts of about equal size.

    Args:
        members: some of a sweep.
        most: that train together.
        frame_of: the frame of a configuration's joint space. Where it follows from the descriptors that take part, the
            networks of two members may take other inputs though all else is equal.
    """
    by_kind: dict[tuple[str, str], list[Member]] = {}
    for member in members:
        by_kind.setdefault((architecture(member.config), frame_of(member.config)), []).append(member)
    found = []
    for alike in by_kind.values():
        parts = -(-len(alike) // most)
        found += [alike[len(alike) * i // parts : len(alike) * (i + 1) // parts] for i in range(parts)]
    return found


def rungs(epochs: int, halving: int, first: int) -> list[int]:
    """Epochs after which members are chosen, and the last one."""
    found = []
    while halving and first < epochs:
        found.append(first)
        first *= halving
    return [*found, epochs]


def survivors(members: Sequence[Member], figures: Mapping[str, float], halving: int) -> list[Member]:
    """The best 1 / halving of the members that have a figure, at least one, in their order."""
    ranked = sorted((m for m in members if m.name in figures), key=lambda m: -figures[m.name])
    kept = {m.name for m in ranked[: max(1, -(-len(members) // halving))]}
    return [m for m in members if m.name in kept]
