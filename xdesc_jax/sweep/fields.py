"""Swept fields as axes: where each member stands, what the ticks say, which members share a value.

In: the values that members have in a field, of any JSON type. Out: positions and labels, for drawings and tables.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

DECADE = 10.0  # values that span as much stand on a logarithmic axis
FEW = 12  # as many different values are each a tick or a group of their own


@dataclasses.dataclass(frozen=True)
class Axis:
    """A field's axis.

    Attributes:
        name: the field's dotted name.
        positions: [members] float64; log10 of the values where `scale` is 'log', the rank of a category.
        texts: [members] the values as one reads them.
        scale: 'linear', 'log' or 'category'.
        ticks, labels: where ticks stand and what they say; none where any round numbers do.
    """

    name: str
    positions: np.ndarray
    texts: tuple[str, ...]
    scale: str
    ticks: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def numeric(self) -> bool:
        return self.scale != "category"

    def groups(self, most: int = FEW) -> np.ndarray:
        """[members] int, in the order of positions: one a value; if those are more than `most`, of neighbours.

        Groups of neighbours hold about equally many members, at least about four; equal values are never parted.
        """
        values, inverse = np.unique(self.positions, return_inverse=True)
        if len(values) <= most or not self.numeric:
            return inverse
        count = max(1, min(most, len(self.positions) // 4))
        below = np.searchsorted(np.sort(self.positions), values)  # members with a smaller value
        return (below * count // len(self.positions))[inverse]


def axis(name: str, values: Sequence[Any]) -> Axis:
    """The axis of a field.

    Numbers are logarithmic where they span a decade (learning rates always); with a zero among few of them, and all
    other types, they are categories, in order.

    Args:
        name: dotted name.
        values: one a member.
    """
    texts = tuple(text(v) for v in values)
    if not all(_is_number(v) for v in values):
        return _categories(name, values, texts)
    numbers = np.array(values, np.float64)
    distinct = np.unique(numbers)
    span = _span(distinct)
    if distinct[0] > 0 and (span >= DECADE or (span > 1 and name.endswith("learning_rate"))):
        ticks = np.log10(distinct) if len(distinct) <= FEW else _decade_ticks(distinct[0], distinct[-1])
        kept = _apart(ticks)
        return Axis(name, np.log10(numbers), texts, "log", kept, tuple(f"{10**t:.4g}" for t in kept))
    if span >= DECADE and len(distinct) <= FEW:
        return _categories(name, values, texts)
    kept = _apart(distinct) if len(distinct) <= FEW else ()
    return Axis(name, numbers, texts, "linear", kept, tuple(f"{t:.6g}" for t in kept))


def varies(values: Sequence[Any]) -> bool:
    """Whether a field has more than one value."""
    return len({_identity(v) for v in values}) > 1


def text(value: Any) -> str:
    """A value as one reads it: lists by commas, true, false and none."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(text(v) for v in value) if len(value) else "(empty)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def shortened(label: str, width: int) -> str:
    """A label of at most `width` characters, its middle left out."""
    if len(label) <= width:
        return label
    tail = (width - 1) // 2
    return f"{label[: width - 1 - tail]}\u2026{label[len(label) - tail :]}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _span(distinct: np.ndarray) -> float:
    magnitudes = np.abs(distinct[distinct != 0])
    return float(magnitudes.max() / magnitudes.min()) if len(magnitudes) else 1.0


def _categories(name: str, values: Sequence[Any], texts: tuple[str, ...]) -> Axis:
    first = {_identity(v): (_order(v), t) for v, t in zip(values, texts, strict=True)}
    ordered = sorted(first, key=lambda identity: first[identity][0])
    rank = {identity: i for i, identity in enumerate(ordered)}
    positions = np.array([rank[_identity(v)] for v in values], np.float64)
    labels = tuple(first[identity][1] for identity in ordered)
    return Axis(name, positions, texts, "category", tuple(map(float, range(len(labels)))), labels)


def _identity(value: Any) -> str:
    """Equal for equal values of one type: 1 and 1.0 are one number, True and 'true' are their own."""
    return repr(float(value)) if _is_number(value) else json.dumps(value, default=str, sort_keys=True)


def _order(value: Any) -> tuple[int, Any, str]:
    if value is None:
        return 0, 0, ""
    if isinstance(value, (bool, int, float)):
        return (1 if isinstance(value, bool) else 2), value, ""
    if isinstance(value, (list, tuple)) and all(_is_number(v) for v in value):
        return 4, tuple(value), ""
    return (3 if isinstance(value, str) else 5), 0, text(value)


def _decade_ticks(low: float, high: float) -> np.ndarray:
    """log10 of the powers of ten in a range; with 3, or 2 and 5 times those, if there are fewer than three else."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5)):
        ticks = [math.log10(f * 10.0**e) for e in exponents for f in factors if low <= f * 10.0**e <= high]
        if len(ticks) >= 3:
            break
    return np.array(ticks)


def _apart(ticks: np.ndarray) -> tuple[float, ...]:
    """Those of the ticks, from the least on, that stand 4 % of the range from the one before."""
    kept: list[float] = []
    for tick in ticks.tolist():
        if not kept or tick - kept[-1] >= 0.04 * (ticks[-1] - ticks[0]):
            kept.append(tick)
    return tuple(kept)
