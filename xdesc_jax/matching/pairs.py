"""Pairs of photos: lists as text, and the pairs that are matched.

In: a text with two photo names a line, or the names of all photos. Out: `Pairs`, each as two numbers, of which a
hundred million take 0.8 GB; and from them those that are matched, each once and none of a photo with itself. Runs on
the base install.
"""

from __future__ import annotations

import array
import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.console.words import did_you_mean
from xdesc_jax.files.text_list import BLANKS, Line, known_form, numbered_lines

Pair = tuple[str, str]

RULES = "'exhaustive' for all pairs, 'sequential:10', 'gps:20', 'retrieval:20', or several of the last three with '+'"
_CHUNK = 1 << 16  # pairs whose names are looked up at a time


@dataclasses.dataclass(frozen=True)
class Pairs:
    """M pairs of photos; goes over the names of each.

    Attributes:
        names0, names1: of photos, each once.
        first: [M] int32, index into `names0`.
        second: [M] int32, index into `names1`.
    """

    names0: Sequence[str]
    names1: Sequence[str]
    first: np.ndarray
    second: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, chosen: slice) -> list[Pair]:
        """The names of some pairs."""
        ids = zip(self.first[chosen].tolist(), self.second[chosen].tolist(), strict=True)
        return [(self.names0[i], self.names1[j]) for i, j in ids]

    def __iter__(self) -> Iterator[Pair]:
        for start in range(0, len(self), _CHUNK):
            yield from self[start : start + _CHUNK]

    def take(self, rows: np.ndarray) -> Pairs:
        """Some of the pairs, by index or mask."""
        return dataclasses.replace(self, first=self.first[rows], second=self.second[rows])

    def common(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """All names, sorted, and the first and the second photos as int64 indices into them."""
        names = sorted({*self.names0, *self.names1})
        place = {name: i for i, name in enumerate(names)}
        of0, of1 = (np.array([place[n] for n in side], np.int64) for side in (self.names0, self.names1))
        return names, of0[self.first], of1[self.second]

    def hash(self) -> str:
        """12 hex digits that identify the pairs in whichever order: `config_hash` of a sorted list of them."""
        names, first, second = self.common()
        order = np.argsort(first * len(names) + second, kind="stable")
        told, digest, separator = [json.dumps(name) for name in names], hashlib.sha256(b"["), ""
        for start in range(0, len(order), _CHUNK):
            rows = order[start : start + _CHUNK]
            ids = zip(first[rows].tolist(), second[rows].tolist(), strict=True)
            digest.update((separator + ", ".join(f"[{told[i]}, {told[j]}]" for i, j in ids)).encode())
            separator = ", "
        digest.update(b"]")
        return digest.hexdigest()[:12]


def all_pairs(names0: Sequence[str], names1: Sequence[str] | None = None) -> Pairs:
    """Every first with every second photo; without second ones, each two photos once."""
    if names1 is None:
        count = len(names0)
        left = np.arange(count - 1, -1, -1) if count else np.zeros(0, int)  # photos behind each
        first = np.repeat(np.arange(count, dtype=np.int32), left)
        begin = np.cumsum(left) - left
        second = np.arange(len(first)) - begin[first] + first + 1
        return Pairs(names0, names0, first, second.astype(np.int32))
    first = np.repeat(np.arange(len(names0), dtype=np.int32), len(names1))
    return Pairs(names0, names1, first, np.tile(np.arange(len(names1), dtype=np.int32), len(names0)))


def read_pairs(path: Path, names0: Sequence[str], names1: Sequence[str]) -> Pairs:
    """Reads two photo names a line, separated by a tab or blanks.

    Names with blanks are told apart by the names that exist; where that leaves a choice, a tab decides. It also keeps
    blanks at the ends of a name where a photo is called so. A line that begins with '#' is a pair where a photo is
    called so, and a comment elsewhere.

    Args:
        path: the list.
        names0, names1: of the first and of the second photos; the list may name others.

    Returns:
        The pairs in the order of the list; others that it names stand behind `names0` and `names1`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that does not hold two names, no line at all, or not UTF-8.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such pair list{_meant(path)} (or {RULES})")
    known0, known1 = frozenset(names0), frozenset(names1)
    place0, place1 = ({name: i for i, name in enumerate(names)} for names in (names0, names1))
    first, second = array.array("i"), array.array("i")
    for number, raw in numbered_lines(path, "list of pairs"):
        separator = "\t" if "\t" in raw else " "
        a, _, b = raw.partition(separator)
        if a not in known0 or b not in known1 or separator in b:  # anything but two names that leave no choice
            line = Line(f"{path}:{number}", raw)
            pair = _parse(line, known0, known1)
            if line.marked and (pair is None or pair[0] not in known0):
                continue
            if pair is None:
                raise ValueError(
                    f"{line.where}: expected two photo names (a tab between names with blanks): {line.text!r}"
                )
            a, b = pair
        first.append(place0.setdefault(a, len(place0)))
        second.append(place1.setdefault(b, len(place1)))
    if not first:
        raise ValueError(f"{path}: holds no pair")
    return Pairs(list(place0), list(place1), np.frombuffer(first, np.int32), np.frombuffer(second, np.int32))


def _meant(path: Path) -> str:
    """The rule that was meant, as a question, where a path is a slip of one; what its number has to be, where only
    that is wrong."""
    for part in str(path).split("+"):
        rule, colon, number = part.partition(":")
        if rule in ("sequential", "gps", "retrieval") and not (path.parent.name or number.isdecimal()):
            return f"; {rule!r} needs a number of photos, as {rule}:10"
    rule, colon, number = str(path).partition(":")
    rules = ["exhaustive", *(known + colon + number for known in ("sequential", "gps", "retrieval"))]
    return did_you_mean(str(path), rules, cutoff=0.8)


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


def distinct(pairs: Pairs, ordered: bool) -> tuple[Pairs, int]:
    """Pairs without repeats in either order and without self pairs, and the number of self pairs.

    Within one file the names of a pair are put in order; with two, the first name is of the first file.

    Args:
        pairs: of several, the first stays.
        ordered: whether they are of two files; if not, `names0` and `names1` are the same, sorted.
    """
    names, first, second = pairs.common()
    own = first == second
    keys = np.minimum(first, second) * len(names) + np.maximum(first, second)
    keys[own] = -1
    _, kept = np.unique(keys, return_index=True)
    kept = np.sort(kept[~own[kept]])
    chosen = pairs.take(kept)
    if not ordered:
        low, high = np.minimum(chosen.first, chosen.second), np.maximum(chosen.first, chosen.second)
        chosen = dataclasses.replace(chosen, first=low, second=high)
    return chosen, int(own.sum())


def in_both_orders(pairs: Pairs) -> list[Pair]:
    """Pairs a, b with a < b that are there as b, a as well, sorted."""
    names, first, second = pairs.common()
    up, down = first < second, first > second
    both = np.intersect1d(first[up] * len(names) + second[up], second[down] * len(names) + first[down])
    return [(names[i], names[j]) for i, j in zip(*(side.tolist() for side in divmod(both, len(names))), strict=True)]


def in_blocks(pairs: Pairs, group: int) -> Pairs:
    """Pairs in an order that needs few photos at a time: those of two groups of photos after one another.

    Args:
        pairs: to order.
        group: photos a group, by their numbers.
    """
    (block0, at0), (block1, at1) = (np.divmod(side.astype(np.int64), group) for side in (pairs.first, pairs.second))
    blocks = len(pairs.names1) // group + 1
    return pairs.take(np.argsort(((block0 * blocks + block1) * group + at0) * group + at1, kind="stable"))
