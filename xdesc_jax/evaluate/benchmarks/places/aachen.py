"""Aachen Day-Night: queries by day and night in maps of the same and of other descriptors (the paper's tables 1 and 5).

In: the folder of the benchmark (see `aachen_data`), the photos that retrieval finds for each query, feature files or
what to extract, and translators. Out: of each row the file of poses for the benchmark's server, how many queries were
localised, and, where true poses are given, the shares within (0.25 m, 2 deg), (0.5 m, 5 deg) and (5 m, 10 deg).

The protocol is the paper's: each photo of the map is matched with its 20 nearest, points are triangulated in the given
poses, each query is matched with the 50 photos that retrieval found, and its pose is found with known intrinsics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from xdesc_jax import console, pretrained
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.places import aachen_data, inputs, query_scores, retrieved
from xdesc_jax.evaluate.benchmarks.places.deployed import SUBMISSIONS, Place, Task, localised
from xdesc_jax.evaluate.benchmarks.places.deployments import EMBED, SCENARIOS, Deployment, Scenario, possible
from xdesc_jax.evaluate.benchmarks.places.maps import spatial_pairs, write_pair_list
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, require
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.evaluate.benchmarks.tables import PAPER_NAMES, divides_as_the_paper
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.translation.translator import Translator

BENCHMARK = Benchmark(
    "aachen",
    "Aachen Day-Night",
    "the folder of Aachen Day-Night, v1 or v1.1: images/images_upright, 3D-models, queries",
    "https://www.visuallocalization.net/datasets/",
    "14 GB",
    "Table 1",
    aachen_data.check,
)
SIZES = dataclasses.replace(
    BENCHMARK, name="aachen-embedding-size", title="Aachen Day-Night, embedding size", paper="Table 5"
)
VERSION = 1  # of the figures
Plan = Callable[[Sequence[str], Sequence[tuple[Path, Translator]]], list[Task]]


def run(
    *,
    data: Path,
    out: Path,
    model: Path | None = None,
    features: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    scenarios: tuple[Scenario, ...] = SCENARIOS,
    pairs: Path | None = None,
    global_features: Path | None = None,
    reference: Path | None = None,
    neighbors: int = 20,
    retrieval: int = 50,
    keypoints: str = "colmap",
    max_keypoints: int = 8192,
    weights: tuple[str, ...] = (),
    ratio: float | Literal["auto"] | None = "auto",
    seed: int = 0,
    workers: int = 1,
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """Aachen Day-Night, v1 and v1.1: localisation by day and night, all rows of the paper's table 1.

    Args:
        data: folder of the benchmark, or one of the same layout.
        out: folder for result.json, table.md, report.html, the files of poses for the server (submissions), maps and,
            where they are extracted, the features.
        model: translator: a model file, or the name of one that ships with the package; without it there are only
            standard rows.
        features: feature files, or folders of them, of all photos by their names below images_upright; files may each
            have keypoints of their own. Extracted where none are given.
        descriptors: which ones, from the worst to the best; by default all of the feature files, or all of the model's
            that photos give.
        scenarios: kinds of rows: standard, 'continuous deployment', cross-device, collaborative.
        pairs: list of the map's photos that retrieval found for each query, the most similar first.
        global_features: instead of `pairs`: global features of all photos, such as NetVLAD's (hloc's .h5). Without
            either, photos are retrieved in the model's joint space.
        reference: true poses of the queries, a COLMAP model or a text 'name qw qx qy qz tx ty tz', where you have them.
        neighbors: photos of the map that each is matched with, the nearest by position.
        retrieval: photos that each query is matched with.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted; a network (xfeat,
            aliked-n16rot, ...) finds its own.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        ratio: largest first-to-second distance ratio; 'auto' for the calibrated ones, 'None' for mutual neighbours.
        seed: of RANSAC, and of which photo of a collaborative map holds what.
        workers: threads that localise.
        processes: that extract.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the folder is incomplete, files that do not fit it, or no row is possible.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    given: dict[str, Any] = {"pairs": pairs, "global_features": global_features, "reference": reference}
    given |= {"neighbors": neighbors, "retrieval": retrieval, "keypoints": keypoints, "max_keypoints": max_keypoints}
    given |= {"weights": weights, "ratio": ratio, "seed": seed, "model": model, "features": features}
    given |= {"scenarios": scenarios}

    def plan(names: Sequence[str], translators: Sequence[tuple[Path, Translator]]) -> list[Task]:
        path, translator = translators[0] if translators else (None, None)
        known = translator.names if translator else ()
        joint = translator is not None and translator.space_id is not None
        rows = possible(names, known, joint, scenarios)
        return [Task(row.label, row, path, row.paper_row_among(names)) for row in rows]

    run_one = _Run(
        BENCHMARK, Path(data), Path(out), (model,) if model else (), descriptors, given, workers, processes, overwrite
    )
    return run_one(plan, run)


