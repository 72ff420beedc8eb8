"""What stages print: settings, progress, tables, and where the result is.

In: values and rows. Out: the result, tables and paths, on standard output (`table`, `figures`, `result`); all else
through the logger `xdesc_jax` (`settings`, `info`, `warn`, `track`, `status`), see `messages`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from xdesc_jax.console.messages import HEADING, err, error, info, is_quiet, is_verbose, log, out, set_verbosity, warn
from xdesc_jax.console.progress import Bar, is_live, progress_bar, status, track
from xdesc_jax.console.tables import fold, lay_out
from xdesc_jax.console.words import cell, counted, shown

__all__ = [
    "Bar", "counted", "err", "error", "figures", "info", "inner",
    "is_quiet", "is_verbose", "log", "out", "progress_bar",
    "result", "set_verbosity", "settings", "shown", "status", "table", "track", "up_to_date", "warn",
]  # fmt: skip


def settings(title: str, values: Mapping[str, Any], defaults: Callable[..., Any] | None = None) -> None:
    """Says what a stage is about to do: what it works on, and the settings that differ from their defaults.

    All of them are said at level DEBUG; the whole belongs into a file beside the result.

    Args:
        title: the stage, and where its result will be.
        values: name -> value. None and empty lists are left out; of a dataclass, fields at their defaults.
        defaults: the stage's function: values that its argument of that name has by default are left out, too.
    """
    given = inspect.signature(defaults).parameters if defaults else {}
    default = {name: p.default for name, p in given.items() if p.default is not p.empty}
    lines: list[str] = []
    rest: list[str] = []
    for name, value in values.items():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field, inner, usual in _fields(value):
                (rest if inner == usual else lines).append(_line(field, inner))
        else:
            usual = value is None or value in ((), []) or (name in default and value == default[name])
            (rest if usual else lines).append(_line(name, value))
    log.info("%s", "\n".join([title, *lines]), extra={HEADING: True})
    if rest:
        log.debug("%s", "\n".join(["at their defaults, or not given:", *rest]))


def _fields(value: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Name, value and default of each field of a dataclass, also of those inside."""
    for field in dataclasses.fields(value):
        inner, name = getattr(value, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(inner) and not isinstance(inner, type):
            yield from _fields(inner, f"{name}.")
        else:
            made = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            yield name, inner, made


def _line(name: str, value: Any) -> str:
    return f"  {name.replace('_', ' ')}: {shown(value)}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], matrix: bool = False) -> None:
    """Prints a table as wide as the screen, or as it takes where there is none; floats with three decimals.

    Args:
        title: above it.
        columns: heads; the first names the rows.
        rows: as many values each.
        matrix: the columns are of one kind, so that on a narrow screen they are printed a few at a time.
    """
    width = _width(out)
    lines, head = lay_out(columns, [[cell(value) for value in row] for row in rows], width, matrix)
    top = fold(title, width) if width else [title]
    text = Text("\n".join([*top, *lines, ""]))
    text.stylize("italic", 0, len("\n".join(top)))
    text.stylize("bold", len("\n".join(top)), len("\n".join([*top, *lines[:head]])))
    _to_out(text)


def figures(title: str, values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
    """Prints named figures, one a line; names are read without underscores."""
    pairs = values.items() if isinstance(values, Mapping) else values
    texts = [(name.replace("_", " "), cell(value)) for name, value in pairs]
    longest = max((len(name) for name, _ in texts), default=0)
    width = _width(out)
    lines = [f"  {name:<{longest}}  {value}" for name, value in texts]
    folded = [part for line in lines for part in (fold(line, width, indent="    ") if width else [line])]
    top = fold(title, width) if width else [title]
    text = Text("\n".join([*top, *folded, ""]))
    text.stylize("italic", 0, len("\n".join(top)))
    _to_out(text)


def result(path: Any, **others: Any) -> None:
    """Prints where a stage's result is, and what else it wrote; the last lines of every stage.

    Args:
        path: the result.
        others: what -> path, or `next`: a command that takes it from there.
    """
    lines = [f"result: {path}", *(f"{name.replace('_', ' ')}: {value}" for name, value in others.items() if value)]
    _to_out(Text("\n".join(lines)))


def up_to_date(path: Any) -> None:
    """Says that there was nothing to do."""
    _to_out(Text(f"result: {path} (up to date)"))


@contextlib.contextmanager
def inner() -> Iterator[None]:
    """The body is a step of a stage: its tables and results are details, said at level DEBUG."""
    _inner.append(True)
    try:
        yield
    finally:
        _inner.pop()


_inner: list[bool] = []


def _width(console: Console) -> int | None:
    """Cells of a screen; None where output goes into a file or a pipe and nobody has said how wide it is."""
    given = os.environ.get("COLUMNS", "")
    if console.is_terminal or console.is_jupyter:
        return console.width
    return int(given) if given.isdigit() and int(given) else None


def _to_out(text: Text) -> None:
    """Prints a part of the result, as it is: a long path can be copied."""
    if _inner:
        log.debug("%s", text.plain.rstrip())
        return
    # What is printed on a terminal below a live display would be drawn over: it goes above it, through its console.
    console = err if out.is_terminal and err.is_terminal and is_live() else out
    console.print(text, soft_wrap=True)
