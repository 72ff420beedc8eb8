"""The Image Matching challenge on PhotoTourism (the paper's supplement, table 3; Jin et al., IJCV 2021).

In: scenes as their authors publish them (see `scenes`), feature files or what to extract, a translator. Out: of each
row (see `methods`) the mean average accuracy at 5 and 10 degrees of the poses of pairs, and of reconstructions of small
bags of photos: mean over runs, then over scenes. Ratio and threshold of inliers are chosen on one scene, for each row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.feature_rows import from_worst, stores_of
from xdesc_jax.evaluate.benchmarks.image_matching.methods import (
    KINDS,
    MODES,
    Kind,
    Method,
    check_shared_keypoints,
    files_of,
    matched,
    methods,
)
from xdesc_jax.evaluate.benchmarks.image_matching.scenes import SET, Scene, check, read_scene, scene_names
from xdesc_jax.evaluate.benchmarks.image_matching.scores import LIMITS_DEG, mean_average_accuracy, over_bags
from xdesc_jax.evaluate.benchmarks.pose_pairs import orders
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, require
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.evaluate.relative_ransac import Estimator, Ransac, estimator
from xdesc_jax.evaluate.stages.homography import extracted_stores
from xdesc_jax.files import dry_run
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.translation.translator import Translator

BENCHMARK = Benchmark(
    "image-matching-challenge",
    "Image Matching challenge",
    "the three scenes of PhotoTourism with public truth: reichstag, sacre_coeur, st_peters_square",
    "https://www.cs.ubc.ca/~kmyi/imw2020/data.html",
    "3 GB",
    "Table 3",
    check,
)
Task = Literal["stereo", "multi-view"]
TASKS: tuple[Task, ...] = ("stereo", "multi-view")
TUNED_ON = "reichstag"
RATIOS, ERRORS_PX = (0.8, 0.85, 0.9, 0.95), (0.5, 1.0, 2.0)
VERSION = 1  # of the figures
COLUMNS = (
    *(Column(f"{task} AUC {limit} deg") for task in TASKS for limit in LIMITS_DEG), Column("matches", "", 0),
    Column("registered", "% of photos"), Column("ratio", "", 2), Column("inliers within", "px", 2),
)  # fmt: skip


def run(
    *,
    data: Path,
    out: Path,
    model: Path | None = None,
    features: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    kinds: tuple[Kind, ...] = KINDS,
    tasks: tuple[Task, ...] = TASKS,
    scenes: tuple[str, ...] = (),
    tune_on: str = TUNED_ON,
    ratios: tuple[float, ...] = RATIOS,
    max_errors_px: tuple[float, ...] = ERRORS_PX,
    runs: int = 3,
    ransac: Ransac = "colmap",
    seed: int = 0,
    keypoints: str = "opencv",
    max_keypoints: int = 2048,
    weights: tuple[str, ...] = (),
    processes: int = 1,
    threads: int = 2,
    overwrite: bool = False,
) -> Result:
    """Image Matching challenge: poses of pairs, and of reconstructions of 5, 10 and 25 photos.

    Args:
        data: folder of the scenes, or the one that holds it as `phototourism`.
        out: folder for result.json, table.md, report.html, matches and, where they are extracted, the features.
        model: translator: a model file, or the name of one that ships with the package; without it there are only
            native rows.
        features: feature files, or folders of them, of the photos by their names below the folder of the scenes, all at
            the same keypoints; extracted where none are given.
        descriptors: which ones, the lower before the higher: each is translated to those behind it. By default all of
            the feature files, or all of the model's that photos give, in the model's order.
        kinds: of rows: standard, directional, embed.
        tasks: stereo, multi-view.
        scenes: to measure on; by default all of DATA but the one that is tuned on.
        tune_on: scene on which each row's ratio and threshold are chosen, by its stereo accuracy at 10 degrees.
        ratios: largest first-to-second distance ratios to choose from, 1 for mutual neighbours alone.
        max_errors_px: thresholds of inliers to choose from; where there is one of both, nothing is tuned.
        runs: with other seeds of RANSAC, verification and mapping, over which figures are means.
        ransac: of stereo: colmap, or poselib (the extra 'poselib').
        seed: of the first run, and of dividing photos among descriptors.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        processes: processes that extract.
        threads: of RANSAC and mapping.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the folder is incomplete, lacks a scene, no descriptor is named, or there is nothing to choose from.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
        ModuleNotFoundError: PoseLib is asked for and not installed.
    """
    estimate = estimator(ransac)
    found = require(BENCHMARK, data)
    named, model = model, pretrained.resolve(model) if model else None
    translator = Translator.load(model) if model else None
    if not (ratios and max_errors_px and tasks) or runs < 1:
        raise ValueError(
            f"--ratios {ratios}, --max-errors-px {max_errors_px}, --tasks {tasks}, --runs {runs}: need one"
        )
    tuned = len(ratios) * len(max_errors_px) > 1
    chosen = scenes or tuple(name for name in scene_names(found.root) if name != tune_on)
    wanted = (*chosen, *([tune_on] if tuned else []))
    if lacking := [name for name in wanted if name not in scene_names(found.root)]:
        raise ValueError(
            f"{found.root}: has no scene {lacking[0]!r} (there are {', '.join(scene_names(found.root))}); say --scenes "
            "and --tune-on, or give one of --ratios and --max-errors-px"
        )
    if not chosen:
        raise ValueError(f"{found.root}: has no scene besides {tune_on!r}, which is tuned on; say --scenes")

    def extract(names: Sequence[str]) -> dict[str, Path]:
        return extracted_stores(
            _linked(found.root, wanted, out / "photos"), out / "features", names, keypoints=keypoints,
            max_keypoints=max_keypoints, weights=weights, processes=processes, overwrite=overwrite,
        )  # fmt: skip

    stores = stores_of(features, descriptors, translator, keypoints, out, extract)
    if "directional" in kinds:
        stores = from_worst(stores, descriptors, translator)
    plan = methods(list(stores), translator, kinds)
    with console.status("reading the inputs"):
        read = {name: read_scene(found.root, name) for name in dict.fromkeys(wanted)}
        check_shared_keypoints(plan, stores, [photo for scene in read.values() for photo in scene.photos])
        hashes = {name: input_hash(path) for name, path in stores.items()}
        config = [BENCHMARK.name, VERSION, found.fingerprint, hashes, content_hash(model) if model else None]
        made = config_hash([*config, seed])  # of matches, which all of these share
        asked = [made, tasks, chosen, tuned and tune_on, ratios, max_errors_px, runs, [str(m) for m in plan]]
        turned = any(len(orders(scene.pairs, scene.pairs)) > 1 for scene in read.values())
        # Results from before there was a choice, or pairs in the other order were matched, stay.
        expected = config_hash([*asked, *[ransac] * (ransac != "colmap"), *["both orders"] * turned])
    given: dict[str, Any] = {"model": named, "features": features, "descriptors": list(stores), "kinds": kinds}
    given |= {"tasks": tasks, "scenes": scenes, "tune_on": tune_on, "ratios": ratios, "max_errors_px": max_errors_px}
    given |= {"runs": runs, "ransac": ransac, "seed": seed, "keypoints": keypoints, "max_keypoints": max_keypoints}
    given |= {"weights": weights}
    told = {"data": found.told, "rows": len(plan), **given}

    def measure(kept: Journal) -> Result:
        rows = []
        for method in plan:
            work = _Work(
                method, stores, found.root, out / f"work-{made[:12]}", model, seed, runs, threads, overwrite, kept,
                estimate,
            )  # fmt: skip
            choice = {"ratio": ratios[0], "max_error_px": max_errors_px[0]}
            if tuned:
                choose = functools.partial(work.chosen, read[tune_on], ratios, max_errors_px)
                choice = kept.recall(f"{method.label}: choice", choose)
            figures = {name: work.figures(read[name], choice, tasks) for name in chosen}
            rows.append(row_of(method, figures, choice))
            console.info(f"{rows[-1].name}: {_told(rows[-1])}")
        return Result.of(BENCHMARK, found, given, COLUMNS, rows)

    return run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, _page, told=told, stage=run)


def _linked(root: Path, scenes: Sequence[str], out: Path) -> Path:
    """A folder of links to the photos of the scenes' sets alone, by names below the root; a dry run makes none."""
    if dry_run.active():
        return out if out.is_dir() else root
    for name in scenes:
        link = out / name / SET / "images"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to((root / name / SET / "images").resolve(), target_is_directory=True)
    return out


