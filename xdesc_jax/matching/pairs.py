"""Pairs of photos: lists as text, and the pairs that are matched.

In: a text with two photo names a line, or the names of all photos. Out: pairs, each once and none of a photo
with itself. Runs on the base install.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from xdesc_jax.files.text_list import BLANKS, Line, known_form, read_lines

Pair = tuple[str, str]


def read_pairs(path: Path, names0: Sequence[str], names1: Sequence[str]) -> list[Pair]:
    """Reads two photo names a line, separated by a tab or blanks.

    Names with blanks are told apart by the names that exist; where that leaves a choice, a tab decides. It also keeps
    blanks at the ends of a name where a photo is called so. A line that begins with '#' is a pair where a photo is
    called so, and a comment elsewhere.

    Args:
        path: the list.
        names0, names1: of the first and of the second photos; the list may name others.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that does not hold two names, no line at all, or not UTF-8.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such pair list (or 'exhaustive' for all pairs)")
    known0, known1 = frozenset(names0), frozenset(names1)
    found: list[Pair] = []
    for line in read_lines(path):
        pair = _parse(line, known0, known1)
        if line.marked and (pair is None or pair[0] not in known0):
            continue
        if pair is None:
            raise ValueError(f"{line.where}: expected two photo names (a tab between names with blanks): {line.text!r}")
        found.append(pair)
    if not found:
        raise ValueError(f"{path}: holds no pair")
    return found


def pair_line(query: str, database: str) -> str:
    """A line of a pair list, as `read_pairs` reads it.

    Raises:
        ValueError: a name with a tab or a line break, which no list can hold.
    """
    for name in (query, database):
        if any(c in name for c in "\t\n\r"):
            raise ValueError(f"photo name {name!r} holds a tab or a line break, which a pair list cannot")
    separator = "\t" if any(c.isspace() for c in query + database) else " "
    return f"{query}{separator}{database}\n"


def _parse(line: Line, known0: Collection[str], known1: Collection[str]) -> Pair | None:
    """The names of a line; None where it does not hold two, or where nothing tells which two."""
    parts = [part for part in line.raw.split("\t") if part.strip(BLANKS)]
    if len(parts) == 2:
        return known_form(parts[0], known0), known_form(parts[1], known1)
    if len(parts) != 1:
        return None
    text = parts[0].strip(BLANKS)
    words = text.split(" ")
    splits = [(" ".join(words[:i]).strip(" "), " ".join(words[i:]).strip(" ")) for i in range(1, len(words))]
    splits = list(dict.fromkeys(pair for pair in splits if all(pair)))
    if len(splits) == 1:
        return splits[0]
    # Both photos exist; or one does, as in a list that names photos beyond those at hand.
    for fits in (
        [pair for pair in splits if pair[0] in known0 and pair[1] in known1],
        [pair for pair in splits if pair[0] in known0 or pair[1] in known1],
    ):
        if fits:
            return fits[0] if len(fits) == 1 else None
    return None


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
