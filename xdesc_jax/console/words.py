"""Values as people read them: numbers with thousands separators, paths as they were given, plurals that agree; and what
a name that is not known may have meant.

In: values of any kind. Out: text of one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

LISTED = 8  # entries of a list that are named


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: '1 photo', '1,204 photos'.

    Args:
        number: how many.
        noun: in the singular.
        plural: where it is not `noun` with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The names most like an unknown one as a question behind what is said of it: '; did you mean sift, disk?'.

    Args:
        name: that is not known.
        known: those that are.
        cutoff: how alike names have to be, of 1 for the same, by `difflib`.

    Returns:
        The question with at most three names, the most alike first; '' where none is.
    """
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=cutoff)
    return f"; did you mean {', '.join(near)}?" if near else ""


def files_meant(folder: Path, suffixes: Sequence[str]) -> str:
    """The files of some kinds in a folder that stands in the place of one: '; did you mean a/b.h5 or a/c.h5?', at most
    three; '' where there are none."""
    held = sorted(str(file) for file in folder.iterdir() if file.suffix in suffixes)
    return f"; did you mean {' or '.join(held[:3])}?" if held else ""


def shown(value: Any) -> str:
    """A value as text: yes and no, 1,204, 0.25, a path as it was given, 'a, b' of a list, 'a: 1, b: 2' of a mapping."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) or "none"
    if isinstance(value, Iterable) and not isinstance(value, str):
        items = [shown(item) for item in value]
        more = [f"and {len(items) - LISTED:,} more"] if len(items) > LISTED else []
        return ", ".join(items[:LISTED] + more) or "none"
    return str(value)


def cell(value: Any) -> str:
    """A value in a table: floats have three decimals, so that a column lines up."""
    return f"{value:,.3f}" if isinstance(value, float) else shown(value)


def duration(seconds: float) -> str:
    """'8 s', '2:05' minutes, '1:02:05' hours."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = f"{whole // 60 % 60}:{whole % 60:02d}"
    return minutes if whole < 3600 else f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def rate(per_second: float) -> str:
    """A rate with as many digits as say something."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"
