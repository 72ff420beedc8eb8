"""InLoc: indoor queries in a building whose photos come from laser scans (the paper's table 4).

In: the folder of the benchmark (see `inloc_data`), the photos that retrieval finds for each query, feature files or
what to extract, and a translator. Out: of each row the file of poses for the benchmark's server, how many queries were
localised, and, where true poses are given, the shares within 0.25, 0.5 and 1 m, and 10 degrees.

The protocol is the paper's: a query is matched with each of the 10 photos that retrieval found, the matched positions
in the photo become points of its scan, each photo gives a pose by RANSAC, and the one with the most inliers counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.places import inloc_data, inputs, query_scores, retrieved
from xdesc_jax.evaluate.benchmarks.places.deployed import SUBMISSIONS, file_name
from xdesc_jax.evaluate.benchmarks.places.deployments import Deployment, Scenario, possible
from xdesc_jax.evaluate.benchmarks.places.inloc_data import InLoc
from xdesc_jax.evaluate.benchmarks.places.maps import write_pair_list
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, require
from xdesc_jax.evaluate.benchmarks.results import Result, Row
from xdesc_jax.features.keypoints import COLMAP_CENTER
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.translation.translator import Translator

BENCHMARK = Benchmark(
    "inloc",
    "InLoc",
    "the folder of InLoc: database/cutouts with photos and their scans (.mat), database/alignments, query/iphone7",
    "https://www.visuallocalization.net/datasets/",
    "130 GB",
    "Table 4",
    inloc_data.check,
)
INLOC_SCENARIOS: tuple[Scenario, ...] = ("standard", "continuous deployment", "cross-device")
LIMITS = ((0.25, 10.0), (0.5, 10.0), (1.0, 10.0))  # the server's
GROUP = "all"
VERSION = 1  # of the figures


def run(
    *,
    data: Path,
    out: Path,
    model: Path | None = None,
    features: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    scenarios: tuple[Scenario, ...] = INLOC_SCENARIOS,
    pairs: Path | None = None,
    global_features: Path | None = None,
    reference: Path | None = None,
    retrieval: int = 10,
    keypoints: str = "colmap",
    max_keypoints: int = 8192,
    weights: tuple[str, ...] = (),
    ratio: float | Literal["auto"] | None = "auto",
    min_inliers: int = 12,
    max_error_px: float = 12.0,
    seed: int = 0,
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """InLoc: indoor localisation against laser scans, the rows of the paper's table 4.

    Args:
        data: folder of the benchmark, or one of the same layout.
        out: folder for result.json, table.md, report.html, the files of poses for the server (submissions), matches
            and, where they are extracted, the features.
        model: translator: a model file, or the name of one that ships with the package; without it there are only
            standard rows.
        features: feature files, or folders of them, of all photos by their names below DATA; files may each have
            keypoints of their own. Extracted where none are given.
        descriptors: which ones; by default all of the feature files, or all of the model's that photos give.
        scenarios: kinds of rows: standard, 'continuous deployment', cross-device.
        pairs: list of the photos that retrieval found for each query, the most similar first.
        global_features: instead of `pairs`: global features of all photos, such as NetVLAD's (hloc's .h5).
        reference: true poses of the queries, a COLMAP model or a text 'name qw qx qy qz tx ty tz', where you have them.
        retrieval: photos that each query is matched with.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted; a network (xfeat,
            aliked-n16rot, ...) finds its own.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        ratio: largest first-to-second distance ratio; 'auto' for the calibrated ones, 'None' for mutual neighbours.
        min_inliers: a pose with fewer is a failure.
        max_error_px: largest reprojection error of an inlier.
        seed: of RANSAC.
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
    found = require(BENCHMARK, Path(data))
    place = inloc_data.parts(found.root)
    retrieved.check(pairs, global_features, retrieval, False)
    if min_inliers < 4 or not max_error_px > 0:
        raise ValueError(f"min_inliers {min_inliers}, max_error_px {max_error_px}: expected at least 4, and above 0")
    truth, truth_hash = query_scores.read_reference(reference, place.queries)
    named, model = model, pretrained.resolve(model) if model else None
    translator = Translator.load(model) if model else None
    given: dict[str, Any] = {"model": named, "features": features, "scenarios": scenarios, "pairs": pairs}
    given |= {"global_features": global_features, "reference": reference, "retrieval": retrieval}
    given |= {"keypoints": keypoints, "max_keypoints": max_keypoints, "weights": weights, "ratio": ratio}
    given |= {"min_inliers": min_inliers, "max_error_px": max_error_px, "seed": seed}
    stores = inputs.stores_of(found.root, Path(out), descriptors, translator, given, processes, overwrite)
    tasks = possible(list(stores), translator.names if translator else (), False, scenarios)
    with console.status("reading the inputs"):
        hashes = {name: input_hash(path) for name, path in stores.items()}
        lists = [path and input_hash(Path(path)) for path in (pairs, global_features)]
        config = [BENCHMARK.name, VERSION, found.fingerprint, hashes, content_hash(model) if model else None, lists]
        config += [truth_hash, retrieval, ratio, min_inliers, max_error_px, seed, [task.label for task in tasks]]
        expected = config_hash(config)
    given["descriptors"] = list(stores)
    told = {"data": found.told, "rows": len(tasks), **given}
    out = Path(out)

    def measure(kept: Journal) -> Result:
        chosen = retrieved.found(pairs, global_features, place.queries, place.photos, retrieval)
        assert chosen is not None  # one of them is given
        limits = Limits(ratio, min_inliers, max_error_px, seed, overwrite)
        work = Work(place, stores, chosen, write_pair_list(out / "pairs-queries.txt", chosen), out, model, limits)
        rows = [_row(task, work, kept, truth) for task in tasks]
        columns = query_scores.columns([GROUP], truth is not None, LIMITS)
        return Result.of(BENCHMARK, found, given, columns, rows)

    result = run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, _page, told=told, stage=run)
    console.info(f"files of poses, as the benchmark's server takes them: {out / SUBMISSIONS}")
    return result


