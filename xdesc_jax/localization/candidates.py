"""Which photos of a map each query is matched with, as a pair list says.

In: a pair list, which may be of a larger collection (as retrieval makes it): of queries that are not asked for, and
of photos that were never registered. Out: the photos of each query, and what was left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.matching.global_features import GlobalFeatures
from xdesc_jax.matching.pair_choice import similar_pairs
from xdesc_jax.matching.pairs import read_pairs

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
    usable = set(registered).intersection(described)
    pairs = read_pairs(path, queries, sorted({*registered, *described}))
    is_query = np.arange(len(pairs.names0)) < len(queries)  # others of the list stand behind
    is_photo = np.array([name in usable for name in pairs.names1], bool)
    sides = (is_query[pairs.first], is_photo[pairs.second])
    kept = pairs.take(sides[0] & sides[1])
    refuse = strict or not len(kept)
    _tell(path, _names_of(pairs.names0, pairs.first, ~sides[0]), ~sides[0], queries, "the query list", refuse)
    _tell(path, _names_of(pairs.names1, pairs.second, ~sides[1]), ~sides[1], usable, "the map", refuse)
    if not len(kept):
        raise ValueError(f"{path}: none of its {len(pairs)} pairs is of a query and a photo of the map")
    photos: dict[str, dict[str, None]] = {name: {} for name in queries}
    for query, photo in kept:
        photos[query][photo] = None
    return Candidates({name: list(found) for name, found in photos.items()}, len(pairs) - len(kept))


def similar_candidates(
    paths: Sequence[Path], queries: Sequence[str], registered: Collection[str], described: Collection[str], top: int
) -> Candidates:
    """The photos of the map whose vectors are most like a query's.

    Args:
        paths: files of one vector a photo, of queries and map (`matching.global_features`).
        queries: the query list.
        registered: photos of the model.
        described: photos in the map's feature files.
        top: how many for each query.

    Raises:
        ValueError: photos without a vector.
    """
    usable = sorted(set(registered).intersection(described))
    pairs = similar_pairs(queries, usable, GlobalFeatures(paths), top)
    photos: dict[str, list[str]] = {name: [] for name in queries}
    for query, photo in pairs:
        photos[query].append(photo)
    return Candidates(photos, 0)


def _names_of(names: Sequence[str], ids: np.ndarray, chosen: np.ndarray) -> list[str]:
    """Photos of the chosen pairs, each once, in the order of the list."""
    found, first = np.unique(ids[chosen], return_index=True)
    return [names[i] for i in found[np.argsort(first)].tolist()]


def _tell(
    path: Path, unknown: Sequence[str], concerned: np.ndarray, names: Collection[str], what: str, refuse: bool
) -> None:
    """Warns of names that are not among those of one side, or raises ValueError with `refuse`."""
    if not unknown:
        return
    text = f"{path}: names {console.counted(len(unknown), 'photo')} not in {what}, first {unknown[:SHOWN]}"
    if refuse:
        raise ValueError(f"{text}; there are {len(names)}, first {sorted(names)[:SHOWN]}")
    console.warn(f"{text}; {int(concerned.sum())} of {len(concerned)} pairs are left out")
