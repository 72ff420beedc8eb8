"""Local Feature Evaluation: maps of photo collections by devices of several descriptors (the paper's table 2).

In: the folder of the benchmark (see `local_features_data`), feature files or what to extract, and a translator. Out: of
each scene and method the photos near their true pose, those registered at all, points, track length, reprojection
error; and which descriptors the points of the mixed maps are seen by.

The protocol is the paper's: exhaustive matching of the photos of the truth, mutual neighbours, ratio 0.9; COLMAP
verifies and maps with known intrinsics. Where a scene has no truth, it is made (see `pseudo_truth`).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.feature_rows import from_worst
from xdesc_jax.evaluate.benchmarks.places import inputs, local_features_data
from xdesc_jax.evaluate.benchmarks.places.incremental import ALL, Mapper, Method
from xdesc_jax.evaluate.benchmarks.places.local_features_data import Collection
from xdesc_jax.evaluate.benchmarks.places.pseudo_truth import pseudo_truth
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, require
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.evaluate.benchmarks.tables import PAPER_NAMES, divides_as_the_paper
from xdesc_jax.evaluate.covisibility import Covisibility, covisibility
from xdesc_jax.evaluate.poses import MAPPING, Scale, label
from xdesc_jax.evaluate.sfm import measure
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.translation.translator import Translator

BENCHMARK = Benchmark(
    "local-feature-evaluation",
    "Local Feature Evaluation",
    "a folder with Madrid_Metropolis/images, Gendarmenmarkt/images and Tower_of_London/images",
    "https://github.com/ahojnnes/local-feature-evaluation",
    "2 GB",
    "Table 2",
    local_features_data.check,
)
METHODS: tuple[Method, ...] = get_args(Method)
VERSION = 2  # of the figures
_NOTHING = {"registered_share": 0.0, "points": 0, "track_length": None, "reprojection_error_px": None}


def run(
    *,
    data: Path,
    out: Path,
    model: Path | None = None,
    features: Path | None = None,
    descriptors: tuple[str, ...] = (),
    methods: tuple[Method, ...] = METHODS,
    truth: str = "sosnet",
    scenes: tuple[str, ...] = (),
    keypoints: str = "colmap",
    max_keypoints: int = 8192,
    weights: tuple[str, ...] = (),
    ratio: float = 0.9,
    seed: int = 0,
    threads: int = 2,
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """Local Feature Evaluation: collaborative maps of photo collections, the rows of the paper's table 2.

    Args:
        data: folder with a folder a scene, each with `images`.
        out: folder for result.json, table.md, report.html, a folder a scene with its matches, models and, where they
            are made, features and truth.
        model: translator: a model file, or the name of one that ships with the package; without it there are neither
            'embed' nor 'progressive' rows.
        features: folder with a folder of feature files a scene; extracted where none is given.
        descriptors: which ones, from the worst to the best, which is the order of 'progressive'; by default all of the
            feature files, or all of the model's that photos give, in the model's order.
        methods: kinds of rows: standard, 'own quarter', embed, progressive.
        truth: descriptor that the true poses are reconstructed with where a scene has none
            (sparse-reference/filtered-metric); one of `descriptors`.
        scenes: names of folders; all where none are given.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        ratio: largest first-to-second distance ratio, of all methods.
        seed: of the split, of verification and of mapping.
        threads: of mapping.
        processes: that extract.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the folder is incomplete, an unknown scene, or descriptors that the files or the model lack.
        NotReconstructed: a scene gives no true poses.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    data, out = Path(data), Path(out)
    found = require(BENCHMARK, data)
    chosen = _chosen(found.root, scenes)
    named, model = model, pretrained.resolve(model) if model else None
    translator = Translator.load(model) if model else None
    given: dict[str, Any] = {"model": named, "features": features, "methods": methods, "truth": truth}
    given |= {"scenes": scenes, "keypoints": keypoints, "max_keypoints": max_keypoints, "weights": weights}
    given |= {"ratio": ratio, "seed": seed}
    places: list[tuple[Collection, dict[str, Path]]] = []
    for collection in chosen:
        given_here = {**given, "features": (Path(features) / collection.folder.name,) if features else ()}
        stores = inputs.stores_of(
            collection.images, out / collection.folder.name, descriptors, translator, given_here, processes, overwrite
        )
        if "progressive" in methods:
            stores = from_worst(stores, descriptors, translator)
        if truth not in stores and not collection.reference:
            raise ValueError(
                f"{collection.folder}: has no {local_features_data.REFERENCE}, and its truth is to be made with "
                f"{truth!r}, expected one of {', '.join(stores)} (--truth)"
            )
        if places and list(stores) != list(places[0][1]):
            raise ValueError(
                f"{collection.folder.name} has features of {', '.join(stores)}, and {places[0][0].folder.name} of "
                f"{', '.join(places[0][1])}; name those of both by --descriptors"
            )
        places.append((collection, stores))
    names = list(places[0][1])
    plan = rows_of(names, methods, translator)
    with console.status("reading the inputs"):
        hashes = [[c.folder.name, {n: input_hash(p) for n, p in stores.items()}] for c, stores in places]
        config = [BENCHMARK.name, VERSION, found.fingerprint, hashes, content_hash(model) if model else None, truth]
        expected = config_hash([*config, names, ratio, seed, plan])
    given["descriptors"] = names
    told = {"data": found.told, "rows": len(plan) * len(places), **given}

    def measure(kept: Journal) -> Result:
        rows, truths = [], []
        for collection, stores in places:
            if overwrite:
                _clear(out / collection.folder.name)
            place = _place(collection, stores, out / collection.folder.name, model, truth, ratio, seed, threads)
            truths.append(_truth_told(collection, place))
            for method, descriptor in plan:
                make = partial(figures, place, method, descriptor, seed)
                entry = kept.recall(f"{collection.folder.name}, {method}: {descriptor}", make)
                rows.append(row_of(collection, method, descriptor, entry, names))
                console.info(f"{rows[-1].name}: registered {rows[-1].values['localised']:.1f} %")
        with_truth = dataclasses.replace(found, text=f"{found.text}; truth: {', '.join(truths)}")
        return Result.of(BENCHMARK, with_truth, given, _columns(rows), rows)

    return run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, _page, told=told, stage=run)