def run_sizes(
    *,
    data: Path,
    out: Path,
    models: tuple[Path, ...],
    query: str = "sosnet",
    features: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    pairs: Path | None = None,
    global_features: Path | None = None,
    reference: Path | None = None,
    neighbors: int = 20,
    retrieval: int = 50,
    keypoints: str = "colmap",
    max_keypoints: int = 8192,
    weights: tuple[str, ...] = (),
    ratio: float | Literal["auto"] | None = "auto",
    seed: int = 0,
    workers: int = 1,
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """Aachen Day-Night: collaborative maps in joint spaces of several sizes, the paper's table 5.

    Args:
        data: folder of the benchmark, or one of the same layout.
        out: folder for result.json, table.md, report.html, the files of poses for the server, maps and features.
        models: translators with joint spaces of different widths.
        query: descriptor of the queries.
        features: feature files, or folders of them, of all photos by their names below images_upright; extracted where
            none are given.
        descriptors: that the map's photos hold; by default all of the feature files, or all of the first model's that
            photos give.
        pairs: list of the map's photos that retrieval found for each query, the most similar first.
        global_features: instead of `pairs`: global features of all photos, such as NetVLAD's (hloc's .h5). Without
            either, photos are retrieved in each model's joint space.
        reference: true poses of the queries, a COLMAP model or a text 'name qw qx qy qz tx ty tz', where you have them.
        neighbors: photos of the map that each is matched with, the nearest by position.
        retrieval: photos that each query is matched with.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        ratio: largest first-to-second distance ratio; 'auto' for the calibrated ones, 'None' for mutual neighbours.
        seed: of RANSAC, and of which photo holds what.
        workers: threads that localise.
        processes: that extract.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the folder is incomplete, files that do not fit it, a model without joint space or without one of
            the descriptors, or two models whose spaces are equally wide.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    given: dict[str, Any] = {"pairs": pairs, "global_features": global_features, "reference": reference}
    given |= {"neighbors": neighbors, "retrieval": retrieval, "keypoints": keypoints, "max_keypoints": max_keypoints}
    given |= {"weights": weights, "ratio": ratio, "seed": seed, "models": models, "features": features, "query": query}

    def plan(names: Sequence[str], translators: Sequence[tuple[Path, Translator]]) -> list[Task]:
        return sizes_plan(names, translators, query)

    run_one = _Run(SIZES, Path(data), Path(out), models, descriptors, given, workers, processes, overwrite)
    return run_one(plan, run_sizes)


def sizes_plan(names: Sequence[str], translators: Sequence[tuple[Path, Translator]], query: str) -> list[Task]:
    """A row a joint space, the widest first; ValueError where one does not serve."""
    if query not in names:
        raise ValueError(f"queries of {query!r}, expected one of {', '.join(names)}")
    tasks: dict[int, Task] = {}
    for path, translator in translators:
        missing = set(names) - set(translator.names)
        if translator.embedding_spec is None or missing:
            lacks = f"{', '.join(sorted(missing))}" if missing else "a joint space"
            raise ValueError(f"{path}: lacks {lacks}, so it takes no part in a collaborative map of {', '.join(names)}")
        width = translator.embedding_spec.width
        if width in tasks:
            raise ValueError(f"{path} and {tasks[width].model}: both have joint spaces of {width} values")
        label = f"collaborative: embed {width}"
        same = divides_as_the_paper(names) and PAPER_NAMES.get(query) == "SOSNet"  # the queries of table 5
        tasks[width] = Task(label, Deployment("collaborative", EMBED, query), path, label if same else "")
    return [tasks[width] for width in sorted(tasks, reverse=True)]


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run of either benchmark; `given` are the settings that results tell, by the names of the stage's arguments."""

    benchmark: Benchmark
    data: Path
    out: Path
    models: tuple[Path, ...]
    descriptors: tuple[str, ...]
    given: dict[str, Any]
    workers: int
    processes: int
    overwrite: bool

    def __call__(self, plan: Plan, stage: Callable[..., Result]) -> Result:
        given, out = self.given, self.out
        if given["neighbors"] < 1:
            raise ValueError(f"neighbors is {given['neighbors']}, expected at least 1")
        found = require(self.benchmark, self.data)
        retrieved.check(given["pairs"], given["global_features"], given["retrieval"], bool(self.models))
        translators = [(path, Translator.load(path)) for path in map(pretrained.resolve, self.models)]
        parts = aachen_data.parts(found.root)
        cameras = parts.cameras()
        queries = {name: camera for of_light in cameras.values() for name, camera in of_light.items()}
        truth, truth_hash = query_scores.read_reference(given["reference"], list(queries))
        stores = inputs.stores_of(
            parts.photos, out, self.descriptors, translators[0][1] if translators else None, given, self.processes,
            self.overwrite,
        )  # fmt: skip
        tasks = plan(list(stores), translators)
        with console.status("reading the inputs"):
            hashes = {name: input_hash(path) for name, path in stores.items()}
            lists = [given[key] and input_hash(Path(given[key])) for key in ("pairs", "global_features")]
            config = [self.benchmark.name, VERSION, found.fingerprint, hashes, lists, truth_hash]
            config += [[content_hash(path) for path, _ in translators], given["neighbors"], given["retrieval"]]
            expected = config_hash([*config, given["ratio"], given["seed"], [task.name for task in tasks]])
        given = {**given, "descriptors": list(stores)}
        told = {"data": found.told, "rows": len(tasks), **given}

        def measure(kept: Journal) -> Result:
            place = self._place(parts, queries, stores, truth)
            lights = {light: list(of_light) for light, of_light in cameras.items()}
            rows = []
            for task in tasks:
                rows.append(row_of(task, kept.recall(task.name, partial(localised, task, place)), lights))
                shares = (f"{rows[-1].values[f'{light} localised']:.1f} % by {light}" for light in lights)
                console.info(f"{rows[-1].name}: localised {', '.join(shares)}")
            columns = (*query_scores.columns(list(lights), truth is not None), Column("map points", "", 0))
            return Result.of(self._named(parts), found, given, columns, rows)

        result = run_folder.carry_out(
            self.benchmark, out, expected, self.overwrite, measure, _page, told=told, stage=stage
        )
        console.info(f"files of poses, as the benchmark's server takes them: {out / SUBMISSIONS}")
        return result

    def _named(self, parts: aachen_data.Aachen) -> Benchmark:
        """The paper measured v1; results of v1.1 have another name, and nothing of the paper's beside them."""
        if parts.version == aachen_data.V1:
            return self.benchmark
        name, title = f"{self.benchmark.name}-{parts.version}", f"{self.benchmark.title} ({parts.version})"
        return dataclasses.replace(self.benchmark, name=name, title=title)

    def _place(self, parts: aachen_data.Aachen, queries: dict, stores: dict[str, Path], truth: Any) -> Place:
        """What all rows share, with its lists written."""
        given, out = self.given, self.out
        reference, poses = parts.reference(out / "reference")
        near = spatial_pairs(poses, given["neighbors"])
        found = retrieved.found(
            given["pairs"], given["global_features"], list(queries), list(poses), given["retrieval"]
        )  # fmt: skip
        return Place(
            out, reference, sorted(poses), stores, write_pair_list(out / "pairs-map.txt", near), queries,
            None if found is None else write_pair_list(out / "pairs-queries.txt", found), given["retrieval"], truth,
            given["ratio"], given["seed"], self.workers, self.overwrite,
        )  # fmt: skip


def row_of(task: Task, figures: dict[str, Any], lights: dict[str, list[str]]) -> Row:
    """A row of the table, from the figures of all queries."""
    queries = [query for members in lights.values() for query in members]
    values = {**query_scores.values(figures, queries, lights), "map points": float(figures["points"])}
    detail = {key: figures[key] for key in ("inliers", "position_m") if key in figures}
    return Row(task.name, values, task.deployment.scenario, task.paper, detail)


def _page(result: Result) -> run_folder.Page:
    from xdesc_jax.evaluate.benchmarks.places.query_chart import section

    known = result.settings["reference"] is not None
    first = next(column.key for column in result.columns)
    best = max(result.rows, key=lambda row: row.values[first] or 0)
    what = "localised" if not known else f"within {first.partition(' ')[2]}"
    sentence = f"{best.name} is best: {best.values[first]:.1f} % of the queries of {first.partition(' ')[0]} {what}."
    return sentence, [section(result.rows, known)]
