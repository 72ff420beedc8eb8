"""Photos as a sequence, such as the frames of a video: their places, and who is near whom.

In: photo names. Out: places by folder, pairs within a window, or which pairs are further apart. Each folder is a
sequence of its own, in the order of its names, in which numbers count as numbers: frame 2 comes before frame 10.
Imports numpy alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from xdesc_jax.matching.pairs import Pairs

_NUMBER = re.compile(r"(\d+)")


@dataclasses.dataclass(frozen=True)
class Places:
    """Where N photos stand.

    Attributes:
        folder: [N] int, which sequence.
        place: [N] int, where in it.
    """

    folder: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, names: Sequence[str]) -> Places:
        """Of photos by their names."""
        folder, place = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
        ids: dict[str, int] = {}
        counts: dict[int, int] = {}
        for row in sorted(range(len(names)), key=lambda row: natural(names[row])):
            of = ids.setdefault(names[row].rpartition("/")[0], len(ids))
            folder[row], place[row] = of, counts.get(of, 0)
            counts[of] = counts.get(of, 0) + 1
        return cls(folder, place)

    def apart(self, first: np.ndarray, second: np.ndarray, window: int) -> np.ndarray:
        """Whether photos of rows `first` and `second` are of two sequences, or more than `window` places apart."""
        near = np.abs(self.place[first] - self.place[second]) <= window
        return ~(near & (self.folder[first] == self.folder[second]))


def natural(name: str) -> list[tuple[int, int | str]]:
    """A key that sorts names with numbers as people do."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in _NUMBER.split(name) if part]


def sequential_pairs(names: Sequence[str], window: int) -> Pairs:
    """Each photo with the next `window` ones of its folder; the one that comes first stands first.

    Args:
        names: of the photos.
        window: at least 1.
    """
    at = Places.of(names)
    order = np.lexsort((at.place, at.folder))
    first, second = [], []
    for step in range(1, min(window, len(names) - 1) + 1):
        same = at.folder[order[:-step]] == at.folder[order[step:]]
        first.append(order[:-step][same])
        second.append(order[step:][same])
    empty = np.zeros(0, np.int32)
    rows = [np.concatenate(side).astype(np.int32) if side else empty for side in (first, second)]
    return Pairs(names, names, *rows)