def _chosen(root: Path, scenes: Sequence[str]) -> list[Collection]:
    there = {collection.folder.name: collection for collection in local_features_data.collections(root)}
    if missing := [name for name in scenes if name not in there]:
        raise ValueError(f"{root}: has no scene {', '.join(missing)} (it has {', '.join(there)})")
    return [there[name] for name in scenes or there]


def rows_of(
    descriptors: Sequence[str], methods: Sequence[Method], translator: Translator | None
) -> list[tuple[Method, str]]:
    """Method and descriptor of each row, in the order of table 2.

    Raises:
        ValueError: the translator lacks a descriptor, or nothing is left.
    """
    rows: list[tuple[Method, str]] = []
    for method in METHODS:
        if method not in methods:
            continue
        if method in ("standard", "own quarter"):
            rows += [(method, descriptor) for descriptor in descriptors]
        elif translator is not None and (method == "progressive" or translator.space_id is not None):
            if missing := [name for name in descriptors if name not in translator.names]:
                raise ValueError(f"the model lacks {', '.join(missing)}, which the maps of '{method}' hold")
            rows.append((method, ALL))
    if not rows:
        raise ValueError(f"no rows of {', '.join(methods)}; 'embed' and 'progressive' need --model")
    return rows


@dataclasses.dataclass(frozen=True)
class Scene:
    """What all rows of a scene share.

    Attributes:
        mapper: matches and maps.
        poses: the true ones.
        scale: 'metric' where they are in metres.
    """

    mapper: Mapper
    poses: Mapping[str, Pose]
    scale: Scale


def _place(
    collection: Collection, stores: Mapping[str, Path], out: Path, model: Path | None, truth: str, ratio: float,
    seed: int, threads: int,
) -> Scene:  # fmt: skip
    """A scene with its truth, which is made where there is none."""
    from xdesc_jax.colmap.bindings.api import read_model

    reference, scale = collection.reference, "metric"
    if reference is None:
        with console.inner():
            reference = pseudo_truth(
                stores[truth], out / "truth", photos=collection.images, ratio=ratio, seed=seed, threads=threads,
                distances=collection.distances,
            )  # fmt: skip
        scale = "metric" if collection.distances else "relative"
    poses = read_model(reference).poses
    if missing := sorted(set(poses) - set(collection.photos)):
        told = console.counted(len(missing), "photo is", "photos are")
        raise ValueError(f"{reference}: {told} not in {collection.images}, first {missing[:5]}")
    mapper = Mapper(out, sorted(poses), stores, reference, model, ratio, tuple(stores), threads)
    return Scene(mapper, poses, "metric" if scale == "metric" else "relative")


