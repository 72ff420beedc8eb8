"""Matching across photos with known correspondence: native, translated, joint and naive.

In: scenes, one feature file per descriptor (identical keypoints in all), and a translator. Out: one
`Result` per comparison, with the measures of every pair and scene. Photo 1 of a scene is the query; its
descriptors are the ones translated. Reads feature files alone: extraction is the caller's.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.evaluate.finished import left_of, of_pairs
from xdesc_jax.evaluate.measures import CORRECT_PX, RATIO, GroundTruth, Measures, mean, measure
from xdesc_jax.evaluate.photos import Photo, Photos, Translates, check_photos, check_specs, opened
from xdesc_jax.evaluate.scenes import PhotoPair, Scene
from xdesc_jax.files.journal import Entry, Journal
from xdesc_jax.matching import nearest as matching

Mode = Literal["native", "translated", "joint", "naive"]


@dataclasses.dataclass(frozen=True, order=True)
class Comparison:
    """One row of the result table: the query photo has `source`, the database photo `target`.

    Modes: `native`, both as they are (one descriptor); `translated`, the query translated to `target`;
    `joint`, both embedded; `naive`, both as they are though they are two descriptors.
    """

    mode: Mode
    source: str
    target: str

    @property
    def label(self) -> str:
        if self.mode == "native":
            return self.source
        return f"{self.source} {'->' if self.mode == 'translated' else '|'} {self.target}"


@dataclasses.dataclass(frozen=True)
class Result:
    """The measures of one comparison: `pairs[scene][database photo]`."""

    comparison: Comparison
    pairs: dict[str, dict[str, Measures]]

    @property
    def scenes(self) -> dict[str, Measures]:
        """Means over the pairs of each scene."""
        return {scene: mean(list(pairs.values())) for scene, pairs in self.pairs.items()}

    @property
    def mean(self) -> Measures:
        """Mean over scenes of the means over pairs."""
        return mean(list(self.scenes.values()))

    def to_dict(self) -> dict[str, Any]:
        """JSON-like: the comparison, its mean, and mean and pairs of every scene."""
        as_dict = dataclasses.asdict
        scenes = {
            scene: {"mean": as_dict(average), "pairs": {k: as_dict(m) for k, m in self.pairs[scene].items()}}
            for scene, average in self.scenes.items()
        }
        return {**as_dict(self.comparison), "mean": as_dict(self.mean), "scenes": scenes}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Result:
        """The inverse of `to_dict`, also after a way through JSON; older files know no calibrated ratio."""
        pairs = {
            scene: {name: measures_of(fields) for name, fields in found["pairs"].items()}
            for scene, found in value["scenes"].items()
        }
        return cls(Comparison(value["mode"], value["source"], value["target"]), pairs)


def measures_of(fields: Mapping[str, Any]) -> Measures:
    """The inverse of `dataclasses.asdict`, also after a way through JSON; older files know no calibrated ratio."""
    uncalibrated = {
        "ratio": RATIO,
        "calibrated_correct": fields["correct"],
        "calibrated_precision": fields["precision"],
    }
    return Measures(**{**uncalibrated, **fields, "mma": tuple(fields["mma"])})


@dataclasses.dataclass(frozen=True)
class Searched:
    """What a search between the N query rows and the M database rows of one photo pair finds.

    Attributes:
        comparison, scene, database: what was compared, the scene, and its database photo.
        truth: where the query keypoints lie.
        nearest: [N] int, each query row's nearest database row, -1 where it has none.
        ratios: [N] float32, its first-to-second distance ratio on the L2 scale.
        mutual: [K, 2] int, mutual nearest neighbours (query row, database row), as `nearest.match` finds them.
        mutual_ratios: [K] float32, the larger one of their ratios in the two directions.
    """

    comparison: Comparison
    scene: str
    database: str
    truth: GroundTruth
    nearest: np.ndarray
    ratios: np.ndarray
    mutual: np.ndarray
    mutual_ratios: np.ndarray


@dataclasses.dataclass(frozen=True)
class MatchedPair:
    """Mutual matches of one pair, for drawing.

    Attributes:
        query_xy, database_xy: [K, 2] matched positions, px.
        correct: [K] bool, the error is at most 3 px. Matches of unknown truth are left out.
    """

    query_xy: np.ndarray
    database_xy: np.ndarray
    correct: np.ndarray


def comparisons(specs: Mapping[str, DescriptorSpec], translator: Translates | None) -> list[Comparison]:
    """All comparisons that these descriptors and this translator allow, in the order they are reported."""
    known = [name for name in specs if translator is not None and name in translator.names]
    plan = [Comparison("native", name, name) for name in specs]
    if translator is not None:
        plan += [Comparison("translated", s, t) for s in known for t in known if s != t and translator.gives(s, t)]
        if translator.space_id is not None:  # pair networks have no joint space
            plan += [Comparison("joint", s, t) for s in known for t in known]
    plan += [
        Comparison("naive", s, t)
        for s, a in specs.items()
        for t, b in specs.items()
        if s != t and (a.kind, a.width) == (b.kind, b.width)
    ]
    return plan


def evaluate(
    scenes: Sequence[Scene],
    stores: Mapping[str, Path | str],
    translator: Translates | None = None,
    plan: Sequence[Comparison] | None = None,
    journal: Journal | None = None,
) -> list[Result]:
    """Matches every pair of every scene under each comparison.

    Args:
        scenes: photo pairs; photo names are those in the feature files.
        stores: feature file of each descriptor; all hold the same keypoints.
        translator: gives the translated and joint rows; without it there are none.
        plan: the comparisons to make; all that are possible by default.
        journal: of a run that may be stopped, made with a hash of all the others; what it has is not measured again.

    Returns:
        One result per comparison, in the order of `plan`.

    Raises:
        ValueError: see `search`.
    """

    def measured(s: Searched) -> Measures:
        ratio = _ratio(s.comparison, translator)
        return measure(s.truth, s.nearest, s.ratios, s.mutual, s.mutual_ratios, ratio)

    def work(finished: int) -> Iterator[Entry]:
        for of_pair in searched_pairs(scenes, stores, translator, plan, finished):
            as_dict = dataclasses.asdict
            yield {"measures": [[dataclasses.astuple(s.comparison), as_dict(measured(s))] for s in of_pair]}

    found: dict[Comparison, dict[str, dict[str, Measures]]] = {}
    for scene, database, entry in of_pairs(scenes, work, journal):
        for comparison, fields in entry["measures"]:
            found.setdefault(Comparison(*comparison), {}).setdefault(scene, {})[database] = measures_of(fields)
    return [Result(comparison, pairs) for comparison, pairs in found.items()]


def search(
    scenes: Sequence[Scene],
    stores: Mapping[str, Path | str],
    translator: Translates | None = None,
    plan: Sequence[Comparison] | None = None,
    finished: int = 0,
) -> Iterator[Searched]:
    """The searches behind `evaluate`, pair by pair; same arguments, but for how many of the first pairs to leave out.

    Raises:
        ValueError: feature files whose photos or keypoints differ, that lack a photo, whose rows do not fit
            their spec, or whose width or kind is not the translator's.
    """
    with opened(stores, translator) as given:
        check_photos(scenes, given)
        check_specs(given, translator)
        if plan is None:
            plan = comparisons({name: store.spec for name, store in given.items()}, translator)
        photos = Photos(given, translator)
        for scene, pair in left_of(scenes, finished):
            query, database = photos[pair.query], photos[pair.database]
            truth = GroundTruth.of(query.xy, database.xy, pair.correspondence)
            for comparison in plan:
                found = _search(*_sides(comparison, query, database))
                yield Searched(comparison, scene.name, pair.database, truth, *found)


def searched_pairs(
    scenes: Sequence[Scene],
    stores: Mapping[str, Path | str],
    translator: Translates | None,
    plan: Sequence[Comparison] | None,
    finished: int,
) -> Iterator[list[Searched]]:
    """What `search` finds, the comparisons of a pair together; same arguments."""
    searched = search(scenes, stores, translator, plan, finished)
    return (list(found) for _, found in itertools.groupby(searched, lambda s: (s.scene, s.database)))


def compared(
    comparison: Comparison, query: Photo, database: Photo, pair: PhotoPair, translator: Translates | None
) -> Measures:
    """The measures of one comparison of two photos, of any files."""
    truth = GroundTruth.of(query.xy, database.xy, pair.correspondence)
    return measure(truth, *_search(*_sides(comparison, query, database)), _ratio(comparison, translator))


def _ratio(comparison: Comparison, translator: Translates | None) -> float:
    source, target, mode = comparison.source, comparison.target, comparison.mode
    if translator is None or mode == "naive" or not {source, target} <= set(translator.names):
        return RATIO
    found = translator.ratio(source, target, joint=mode == "joint")
    return RATIO if found is None else found


def matches_of(
    pair: PhotoPair,
    stores: Mapping[str, Path | str],
    translator: Translates | None,
    plan: Sequence[Comparison],
) -> list[MatchedPair]:
    """The mutual matches of one pair under each comparison, without ratio test, for drawing."""
    with opened(stores, translator) as given:
        check_specs(given, translator)
        photos = Photos(given, translator)
        query, database = photos[pair.query], photos[pair.database]
    truth = GroundTruth.of(query.xy, database.xy, pair.correspondence)
    found = []
    for comparison in plan:
        a, b, binary = _sides(comparison, query, database)
        rows, columns = matching.match(a, b, binary=binary).indices.T
        known = truth.known[rows]
        rows, columns = rows[known], columns[known]
        correct = truth.errors(rows, columns) <= CORRECT_PX
        found.append(MatchedPair(truth.query_xy[rows], truth.database_xy[columns], correct))
    return found


def _search(a: np.ndarray, b: np.ndarray, binary: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Nearest rows, their ratios, mutual matches and theirs (see `Searched`)."""
    # One search serves the ranking and the mutual matches at any ratio.
    forward, backward = matching.nearest2_both(a, b, binary=binary)
    ratios, ratios_back = (matching.metric_ratio(n.distance, n.second, binary) for n in (forward, backward))
    rows = np.flatnonzero(forward.index >= 0)
    rows = rows[backward.index[forward.index[rows]] == rows]
    mutual = np.stack([rows, forward.index[rows]], axis=1)
    return forward.index, ratios, mutual, np.maximum(ratios[mutual[:, 0]], ratios_back[mutual[:, 1]])


def _sides(comparison: Comparison, query: Photo, database: Photo) -> tuple[np.ndarray, np.ndarray, bool]:
    """The rows to match, and whether they are packed bits."""
    source, target = comparison.source, comparison.target
    if comparison.mode == "joint":
        return query.embedded(source), database.embedded(target), False
    a = query.translated(source, target) if comparison.mode == "translated" else query.native(source)
    return a, database.native(target), database.specs[target].binary
