"""What a result was made with: that which differs from the defaults, and the rest.

In: settings by name, nested or not, and their defaults. Out: the two parts, by dotted names.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a page, by dotted names.

    Attributes:
        given: those that differ from their defaults, or have none.
        default: the others.
    """

    given: Mapping[str, Any]
    default: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Settings:
        """Parts settings by their defaults; names that have none count as given."""
        flat, usual = flattened(values), flattened(defaults or {})
        kept = {name: value for name, value in flat.items() if name in usual and _plain(value) == _plain(usual[name])}
        return cls({name: value for name, value in flat.items() if name not in kept}, kept)


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of a function's parameters, of those that have one."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def flattened(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """{'loss': {'alpha': 0.1}} as {'loss.alpha': 0.1}; empty mappings as None."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = None if isinstance(value, Mapping) else value
    return flat


def _plain(value: Any) -> Any:
    """As it is after a way through JSON."""
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
