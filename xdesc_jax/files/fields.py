"""Configurations as trees of fields: their dotted names, types and values, replaced, compared, and read back from JSON.

In: frozen dataclasses, which may hold others. Out: others of their kind, or what is wrong with one. Knows none of them.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

C = TypeVar("C")


def wrong_types(config: Any, prefix: str = "") -> list[str]:
    """'field is value, expected type' for each field of a configuration that holds another type than it declares."""
    found, hints = [], get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if dataclasses.is_dataclass(hint) and isinstance(value, hint):  # type: ignore[arg-type]
            found += wrong_types(value, f"{prefix}{field.name}.")
        elif not _is(value, hint):
            expected = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
            found.append(f"{prefix}{field.name} is {value!r}, expected {expected}")
    return found


def _is(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; whole numbers are floats, too, and types not known here are any."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in inner)
    if origin in (Union, types.UnionType):
        return any(_is(value, part) for part in inner)
    if origin is tuple:
        parts = inner[:1] * len(value) if inner[-1:] == (...,) and isinstance(value, tuple) else inner
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_is, value, parts))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else True


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A field of a configuration, or of a part of it: its type, its value, and the class that has it."""

    hint: Any
    value: Any
    owner: type


def leaves(config: Any, prefix: str = "") -> dict[str, Leaf]:
    """The fields of a configuration by their dotted names, such as 'loss.alpha'."""
    found: dict[str, Leaf] = {}
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found |= leaves(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = Leaf(hints[field.name], value, type(config))
    return found


def check_finite(config: Any) -> None:
    """Raises ValueError where a field of a configuration is infinite or no number, which JSON could not keep."""
    for name, leaf in leaves(config).items():
        if isinstance(leaf.value, float) and not math.isfinite(leaf.value):
            raise ValueError(f"{name} is {leaf.value}, expected a finite number")


def replaced(config: C, values: Mapping[str, Any]) -> C:
    """A configuration with other values of some fields, given by dotted names.

    Raises:
        ValueError: values that its classes refuse.
    """
    own = {name: value for name, value in values.items() if "." not in name}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        part, dot, inner = name.partition(".")
        if dot:
            parts.setdefault(part, {})[inner] = value
    nested = {part: replaced(getattr(config, part), inner) for part, inner in parts.items()}
    return dataclasses.replace(config, **nested, **own)  # type: ignore[type-var]


def from_dict(fields: dict[str, Any], kind: type[C]) -> C:
    """The inverse of `dataclasses.asdict`, for configurations saved as JSON; ValueError for values of other types."""
    nested = {field.name: type(field.default) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]

    def value(name: str, saved: Any) -> Any:
        if dataclasses.is_dataclass(nested.get(name)):
            return from_dict(saved, nested[name])
        return tuple(saved) if isinstance(saved, list) else saved

    config = kind(**{name: value(name, saved) for name, saved in fields.items()})
    if wrong := wrong_types(config):
        raise ValueError(wrong[0])
    return config


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """'field: old -> new' for each field in which two configurations differ."""
    return [f"{field}: {a} -> {b}" for field, (a, b) in differing(old, new).items()]


def differing(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted field -> its old and new value, for each in which two configurations differ."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(set(old) | set(new)):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found |= differing(a, b, f"{prefix}{key}.")
        elif (list(a) if isinstance(a, tuple) else a) != (list(b) if isinstance(b, tuple) else b):
            found[prefix + key] = a, b
    return found