def _truth_told(collection: Collection, place: Scene) -> str:
    """For people: which photos have a true pose, and where that is from."""
    count, papers = len(place.poses), collection.papers_photos
    than = f" (the paper's: {papers})" if papers not in (None, count) else ""
    units = "in metres" if place.scale == "metric" else "in units of its own"
    return f"{count} photos of {collection.folder.name}{than}, {'given' if collection.reference else 'made'} {units}"


def _clear(folder: Path) -> None:
    for part in ("truth", "matches", "splits", "photos", "models"):
        shutil.rmtree(folder / part, ignore_errors=True)


def figures(place: Scene, method: Method, descriptor: str, seed: int) -> dict[str, Any]:
    """Figures of one method, JSON-like; of photos that give no model, zeros and the reason."""
    from xdesc_jax.colmap.bindings.api import read_model
    from xdesc_jax.mapping.from_photos import NotReconstructed

    try:
        with console.inner():
            folder = place.mapper.run(method, descriptor, seed)
    except NotReconstructed as error:
        console.warn(f"{method}, {descriptor}: {error}")
        return {**_NOTHING, "aligned": False, "reason": str(error), "scale": place.scale}
    found = read_model(folder)
    names, where = list(place.mapper.names), str(place.mapper.intrinsics)
    measured = measure(folder, found, place.poses, names, place.scale, seed, where)
    entry = {key: value for key, value in measured.to_dict().items() if key != "per_photo"}
    entry["scale"] = place.scale
    if descriptor == ALL:
        shared = covisibility(found, place.mapper.kinds(seed), list(place.mapper.stores))
        entry["covisibility"] = {"kinds": list(shared.kinds), "by_count": shared.by_count.tolist()}
        entry["covisibility"]["together"] = shared.together.tolist()
    return entry


def row_of(
    collection: Collection, method: Method, descriptor: str, entry: Mapping[str, Any], among: Sequence[str]
) -> Row:
    """A row of the table, from the figures of `figures`; `among` are the descriptors that photos are divided among."""
    scale: Scale = entry["scale"]
    within = entry.get("within_pose", {})
    values: dict[str, float | None] = {
        f"within {name}": 100 * within.get(name, 0.0) for name in (label(*limit, scale) for limit in MAPPING[scale])
    }
    values |= {"localised": 100 * entry["registered_share"], "points": float(entry["points"])}
    values |= {"track length": entry["track_length"], "reprojection error": entry["reprojection_error_px"]}
    paper = PAPER_NAMES.get(descriptor, "")
    name = f"{method}: {descriptor}" if descriptor != ALL else method
    told = f"{method}: {paper}" if paper else f"ours: {method.capitalize()}" if descriptor == ALL else ""
    if method != "standard" and not divides_as_the_paper(among, ordered=method == "progressive"):
        told = ""
    detail = {key: entry[key] for key in ("covisibility", "reason") if entry.get(key)}
    return Row(f"{collection.title}, {name}", values, method, told and f"{collection.title}, {told}", detail)


def _columns(rows: Sequence[Row]) -> list[Column]:
    """Shares first, of whichever scale the scenes have."""
    shares = dict.fromkeys(key for row in rows for key in row.values if key.startswith("within "))
    return [
        *(Column(key) for key in shares), Column("localised"), Column("points", "", 0), Column("track length", "", 2),
        Column("reprojection error", "px", 2),
    ]  # fmt: skip


def _page(result: Result) -> run_folder.Page:
    import numpy as np

    from xdesc_jax.evaluate import map_drawing
    from xdesc_jax.reports import chart
    from xdesc_jax.reports.parts import Section

    best = max(result.rows, key=lambda row: row.values["localised"] or 0)
    sentence = f"{best.name} registers most: {best.values['localised']:.1f} % of the photos."
    pictures = []
    for row in result.rows:
        if shared := row.detail.get("covisibility"):
            seen = Covisibility(tuple(shared["kinds"]), np.array(shared["by_count"]), np.array(shared["together"]))
            pictures.append(
                chart.chart(
                    map_drawing.covisibility_picture, seen, title=row.name,
                    caption="share of points that so many descriptors see, and that two descriptors both see",
                )
            )  # fmt: skip
    sections = [Section("Co-visibility", pictures)] if pictures else []
    return sentence, sections
