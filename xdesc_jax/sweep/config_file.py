"""A configuration as a file: Python source whose `get_config()` returns it.

In: a `TrainConfig`. Out: the text of a `configs/*.py` file that states only what differs from the defaults, in the
layout that ruff gives it.
"""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

from xdesc_jax.config import TrainConfig

WIDTH = 120


def config_source(config: TrainConfig, docstring: str) -> str:
    """The source of a configuration file.

    Args:
        config: what `get_config()` shall return; of equal hash, so that a run of it is the same run.
        docstring: the file's; long lines are folded, but for indented ones.
    """
    classes = sorted({type(part).__name__ for part in _stated(config)})
    call = _render(config, indent=4, before=len("return "), after=0)
    return (
        f"{_docstring(docstring)}\n\nfrom xdesc_jax.config import {', '.join(classes)}\n\n\n"
        f"def get_config() -> TrainConfig:\n    return {call}\n"
    )


def _stated(config: Any) -> list[Any]:
    """The dataclasses that the source names."""
    inner = [part for _, value in _differing(config) if dataclasses.is_dataclass(value) for part in _stated(value)]
    return [config, *inner]


def _differing(config: Any) -> list[tuple[str, Any]]:
    found = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            default = field.default
        # By their text, because 1, 1.0 and True are equal and hash differently.
        if repr(value) != repr(default):
            found.append((field.name, value))
    return found


def _render(value: Any, indent: int, before: int, after: int) -> str:
    """Source of a value on one line if it fits there, else one part a line, as ruff lays it out.

    Args:
        value: the value.
        indent: columns before the line it starts on.
        before, after: characters on that line before and behind it.
    """
    flat = _flat(value)
    parts = _parts(value)
    if indent + before + len(flat) + after <= WIDTH or not parts:
        return flat
    opening, closing = (f"{type(value).__name__}(", ")") if dataclasses.is_dataclass(value) else ("(", ")")
    lines = [
        f"{' ' * (indent + 4)}{name}{_render(part, indent + 4, len(name), 1)},\n"  # 1: the comma
        for name, part in parts
    ]
    return f"{opening}\n{''.join(lines)}{' ' * indent}{closing}"


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    parts = [f"{name}{_flat(part)}" for name, part in _parts(value)]
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return repr(value)


def _parts(value: Any) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        return [(f"{name}=", inner) for name, inner in _differing(value)]
    return [("", inner) for inner in value] if isinstance(value, tuple) else []


def _string(text: str) -> str:
    """A literal in the quotes that need fewer escapes, double ones where it makes no difference."""
    if text.count('"') > text.count("'"):
        return repr(text) if "'" not in text else "'" + _escaped(text).replace("'", "\\'") + "'"
    return '"' + _escaped(text).replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return repr('"' + text)[2:-1].replace("\\'", "'")  # with a double quote inside, repr takes single ones


def _docstring(text: str) -> str:
    lines = []
    for line in text.strip().splitlines():
        if line.startswith(" "):  # a command, to be copied
            lines.append(line)
            continue
        lines += textwrap.wrap(line, WIDTH - 4, break_long_words=False, break_on_hyphens=False) or [""]
    body = "\n".join(lines).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    first = " " if body.startswith('"') else ""
    if len(lines) > 1:
        return f'"""{first}{body}\n"""'
    return f'"""{first}{body}{" " if body.endswith(chr(34)) else ""}"""'
