"""The map photos that each query is matched with.

In: a pair list as retrieval makes it, or global features of all photos (hloc's file: a group a photo with
`global_descriptor`, such as NetVLAD's). Out: for each query the nearest photos, the most similar first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xdesc_jax.matching.global_features import GlobalFeatures
from xdesc_jax.matching.pair_choice import similar_pairs
from xdesc_jax.matching.pairs import read_pairs

_SHOWN = 5


def check(pairs: Path | None, global_features: Path | None, top: int, model: bool) -> None:
    """Raises where queries cannot be given photos: FileNotFoundError without the file, ValueError else.

    Args:
        pairs, global_features: one of them, or none.
        top: photos a query.
        model: whether a model retrieves photos where neither is given.
    """
    if pairs and global_features:
        raise ValueError(f"--pairs {pairs} and --global-features {global_features}: give one of them")
    if not (pairs or global_features or model):
        raise ValueError("name the photos to match queries with: --pairs or --global-features")
    if top < 1:
        raise ValueError(f"retrieval of {top} photos, expected at least 1")
    for path in (pairs, global_features):
        if path and not Path(path).is_file():
            raise FileNotFoundError(f"{path}: no such file")


def found(
    pairs: Path | None, global_features: Path | None, queries: Sequence[str], photos: Sequence[str], top: int
) -> list[tuple[str, str]] | None:
    """Pairs by whichever is given, see `listed` and `nearest`; None where neither is."""
    if pairs:
        return listed(Path(pairs), queries, photos, top)
    return nearest(Path(global_features), queries, photos, top) if global_features else None


def listed(path: Path, queries: Sequence[str], photos: Sequence[str], top: int) -> list[tuple[str, str]]:
    """The first pairs of each query in a list; those of other queries and photos are left out.

    Args:
        path: pair list, query and photo a line, the most similar first.
        queries, photos: the ones to take.
        top: photos a query.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a query has no pair, or the file is no pair list.
    """
    asked, known = frozenset(queries), frozenset(photos)
    chosen: dict[str, dict[str, None]] = {name: {} for name in queries}
    for query, photo in read_pairs(path, list(queries), list(photos)):
        if query in asked and photo in known and len(chosen[query]) < top:
            chosen[query][photo] = None
    if lacking := [name for name, of_query in chosen.items() if not of_query]:
        raise ValueError(
            f"{path}: no pair of {len(lacking)} of {len(queries)} queries with a photo of the map, first "
            f"{lacking[:_SHOWN]}"
        )
    return [(query, photo) for query, of_query in chosen.items() for photo in of_query]


def nearest(path: Path, queries: Sequence[str], photos: Sequence[str], top: int) -> list[tuple[str, str]]:
    """The photos with the most similar global features (cosine), the first by name of equal ones.

    Args:
        path: .h5 of hloc's layout, with all queries and photos (see `matching.global_features`).
        queries, photos: names.
        top: photos a query; all where there are no more.

    Raises:
        FileNotFoundError: no such file.
        ValueError: photos that it lacks, features that are not of one width or not finite, or a query that has none
            but zeros.
    """
    pairs = list(similar_pairs(queries, sorted(photos), GlobalFeatures([path]), top))
    served = {query for query, _ in pairs}
    if lacking := [name for name in queries if name not in served]:
        raise ValueError(f"{path}: global features of {len(lacking)} queries are zero, first {lacking[:_SHOWN]}")
    return pairs