@dataclasses.dataclass(frozen=True)
class Limits:
    """Settings of matching and poses, by the names of the stage's arguments."""

    ratio: float | Literal["auto"] | None
    min_inliers: int
    max_error_px: float
    seed: int
    overwrite: bool


@dataclasses.dataclass(frozen=True)
class Work:
    """What all rows share.

    Attributes:
        place: the folder.
        stores: descriptor -> feature file of all photos.
        pairs: query and photo, those of one query together.
        listed: the same as a file.
        out: folder of the run.
        model: the translator.
        limits: settings.
    """

    place: InLoc
    stores: Mapping[str, Path]
    pairs: Sequence[tuple[str, str]]
    listed: Path
    out: Path
    model: Path | None
    limits: Limits


def _row(task: Deployment, work: Work, kept: Journal, truth: Mapping[str, Pose] | None) -> Row:
    """A row of the table; queries that are finished come from the journal."""
    from xdesc_jax.matching.match import match
    from xdesc_jax.matching.matches import MatchFile

    mode, target = task.mode
    of_map, of_query = work.stores[task.map], work.stores[task.query]
    out = work.out / "matches" / f"{file_name(task.label)}.h5"
    with console.inner():
        match(
            (of_query,), out, pairs=str(work.listed), other=(of_map,) if of_map != of_query else (), mode=mode,
            model=None if mode == "native" else work.model, target=target, ratio=work.limits.ratio,
            overwrite=work.limits.overwrite,
        )  # fmt: skip
    photos: dict[str, list[str]] = {query: [] for query in work.place.queries}
    for query, photo in work.pairs:
        photos[query].append(photo)
    poses: dict[str, Pose] = {}
    inliers: dict[str, int] = {}
    with FeatureStore(of_query) as asked, FeatureStore(of_map) as known, MatchFile(out, asked.names) as matches:
        cameras = work.place.cameras({query: asked.image_size(query) for query in photos})
        for query in console.track(list(photos), task.label, "queries"):
            localise = partial(_localise, query, photos[query], cameras[query], asked, known, matches, work)
            entry = kept.recall(f"{task.label}: {query}", localise)
            inliers[query] = entry["inliers"]
            if entry["pose"] is not None:
                poses[query] = Pose.from_quaternion(np.array(entry["pose"][:4]), np.array(entry["pose"][4:]))
    query_scores.submission(work.out / SUBMISSIONS / f"{file_name(task.label)}.txt", poses)
    figures = query_scores.figures(poses, inliers, work.place.queries, truth)
    values = query_scores.values(figures, work.place.queries, {GROUP: work.place.queries}, LIMITS)
    console.info(f"{task.label}: localised {values[f'{GROUP} localised']:.1f} %")
    return Row(task.label, values, task.scenario, task.paper_row, figures)


