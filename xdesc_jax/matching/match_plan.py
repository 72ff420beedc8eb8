"""What is matched, and how: the plan of the stage `xdesc match`.

In: a pair list, or 'exhaustive', features and a router. Out: a `MatchPlan`: pairs in the order of work, each once in
either order and none of a photo with itself, and the route of each. Names are looked up before any work. Runs on the
base install.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.matches import check_names
from xdesc_jax.matching.pairs import Pair, Pairs, all_pairs, distinct, in_blocks, in_both_orders, read_pairs
from xdesc_jax.matching.routes import KEPT_BYTES, Route, Router

EXHAUSTIVE = "exhaustive"
_CHUNK = 4096  # pairs whose names are looked up at a time


@dataclasses.dataclass(frozen=True)
class MatchPlan:
    """What is matched, and how.

    Attributes:
        pairs: in the order of work.
        routes: the different ones.
        route: [M] int16, which of them each pair takes.
        counts: of given, own and repeated pairs.
    """

    pairs: Pairs
    routes: list[Route]
    route: np.ndarray
    counts: dict[str, int]

    def __iter__(self) -> Iterator[tuple[Pair, Route]]:
        return self.part(0, len(self.pairs))

    def part(self, start: int, stop: int) -> Iterator[tuple[Pair, Route]]:
        """Some pairs, each with its route."""
        for at in range(start, min(stop, len(self.pairs)), _CHUNK):
            chosen = slice(at, min(at + _CHUNK, stop))
            yield from zip(self.pairs[chosen], map(self.routes.__getitem__, self.route[chosen]), strict=True)


def make_plan(pairs: str | Pairs, first: FeatureSet, second: FeatureSet, router: Router, two_sets: bool) -> MatchPlan:
    """The pairs to match, each once in either order and none with itself, and the route of each.

    Args:
        pairs: path of a pair list, 'exhaustive', or the pairs themselves.
        first, second: features of the first and of the second photos.
        router: chooses routes.
        two_sets: whether the second photos are of other files.

    Raises:
        ValueError: names that the features lack, or rows that do not compare.
    """
    if isinstance(pairs, Pairs):
        given, where = pairs, "the rule of pairs"
    elif pairs == EXHAUSTIVE:
        given, where = all_pairs(first.names, second.names if two_sets else None), "all pairs"
    else:
        given, where = read_pairs(Path(pairs), first.known, second.known), f"pair list {pairs}"
    first.check_names(given.names0, where)
    second.check_names(given.names1, where)
    listed_pairs, given = len(given), _of_taken(given, first, second)
    if listed_pairs and not len(given):
        raise ValueError(
            f"{where}: holds {console.counted(listed_pairs, 'pair')}, none of two photos that are taken; see --only"
        )
    chosen, own = distinct(given, ordered=two_sets)
    check_names([*named(chosen)[0], *named(chosen)[1]])
    counts = {"pairs_given": len(given), "self_pairs": own, "duplicates": len(given) - own - len(chosen)}
    if listed_pairs > len(given):
        counts["pairs_of_other_photos"] = listed_pairs - len(given)
    if two_sets:
        listed = isinstance(pairs, str) and pairs != EXHAUSTIVE
        counts["pairs_in_both_orders"] = _tell_of_both_orders(given, first, second, listed)
    ordered = in_blocks(chosen, _photos_in_memory(first))
    return MatchPlan(ordered, *_routes(ordered, first, second, router), counts)


def _of_taken(pairs: Pairs, first: FeatureSet, second: FeatureSet) -> Pairs:
    """The pairs of two photos that the sets take."""
    kept = np.ones(len(pairs), bool)
    for names, rows, features in ((pairs.names0, pairs.first, first), (pairs.names1, pairs.second, second)):
        taken = frozenset(features.names)
        kept &= np.array([name in taken for name in names], bool)[rows]
    return pairs if kept.all() else pairs.take(kept)


def named(pairs: Pairs) -> tuple[list[str], list[str]]:
    """The first and the second photos that pairs name, each once."""
    first, second = np.unique(pairs.first).tolist(), np.unique(pairs.second).tolist()
    return [pairs.names0[i] for i in first], [pairs.names1[i] for i in second]


def _tell_of_both_orders(given: Pairs, first: FeatureSet, second: FeatureSet, listed: bool) -> int:
    """Says where two files hold photos of the same names and pairs stand in both orders; returns how many do.

    A warning where somebody listed them; of all pairs, one order of two photos is what is meant.
    """
    both = in_both_orders(given)
    if not both:
        return 0
    a, b = both[0]
    files = f"{first.path(a)} and {second.path(b)} hold photos of the same names"
    if not listed:
        console.info(f"{files}: any two are matched once, as {a!r} of the first file with {b!r} of the second")
    else:
        console.warn(
            f"{console.counted(len(both), 'pair is', 'pairs are')} in both orders, first {a!r} and {b!r}: a "
            "match file has one place for two photos, so the order listed first is matched; match the other one into a "
            f"file of its own ({files})"
        )
    return len(both)


def _photos_in_memory(features: FeatureSet) -> int:
    """Photos of which two groups fit in what `Rows` keeps, by the first ones' numbers of keypoints."""
    sample = features.names[:: max(1, len(features) // 20)]
    rows = np.mean([len(features.keypoints(name)) for name in sample]) if sample else 0
    return max(1, int(KEPT_BYTES / 2 / max(1.0, rows * 512)))


def _routes(pairs: Pairs, first: FeatureSet, second: FeatureSet, router: Router) -> tuple[list[Route], np.ndarray]:
    """The routes, and that of each pair; a photo without descriptors takes what the other one holds."""
    if not len(pairs):
        return [], np.zeros(0, np.int16)
    kinds: list[Held | None] = [None]
    kind0, kind1 = (
        _kinds(features, names, ids, kinds)
        for features, names, ids in ((first, pairs.names0, pairs.first), (second, pairs.names1, pairs.second))
    )
    some = next((held for held in kinds if held is not None), None)
    if some is None:
        files = ", ".join(map(str, dict.fromkeys((*first.paths, *second.paths))))
        raise ValueError(f"no photo in {files} has descriptors")
    both = kind0[pairs.first] * len(kinds) + kind1[pairs.second]
    made: dict[tuple[Held, Held], Route] = {}
    routes: list[Route] = []
    place = np.zeros(len(kinds) ** 2, np.int16)
    begin = {int(np.argmax(both == kind)): kind for kind in np.flatnonzero(np.bincount(both)).tolist()}
    for at, kind in sorted(begin.items()):
        x, y = (kinds[side] for side in divmod(kind, len(kinds)))
        held = (x or y or some, y or x or some)
        if held not in made:
            ((a, b),) = pairs[at : at + 1]
            try:
                made[held] = router.route(*held)
            except ValueError as error:
                raise ValueError(f"{first.path(a)}: {a!r} and {second.path(b)}: {b!r}: {error}") from error
        place[kind] = len(routes)
        routes.append(made[held])
    return routes, place[both]


def _kinds(features: FeatureSet, names: Sequence[str], ids: np.ndarray, kinds: list[Held | None]) -> np.ndarray:
    """For each photo that pairs name, which of `kinds` it holds, int32; those that are met first are added."""
    found = np.zeros(len(names), np.int32)
    used, begin = np.unique(ids, return_index=True)
    for i in used[np.argsort(begin)].tolist():
        held = features.held(names[i])
        if held not in kinds:
            kinds.append(held)
        found[i] = kinds.index(held)
    return found
