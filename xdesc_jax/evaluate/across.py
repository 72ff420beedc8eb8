"""Matching across detectors: query photos with keypoints of one file, database photos with those of another.

In: scenes, feature files of the query photos and of the database photos, each with keypoints of its own, and a
translator. Out: the measures of each comparison of a file of the one with one of the other, what each file gives
natively on both photos, and the repeatability of their keypoints, which says what the detectors allow. Photo 1 of a
scene is the query; its descriptors are the ones translated.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.evaluate.finished import left_of, of_pairs
from xdesc_jax.evaluate.homography import Comparison, Result, compared, measures_of
from xdesc_jax.evaluate.measures import CORRECT_PX, Measures
from xdesc_jax.evaluate.photos import Photos, check_photos, check_specs, opened
from xdesc_jax.evaluate.repeatability import Repeatability, mean, repeatability
from xdesc_jax.evaluate.scenes import PhotoPair, Scene
from xdesc_jax.features.frames import of_features
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.journal import Entry, Journal
from xdesc_jax.translation.translator import EMBEDDING, Translator


@dataclasses.dataclass(frozen=True)
class Sides:
    """Whose keypoints the two photos of a pair have.

    Attributes:
        query, database: descriptors, whose files hold the keypoints.
        files: 'across' for a file of the queries and one of the database photos; 'query' or 'database' for one file of
            these on both sides.
    """

    query: str
    database: str
    files: str = "across"


@dataclasses.dataclass(frozen=True)
class Repeated:
    """The repeatability of the keypoints of two sides: `pairs[scene][database photo]`."""

    sides: Sides
    pairs: dict[str, dict[str, Repeatability]]

    @property
    def mean(self) -> Repeatability:
        """Mean over scenes of the means over pairs."""
        return mean([mean(list(found.values())) for found in self.pairs.values()])

    def to_dict(self) -> dict[str, Any]:
        """JSON-like; its inverse is `from_dict`."""
        return {
            **dataclasses.asdict(self.sides),
            "mean": dataclasses.asdict(self.mean),
            "scenes": {s: {k: dataclasses.asdict(r) for k, r in found.items()} for s, found in self.pairs.items()},
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Repeated:
        """The inverse of `to_dict`, also after a way through JSON."""
        pairs = {s: {k: Repeatability(**r) for k, r in found.items()} for s, found in value["scenes"].items()}
        return cls(Sides(value["query"], value["database"], value["files"]), pairs)


@dataclasses.dataclass(frozen=True)
class Across:
    """What matching across detectors gives.

    Attributes:
        results: a file of the queries against one of the database photos.
        native: 'query' and 'database' -> what files of these give with themselves on both photos.
        repeated: the repeatability of all these sides.
    """

    results: list[Result]
    native: dict[str, list[Result]]
    repeated: list[Repeated]

    def natively(self, comparison: Comparison) -> tuple[Result, Result]:
        """What a comparison's query file and its database file give with themselves."""
        named = {side: {r.comparison.source: r for r in found} for side, found in self.native.items()}
        return named["query"][comparison.source], named["database"][comparison.target]

    def to_dict(self) -> dict[str, Any]:
        """JSON-like; its inverse is `from_dict`."""
        return {
            "results": [result.to_dict() for result in self.results],
            "native": {side: [result.to_dict() for result in found] for side, found in self.native.items()},
            "repeatability": [found.to_dict() for found in self.repeated],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Across:
        """The inverse of `to_dict`, also after a way through JSON."""
        return cls(
            [Result.from_dict(result) for result in value["results"]],
            {side: [Result.from_dict(result) for result in found] for side, found in value["native"].items()},
            [Repeated.from_dict(found) for found in value["repeatability"]],
        )


def correct_mutual(result: Result) -> float:
    """Mutual nearest neighbours within 3 px of the truth, without a ratio test: mean over pairs, then scenes."""
    at = int(CORRECT_PX) - 1  # of the accuracies at 1, 2, ... px
    scenes = [[m.mma[at] * m.matches for m in pairs.values()] for pairs in result.pairs.values()]
    return sum(sum(found) / len(found) for found in scenes) / len(scenes)


def evaluate_across(
    scenes: Sequence[Scene],
    queries: Mapping[str, Path | str],
    databases: Mapping[str, Path | str],
    translator: Translator | None = None,
    journal: Journal | None = None,
) -> Across:
    """Matches every pair of every scene, with the query photo of each file and the database photo of each other.

    Args:
        scenes: photo pairs with homographies; photo names are those in the feature files.
        queries, databases: feature file of each descriptor, each with keypoints of its own; a file holds both photos.
        translator: gives the translated and joint rows; without it there are none.
        journal: of a run that may be stopped, made with a hash of all the others; what it has is not measured again.

    Raises:
        ValueError: files that lack a photo or the size of one, whose rows do not fit their spec, or whose width or
            kind is not the translator's; scenes without homographies.
    """
    with contextlib.ExitStack() as stack:
        files = {
            side: {n: stack.enter_context(opened({n: path}, translator))[n] for n, path in given.items()}
            for side, given in (("query", queries), ("database", databases))
        }
        for stores in files.values():
            check_photos(scenes, stores)
            check_specs(stores, translator)
        planned = _planned(files["query"], files["database"], scenes, translator)

        def work(finished: int) -> Iterator[Entry]:
            for _, pair in left_of(scenes, finished):
                yield {"sides": [_measured(each, pair, translator) for each in planned]}

        measured: dict[tuple[str, Comparison], dict[str, dict[str, Measures]]] = {}
        repeated: dict[Sides, dict[str, dict[str, Repeatability]]] = {}
        for scene, photo, entry in of_pairs(scenes, work, journal):
            for each, found in zip(planned, entry["sides"], strict=True):
                for comparison, fields in zip(each.plan, found["measures"], strict=True):
                    by_scene = measured.setdefault((each.sides.files, comparison), {})
                    by_scene.setdefault(scene, {})[photo] = measures_of(fields)
                of_scene = repeated.setdefault(each.sides, {}).setdefault(scene, {})
                of_scene[photo] = Repeatability(**found["repeatability"])
    results: dict[str, list[Result]] = {"across": [], "query": [], "database": []}
    for (side, comparison), pairs in measured.items():
        results[side].append(Result(comparison, pairs))
    return Across(results.pop("across"), results, [Repeated(*found) for found in repeated.items()])


class _File(NamedTuple):
    store: FeatureStore
    photos: Photos


class _Work(NamedTuple):
    """What is done with each pair: two files, and their comparisons."""

    sides: Sides
    query: _File
    database: _File
    plan: list[Comparison]


def _measured(work: _Work, pair: PhotoPair, translator: Translator | None) -> Entry:
    """The figures of one pair, JSON-like."""
    query, database = work.query.photos[pair.query], work.database.photos[pair.database]
    measures = [compared(comparison, query, database, pair, translator) for comparison in work.plan]
    repeated = _repeated(query.xy, database.xy, pair, *_sizes(pair, work.query.store, work.database.store))
    return {"measures": [dataclasses.asdict(m) for m in measures], "repeatability": dataclasses.asdict(repeated)}


def _planned(
    queries: Mapping[str, FeatureStore], databases: Mapping[str, FeatureStore], scenes: Sequence[Scene],
    translator: Translator | None,
) -> list[_Work]:  # fmt: skip
    """Each file of the queries with each of the database photos, and each file with itself."""
    specs = {store.spec.name: store.spec for stores in (queries, databases) for store in stores.values()}

    def files(stores: Mapping[str, FeatureStore]) -> dict[str, _File]:
        return {name: _File(store, Photos({name: store}, translator, specs)) for name, store in stores.items()}

    first, second = files(queries), files(databases)
    pair = scenes[0].pairs[0]
    framed = [
        {name: of_features(file.store.read(photo)) is not None for name, file in of.items()}
        for of, photo in ((first, pair.query), (second, pair.database))
    ]
    work = [
        _Work(Sides(s, t), first[s], second[t], comparisons(specs[s], specs[t], translator, framed[0][s], framed[1][t]))
        for s in first
        for t in second
    ]
    for side, of in (("query", first), ("database", second)):
        work += [_Work(Sides(n, n, side), file, file, [Comparison("native", n, n)]) for n, file in of.items()]
    return work


def comparisons(
    query: DescriptorSpec, database: DescriptorSpec, translator: Translator | None, query_framed: bool,
    database_framed: bool,
) -> list[Comparison]:  # fmt: skip
    """What can be compared of a query photo's rows with a database photo's, in the order of the report.

    What needs frames that a file does not have is left out: from keypoints without angles to rows that turn with them
    there is no translation.

    Args:
        query, database: what the rows are.
        translator: None without one.
        query_framed, database_framed: whether the keypoints have scales and orientations.
    """
    s, t = query.name, database.name
    plan = [Comparison("native", s, t)] if s == t else []
    if translator is not None:
        if s != t and _possible(translator, s, t, query_framed):
            plan.append(Comparison("translated", s, t))
        if _possible(translator, s, EMBEDDING, query_framed) and _possible(translator, t, EMBEDDING, database_framed):
            plan.append(Comparison("joint", s, t))
    if s != t and (query.kind, query.width) == (database.kind, database.width):
        plan.append(Comparison("naive", s, t))
    return plan


def _possible(translator: Translator, source: str, target: str, has_frames: bool) -> bool:
    return translator.gives(source, target) and (has_frames or not translator.takes_frames(source, target))


def _sizes(pair: PhotoPair, query: FeatureStore, database: FeatureStore) -> list[tuple[int, int]]:
    sizes = []
    for store, name in ((query, pair.query), (database, pair.database)):
        if min(size := store.image_size(name)) < 1:
            raise ValueError(f"{store.path}: does not say the size of {name!r} (`image_size`), which is needed here")
        sizes.append(size)
    return sizes


def _repeated(
    query_xy: np.ndarray, database_xy: np.ndarray, pair: PhotoPair, query_size: tuple[int, int],
    database_size: tuple[int, int],
) -> Repeatability:  # fmt: skip
    if pair.inverse is None:
        raise ValueError(
            f"{pair.query} and {pair.database}: nothing says where keypoints of the second lie in the first"
        )
    return repeatability(query_xy, database_xy, pair.correspondence, pair.inverse, query_size, database_size)
