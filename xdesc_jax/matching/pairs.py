"""Pairs of photos: lists as text, and the pairs that are matched.

In: a text with two photo names a line, or the names of all photos. Out: pairs, each once and none of a photo
with itself. Runs on the base install.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

Pair = tuple[str, str]


def read_pairs(path: Path, names0: Sequence[str], names1: Sequence[str]) -> list[Pair]:
    """Reads two photo names a line, separated by a tab or blanks.

    Names with blanks are told apart by the names that exist; where that leaves a choice, a tab decides.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that does not hold two names, no line at all, or not UTF-8.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such pair list (or 'exhaustive' for all pairs)")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error})") from error
    known0, known1 = set(names0), set(names1)
    found: list[Pair] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip(" \r\n")
        if not line.strip():
            continue
        words = line.split("\t") if "\t" in line else line.split()
        splits = [(words[0], words[1])] if len(words) == 2 else []
        if "\t" not in line and len(words) > 2:
            blanks = [i for i, c in enumerate(line) if c == " "]
            splits = [(line[:i].rstrip(), line[i:].lstrip()) for i in blanks]
            splits = list(dict.fromkeys(s for s in splits if s[0] in known0 and s[1] in known1))
        if len(splits) != 1:
            raise ValueError(f"{path}:{number}: expected two photo names (a tab between names with blanks): {line!r}")
        found.append(splits[0])
    if not found:
        raise ValueError(f"{path}: holds no pair")
    return found


def distinct(pairs: Sequence[Pair], ordered: bool) -> tuple[list[Pair], int]:
    """Pairs without repeats in either order and without self pairs, and the number of self pairs.

    Within one file the names of a pair are put in order; with two, the first name is of the first file.
    """
    chosen: dict[Pair, Pair] = {}
    own = 0
    for a, b in pairs:
        key = (a, b) if a <= b else (b, a)
        if a == b:
            own += 1
        else:
            chosen.setdefault(key, (a, b) if ordered else key)
    return list(chosen.values()), own


def in_blocks(pairs: Sequence[Pair], place0: Mapping[str, int], place1: Mapping[str, int], group: int) -> list[Pair]:
    """Pairs in an order that needs few photos at a time: those of two groups of photos after one another.

    Args:
        pairs: to order.
        place0, place1: number of each first and each second photo.
        group: photos a group.
    """
    return sorted(
        pairs,
        key=lambda p: (place0[p[0]] // group, place1[p[1]] // group, place0[p[0]], place1[p[1]]),
    )
