"""What a sweep tries: lists, grids and random draws over the fields of a training configuration.

In: a `configs/sweep_*.py` file whose `get_config()` returns a `SweepConfig`. Out: its members, each a whole
`TrainConfig` with the fields in which it was asked to differ.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args, get_origin

import numpy as np

from xdesc_jax.config import TrainConfig
from xdesc_jax.console import warn
from xdesc_jax.console.words import did_you_mean
from xdesc_jax.files.fields import leaves, replaced
from xdesc_jax.files.whole import config_hash


class Distribution(Protocol):
    """Where random values come from."""

    def draw(self, rng: np.random.Generator) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Real numbers from low to high, evenly."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.uniform(self.low, self.high))


@dataclasses.dataclass(frozen=True)
class LogUniform:
    """Positive numbers from low to high, evenly by their logarithm."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise ValueError(f"LogUniform({self.low}, {self.high}): expected 0 < low <= high")

    def draw(self, rng: np.random.Generator) -> float:
        return float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of the values, each as likely."""

    values: Sequence[Any]

    def draw(self, rng: np.random.Generator) -> Any:
        return self.values[int(rng.integers(len(self.values)))]


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """A sweep: every entry of `members`, with every point of `grid`, with every one of `draws` random draws.

    Fields are named with dots: 'loss.alpha', 'optimizer.learning_rate', 'seed', 'descriptors', 'model.embedding_width'.
    """

    base: TrainConfig = TrainConfig()
    """What all members share."""
    members: Sequence[Mapping[str, Any]] = ({},)
    """A list of {field: value}."""
    grid: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    """{field: values}; all combinations."""
    random: Mapping[str, Distribution] = dataclasses.field(default_factory=dict)
    """{field: distribution}: Uniform, LogUniform or Choice."""
    draws: int = 0
    """How many random draws."""
    seed: int = 0
    """Of the draws."""
    halving: int = 0
    """Successive halving: of so many members that reach a rung, one goes on; 0: all train to the end."""
    first_rung: int = 1
    """Epochs before the first choice; the next come after `halving` times as many, and so on."""

    def __post_init__(self) -> None:
        if self.halving == 1 or self.halving < 0:
            raise ValueError(f"halving is {self.halving}, expected 0 (none) or at least 2")
        if self.first_rung < 1:
            raise ValueError(f"first_rung is {self.first_rung}, expected at least 1")
        if bool(self.random) != (self.draws > 0):
            raise ValueError(f"draws is {self.draws} with {len(self.random)} random fields: give both or neither")
        for field, values in self.grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise ValueError(f"grid: {field!r} is {values!r}, expected a sequence of values")
        listed = {field for entry in self.members for field in entry}
        for a, b in itertools.combinations((listed, set(self.grid), set(self.random)), 2):
            if both := sorted(a & b):
                raise ValueError(f"{both} are given twice, among members, grid and random")

    @property
    def fields(self) -> list[str]:
        """The fields that vary."""
        return list(dict.fromkeys([*(f for entry in self.members for f in entry), *self.grid, *self.random]))

    def describe(self) -> dict[str, Any]:
        """The same as JSON."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return values | {
            "base": dataclasses.asdict(self.base),
            "members": [dict(entry) for entry in self.members],
            "grid": {field: list(options) for field, options in self.grid.items()},
            "random": {field: repr(distribution) for field, distribution in self.random.items()},
        }


@dataclasses.dataclass(frozen=True)
class Member:
    """One training of a sweep; `name` is the hash of its configuration."""

    config: TrainConfig
    fields: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.config.hash


def expand(sweep: SweepConfig) -> list[Member]:
    """The members; of equal configurations one.

    Raises:
        ValueError: an unknown field, or a value that it cannot have.
    """
    rng = np.random.default_rng(sweep.seed)
    points = [dict(zip(sweep.grid, values, strict=True)) for values in itertools.product(*sweep.grid.values())]
    drawn = [{f: d.draw(rng) for f, d in sweep.random.items()} for _ in range(sweep.draws)] or [{}]
    members: dict[str, Member] = {}
    total = 0
    for entry, point, draw in itertools.product(sweep.members, points, drawn):
        total += 1
        member = Member(*override(sweep.base, {**entry, **point, **draw}))
        members.setdefault(member.name, member)
    if len(members) < total:
        warn(f"{total - len(members)} of {total} configurations occur twice; each is trained once")
    return list(members.values())


def override(config: TrainConfig, values: Mapping[str, Any]) -> tuple[TrainConfig, dict[str, Any]]:
    """A configuration with other values of some fields, and these values in the fields' own types.

    Raises:
        ValueError: an unknown field, or a value that it cannot have; names both.
    """
    flat = leaves(config)
    typed = {}
    for field, value in values.items():
        if field not in flat:
            hint = did_you_mean(field, flat, cutoff=0.8) or f"; fields are {', '.join(flat)}"
            raise ValueError(f"sweep: unknown field {field!r}{hint}")
        typed[field] = _typed(value, flat[field].hint, field)
    try:
        return replaced(config, typed), typed
    except ValueError as error:
        raise ValueError(f"sweep: {typed}: {error}") from error


def _typed(value: Any, kind: Any, field: str) -> Any:
    origin = get_origin(kind)
    if hasattr(value, "item"):  # numpy's scalars
        value = value.item()
    if origin is Literal and value in get_args(kind):
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_typed(inner, get_args(kind)[0], field) for inner in value)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    expected = ", ".join(map(repr, get_args(kind))) if origin is Literal else getattr(kind, "__name__", str(kind))
    raise ValueError(f"sweep: {field} is {value!r}, expected {expected}")


def sweep_hash(sweep: SweepConfig, data: str) -> str:
    """Identifies a sweep over some records."""
    return config_hash({"sweep": sweep.describe(), "data": data})
