"""Values out of other programs' files, each checked where it is taken.

In: what a JSON holds. Out: numbers, arrays, rotations; or an error that names the file, the place in it, and the value.
Imports numpy alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

ROTATION_TOLERANCE = 1e-3  # files round to few digits
MAX_ANGLE = 1e3  # radians
_SHOWN = 60  # characters of a value


class Fields:
    """An object of a JSON.

    Args:
        value: what should be an object.
        where: file and place, for messages.

    Raises:
        ValueError: it is none.
    """

    def __init__(self, value: Any, where: str):
        if not isinstance(value, dict):
            raise ValueError(f"{where} is {shown(value)}, expected an object")
        self.value: dict[str, Any] = value
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def get(self, key: str) -> Any:
        """A value of any kind; raises ValueError where it is missing."""
        if key not in self:
            raise ValueError(f"{self.where}: {key!r} is missing")
        return self.value[key]

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; the default where it is missing."""
        if default is not None and key not in self:
            return default
        return number(self.get(key), f"{self.where}: {key!r}")

    def whole(self, key: str) -> int:
        """A whole number from 0."""
        return whole(self.get(key), f"{self.where}: {key!r}")

    def numbers(self, key: str, *shape: int) -> np.ndarray:
        """An array of finite numbers, float64 of this shape."""
        return numbers(self.get(key), shape, f"{self.where}: {key!r}")

    def text(self, key: str) -> str:
        """A text that is not empty."""
        found = self.get(key)
        if not isinstance(found, str) or not found:
            raise ValueError(f"{self.where}: {key!r} is {shown(found)}, expected a text")
        return found

    def fields(self, key: str) -> Fields:
        """An object within this one."""
        return Fields(self.get(key), f"{self.where}: {key!r}")

    def objects(self, key: str) -> Iterator[tuple[str, Fields]]:
        """The objects within an object, by their names."""
        found = self.fields(key)
        for name, value in found.value.items():
            yield name, Fields(value, f"{found.where}: {name!r}")

    def list(self, key: str) -> Iterator[Fields]:
        """The objects in a list."""
        found = self.get(key)
        if not isinstance(found, list):
            raise ValueError(f"{self.where}: {key!r} is {shown(found)}, expected a list")
        for number, value in enumerate(found):
            yield Fields(value, f"{self.where}: {key!r}[{number}]")


def number(value: Any, where: str) -> float:
    """A finite number of a JSON; raises ValueError where it is none."""
    found = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{where} is {shown(value)}, expected a number")
    return found


def whole(value: Any, where: str, limit: int = 1 << 53) -> int:
    """A whole number from 0 to below a limit."""
    found = number(value, where)
    if not found.is_integer() or not 0 <= found < limit:
        raise ValueError(f"{where} is {shown(value)}, expected a whole number from 0")
    return int(found)


def numbers(value: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Nested lists of finite numbers as float64."""
    told = " x ".join(map(str, shape))
    if len(shape) > 1:
        if not isinstance(value, list) or len(value) != shape[0]:
            raise ValueError(f"{where} is {shown(value)}, expected {told} numbers")
        return np.stack([numbers(row, shape[1:], where) for row in value])
    if not isinstance(value, list) or len(value) != shape[0]:
        raise ValueError(f"{where} is {shown(value)}, expected {told} numbers")
    return np.array([number(entry, where) for entry in value])


def rotation(matrix: np.ndarray, where: str) -> np.ndarray:
    """The rotation next to a matrix [3, 3] that is one up to rounding.

    Raises:
        ValueError: it is none: scaled, sheared, or a mirror.
    """
    far = np.abs(matrix @ matrix.T - np.eye(3)).max()
    if not far <= ROTATION_TOLERANCE or np.linalg.det(matrix) < 0:
        told = f"{np.round(matrix, 4).tolist()}"
        raise ValueError(f"{where} is {told}, expected a rotation (off by {far:.2g})")
    u, _, vt = np.linalg.svd(matrix)
    return u @ vt


def from_axis_angle(vector: np.ndarray, where: str) -> np.ndarray:
    """The rotation [3, 3] about a vector by its length in radians (Rodrigues).

    Raises:
        ValueError: it turns further than anybody does.
    """
    if np.abs(vector).max() > MAX_ANGLE:
        raise ValueError(f"{where} is {vector.tolist()}, expected radians")
    angle = float(np.linalg.norm(vector))
    if angle == 0:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


def shown(value: Any) -> str:
    """A value in a few words."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