def _localise(
    query: str, photos: Sequence[str], camera: Camera, asked: FeatureStore, known: FeatureStore, matches: Any,
    work: Work,
) -> dict[str, Any]:  # fmt: skip
    """The pose of a query with the most inliers over its photos, as quaternion and translation; None where all fail."""
    best: tuple[int, Pose | None] = (0, None)
    xy = asked.keypoints(query)[:, :2]
    for photo in photos:
        rows = matches.indices(query, photo)
        if len(rows) < work.limits.min_inliers:
            continue
        inliers, pose = pose_of(
            xy[rows[:, 0]], known.keypoints(photo)[rows[:, 1], :2], inloc_data.read_scan(work.place.scan(photo)),
            inloc_data.read_alignment(work.place.alignment(photo)), camera, work.limits,
        )  # fmt: skip
        if inliers > best[0]:
            best = inliers, pose
    inliers, pose = best
    if pose is None or inliers < work.limits.min_inliers:
        return {"inliers": inliers, "pose": None}
    return {"inliers": inliers, "pose": [*pose.quaternion.tolist(), *pose.translation.tolist()]}


def pose_of(
    xy: np.ndarray, photo_xy: np.ndarray, scan: np.ndarray, alignment: np.ndarray, camera: Camera, limits: Limits
) -> tuple[int, Pose | None]:
    """A query's pose from its matches with one photo, and its inliers.

    Args:
        xy, photo_xy: [M, 2] px, matched positions, origin at the centre of the first pixel.
        scan: [H, W, 3] of the photo, in the scan's coordinates.
        alignment: [4, 4] from there to the building's.
        camera: of the query.
        limits: of RANSAC.

    Returns:
        Positions in the query that support the pose, and the pose, world to camera; 0 and None where there is none.
    """
    from xdesc_jax.colmap.bindings.pose import estimate_pose

    points = inloc_data.points_at(scan, photo_xy) @ alignment[:3, :3].T + alignment[:3, 3]
    seen = np.isfinite(points).all(axis=1)
    found = estimate_pose(
        xy[seen] + np.float64(COLMAP_CENTER), points[seen], camera, max_error_px=limits.max_error_px, seed=limits.seed
    )
    if found is None:
        return 0, None
    return len(np.unique(xy[seen][found.inlier], axis=0)), found.pose


def _page(result: Result) -> run_folder.Page:
    from xdesc_jax.evaluate.benchmarks.places.query_chart import section

    known = result.settings["reference"] is not None
    first = result.columns[0]
    best = max(result.rows, key=lambda row: row.values[first.key] or 0)
    what = first.key.removeprefix(f"{GROUP} ")
    sentence = f"{best.name} is best: {best.values[first.key]:.1f} % {f'within {what}' if known else what}."
    return sentence, [section(result.rows, known)]