class _Work:
    """One row: all that its figures take, with what is finished in a journal.

    Args:
        method: the row.
        stores: descriptor -> feature file.
        root: folder of the scenes.
        out: folder for matches and databases.
        model: translator.
        seed, runs: see `run`.
        threads: to run on.
        overwrite: match anew.
        kept: the journal.
        estimate: finds poses of pairs.
    """

    def __init__(
        self, method: Method, stores: Mapping[str, Path], root: Path, out: Path, model: Path | None, seed: int,
        runs: int, threads: int, overwrite: bool, kept: Journal, estimate: Estimator,
    ):  # fmt: skip
        self._method, self._stores, self._root, self._out, self._model = method, stores, root, out, model
        self._seeds, self._threads, self._overwrite, self._kept = range(seed, seed + runs), threads, overwrite, kept
        self._estimate = estimate

    def chosen(self, scene: Scene, ratios: Sequence[float], max_errors_px: Sequence[float]) -> dict[str, Any]:
        """The ratio and threshold of the highest stereo accuracy on a scene, in one run; the first of equal ones."""
        best: dict[str, Any] = {}
        for ratio in ratios:
            for limit in max_errors_px:
                errors, _ = self._stereo(scene, ratio, limit, self._seeds[:1], f"ratio {ratio:g}, {limit:g} px")
                accuracy = mean_average_accuracy(errors[0], LIMITS_DEG[-1])
                if not best or accuracy > best["accuracy"]:
                    best = {"ratio": ratio, "max_error_px": limit, "accuracy": accuracy}
        return best

    def figures(self, scene: Scene, choice: Mapping[str, Any], asked: Sequence[Task]) -> dict[str, Any]:
        """'stereo': errors [runs, pairs] and matches; 'multi-view': of each run size -> errors of bags, and photos."""
        found: dict[str, Any] = {}
        ratio, label = choice["ratio"], f"{self._method.label}, {scene.name}"
        if "stereo" in asked:

            def stereo() -> dict[str, Any]:
                errors, counts = self._stereo(scene, ratio, choice["max_error_px"], self._seeds, "pairs")
                return {"errors_deg": errors, "matches": counts}

            found["stereo"] = self._kept.recall(f"{label}: stereo", stereo)
        if "multi-view" in asked:
            found["multi-view"] = [
                dict(self._bags(scene, ratio, seed, f"{label}, seed {seed}")) for seed in self._seeds
            ]
        return found

    def _files(self, scene: Scene) -> list[Path]:
        method = self._method
        divided = self._out / f"divided {scene.name} {' '.join(method.descriptors)}"
        return files_of(method, self._stores, scene.photos, divided, self._seeds[0])

    def _matches(self, scene: Scene, pairs: Sequence[tuple[str, str]], ratio: float, task: str) -> Path:
        method = self._method
        name = f"{scene.name} {method.kind} {' '.join(method.descriptors)} {task} {ratio:g}.h5"
        files = self._files(scene)
        return matched(method, self._stores, files, pairs, self._out / name, self._model, ratio, self._overwrite)

    def _stereo(
        self, scene: Scene, ratio: float, max_error_px: float, seeds: Sequence[int], what: str
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        from xdesc_jax.evaluate.benchmarks.image_matching import tasks as of_scene

        told, errors, counts = f"{self._method.label}, {scene.name}: {what}", [], []
        for i, pairs in enumerate(orders(scene.pairs, scene.pairs)):
            matches, part = self._matches(scene, pairs, ratio, f"stereo{i or ''}"), replace(scene, pairs=tuple(pairs))
            found = of_scene.stereo_errors(
                part, self._files(scene), matches, max_error_px, seeds, self._threads, told, self._estimate
            )
            errors.append(found[0])
            counts.append(found[1])
        return np.concatenate(errors, axis=1), np.concatenate(counts)

    def _bags(self, scene: Scene, ratio: float, seed: int, label: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Size -> of each bag errors, and registered photos."""
        from xdesc_jax.evaluate.benchmarks.image_matching import tasks as of_scene

        settings = MappingSettings(seed=seed, threads=self._threads)
        bags = [(size, number) for size, group in scene.bags.items() for number in range(len(group))]
        keys = {bag: f"{label}: bag {bag}" for bag in bags}
        left = [bag for bag in bags if keys[bag] not in self._kept]
        if left:
            pairs = of_scene.bag_pairs(scene)
            matches = self._matches(scene, pairs, ratio, "multi-view") if pairs else None
            path = self._out / "scene.db"
            database = matches and of_scene.bag_database(self._files(scene), matches, self._root, path, settings)
            for size, number in console.track(left, f"{label}: bags", "bags"):
                errors, photos = of_scene.bag_errors(scene, scene.bags[size][number], database, settings)
                self._kept.add(keys[size, number], {"errors_deg": np.array(errors), "photos": photos})
            path.unlink(missing_ok=True)
        for size, group in scene.bags.items():
            yield size, [self._kept[keys[size, number]] for number in range(len(group))]


def row_of(method: Method, figures: Mapping[str, Mapping[str, Any]], choice: Mapping[str, Any]) -> Row:
    """A row of the table, from the figures of each scene (see `_Work.figures`)."""
    detail: dict[str, Any] = {"choice": dict(choice), "scenes": {}}
    values: dict[str, float | None] = {"ratio": choice["ratio"], "inliers within": choice["max_error_px"]}
    for task in TASKS:
        for limit in LIMITS_DEG:
            key, scenes = f"{task} AUC {limit} deg", {}
            for name, found in figures.items():
                if task in found:
                    one = _stereo_figure if task == "stereo" else _bag_figure
                    scenes[name] = [100 * figure for figure in one(found[task], limit)]
            detail["scenes"][key] = scenes
            values[key] = float(np.mean([np.mean(runs) for runs in scenes.values()])) if scenes else None
    stereo = [found["stereo"] for found in figures.values() if "stereo" in found]
    values["matches"] = float(np.mean([found["matches"].mean() for found in stereo])) if stereo else None
    runs_of_bags = [run for found in figures.values() for run in found.get("multi-view", ())]
    mapped = [bag["photos"] / size for run in runs_of_bags for size, bags in run.items() for bag in bags]
    values["registered"] = 100 * float(np.mean(mapped)) if mapped else None
    detail["error_deg"] = [
        float(error) if np.isfinite(error) else -1.0 for found in stereo for error in found["errors_deg"][0]
    ]
    return Row(method.label, values, MODES[method.kind], method.paper, detail)


def _stereo_figure(found: Mapping[str, Any], limit: int) -> list[float]:
    return [mean_average_accuracy(errors, limit) for errors in found["errors_deg"]]


def _bag_figure(found: Sequence[Mapping[int, Sequence[Mapping[str, Any]]]], limit: int) -> list[float]:
    return [
        over_bags({size: [bag["errors_deg"] for bag in bags] for size, bags in run.items()}, limit) for run in found
    ]


def _told(row: Row) -> str:
    told = {task: row.values[f"{task} AUC {LIMITS_DEG[-1]} deg"] for task in TASKS}
    return ", ".join(f"{task} {value:.1f} % at 10 deg" for task, value in told.items() if value is not None)


def _page(result: Result) -> run_folder.Page:
    from xdesc_jax.evaluate.benchmarks.drawing import shares_within
    from xdesc_jax.reports.chart import chart
    from xdesc_jax.reports.parts import Section

    key = next(c.key for c in COLUMNS if c.key.endswith("10 deg") and result.rows[0].values[c.key] is not None)
    best = max(result.rows, key=lambda row: row.values[key] or 0)
    sentence = f"{best.name} is best: {best.values[key]:.1f} % of {key}."
    errors = {row.name: [np.inf if e < 0 else e for e in row.detail["error_deg"]] for row in result.rows}
    sections = []
    if any(errors.values()):
        drawn = chart(
            shares_within, errors, LIMITS_DEG[-1], "pose error [deg]", title="Pairs within an error",
            caption="share of the stereo task's pairs whose rotation and direction of translation are off by no more",
        )  # fmt: skip
        sections.append(Section("Errors", [drawn]))
    return sentence, sections
