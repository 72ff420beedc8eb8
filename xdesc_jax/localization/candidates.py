"""Which photos of a map each query is matched with, as a pair list says.

In: a pair list, which may be of a larger collection (as retrieval makes it): of queries that are not asked for, and
of photos that were never registered. Out: the photos of each query, and what was left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path

from xdesc_jax import console
from xdesc_jax.matching.pairs import Pair, read_pairs

SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Photos to match queries with.

    Attributes:
        photos: query -> photos of the map, each once.
        left_out: pairs of the list that name other queries or photos.
    """

    photos: dict[str, list[str]]
    left_out: int


def read_candidates(
    path: Path, queries: Sequence[str], registered: Collection[str], described: Sequence[str], strict: bool
) -> Candidates:
    """Reads the pair list of queries and photos of the map.

    Args:
        path: pair list, query and map photo a line.
        queries: the query list.
        registered: photos of the model.
        described: photos in the map's feature files.
        strict: refuse a list that names anything else.

    Raises:
        ValueError: no pair is of a query and a photo of the map, or with `strict`, some are not.
    """
    known, usable = set(queries), set(registered).intersection(described)
    pairs = read_pairs(path, queries, sorted({*registered, *described}))
    kept = [pair for pair in pairs if pair[0] in known and pair[1] in usable]
    for place, names, what in ((0, known, "the query list"), (1, usable, "the map")):
        _tell(path, pairs, place, names, what, refuse=strict or not kept)
    if not kept:
        raise ValueError(f"{path}: none of its {len(pairs)} pairs is of a query and a photo of the map")
    photos: dict[str, dict[str, None]] = {name: {} for name in queries}
    for query, photo in kept:
        photos[query][photo] = None
    return Candidates({name: list(found) for name, found in photos.items()}, len(pairs) - len(kept))


def _tell(path: Path, pairs: Sequence[Pair], place: int, names: Collection[str], what: str, refuse: bool) -> None:
    """Warns of names that are not among those of one side, or raises ValueError with `refuse`."""
    unknown = list(dict.fromkeys(pair[place] for pair in pairs if pair[place] not in names))
    if not unknown:
        return
    text = f"{path}: names {len(unknown)} photos that are not in {what}, first {unknown[:SHOWN]}"
    if refuse:
        raise ValueError(f"{text}; there are {len(names)}, first {sorted(names)[:SHOWN]}")
    concerned = sum(pair[place] not in names for pair in pairs)
    console.warn(f"{text}; {concerned} of {len(pairs)} pairs are left out")
