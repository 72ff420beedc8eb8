"""Localisation in maps of other descriptors: the rows of the paper's table 1, on any scene.

    python -m pipelines.localization SCENE --out OUT [--scale relative]

SCENE holds `images/` and `reference/` (see `map_scene`). Every third photo is a query, the others are the map, of
which each descriptor's matches are triangulated into the true poses. Rows:

    standard                map and queries of one descriptor
    continuous deployment   the map is translated to the queries' descriptor
    cross-device            the queries are translated to the map's descriptor
    collaborative           the map's photos hold four descriptors at random; all goes to the joint space

Each row is repeated with several seeds: of RANSAC, and in the last scenario of the split, too. Writes one table,
JSON, and a page with plots and the map from two sides. Finished maps and rows are kept.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.evaluate import map_drawing
from xdesc_jax.evaluate.benchmarks.places.deployments import Deployment, table_rows
from xdesc_jax.evaluate.benchmarks.places.maps import triangulated
from xdesc_jax.evaluate.divided import split, write_split
from xdesc_jax.evaluate.poses import LOCALIZATION, UNITS, Scale, label, pose_errors
from xdesc_jax.localization.localizer import Localization, Localizer
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.routes import Mode
from xdesc_jax.reports.chart import chart
from xdesc_jax.reports.parts import Answer, Cell, Column, Number, Section, Table
from xdesc_jax.reports.settings import defaults_of
from xdesc_jax.translation.translator import Translator

from .map_experiment import Experiment, bars, means, spread
from .map_scene import DESCRIPTORS, MapScene, open_scene, write_pairs


@dataclasses.dataclass(frozen=True)
class LocalizationExperiment(Experiment):
    """The experiment, with the photos that are queries, those that are the map, and how one finds the others.

    Attributes:
        queries, known: names of photos.
        translator: the model.
        retrieval: map photos that a query is matched with.
    """

    queries: list[str]
    known: list[str]
    translator: Translator
    retrieval: int


def localization(
    scene: Path,
    *,
    out: Path,
    scale: Scale = "metric",
    model: Path = Path("colmap"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    keypoints: Literal["colmap", "opencv"] = "colmap",
    max_keypoints: int = 2000,
    every: int = 3,
    retrieval: int = 20,
    ratio: float | Literal["auto"] = "auto",
    seeds: int = 5,
    features: Path | None = None,
) -> list[dict[str, Any]]:
    """Runs all rows of table 1 on a scene.

    Args:
        scene: folder with `images/` and `reference/`.
        out: folder for everything that is made.
        scale: 'metric' where the reference is in metres; 'relative' divides positions by u, the median distance
            from a reference camera to its nearest.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: of the rows.
        keypoints: detector; the translator should be trained on it.
        max_keypoints: of a photo.
        every: each so manieth photo is a query.
        retrieval: map photos that a query is matched with, by their embeddings; all where there are no more.
        ratio: of matching; 'auto' for the calibrated ones.
        seeds: repeats.
        features: folder for the features, so that experiments share them; OUT/features where None.

    Returns:
        The rows with their figures, which are also in OUT/results.json and OUT/report.html.
    """
    start = time.monotonic()
    place = open_scene(scene, features or out / "features", descriptors, scale, max_keypoints, keypoints)
    queries = place.names[every - 1 :: every]
    known = [name for name in place.names if name not in set(queries)]
    own = {"queries": len(queries), "map photos": len(known), "retrieval": retrieval}
    path = pretrained.resolve(model)
    experiment = LocalizationExperiment(
        place, out, path, ratio, seeds, own,
        queries=queries, known=known, translator=Translator.load(path), retrieval=retrieval,
    )  # fmt: skip
    results = experiment.run(
        table_rows(descriptors),
        lambda row: _repeats(row, experiment),
        lambda entry: f"{entry['scenario']}: {_row(entry)}: {_summary(entry)}",
    )
    report = _report(experiment, results)
    _print(scene.name, results, scale)
    console.info(f"took {time.monotonic() - start:,.0f} s")
    console.result(out, figures=out / "results.json", report=report)
    return results


# --- Maps --------------------------------------------------------------------------------------------------


def build_map(experiment: Experiment, files: Sequence[Path], names: Sequence[str], out: Path, mode: Mode) -> Path:
    """Matches all pairs of some photos and triangulates them into the true poses; gives the model's folder."""
    pairs = write_pairs(out / "pairs.txt", names)
    model = None if mode == "native" else experiment.model
    return triangulated(
        files, names, experiment.place.reference, pairs, out, mode=mode, model=model, ratio=experiment.ratio
    )  # fmt: skip


def _repeats(row: Deployment, experiment: LocalizationExperiment) -> Iterator[dict[str, Any]]:
    """The figures of a row, one a seed."""
    stores, maps = experiment.place.stores, experiment.out / "maps"
    if row.scenario != "collaborative":
        files = [stores[row.map]]
        folder = build_map(experiment, files, experiment.known, maps / row.map, "native")
        yield from _localized(row, experiment, folder, files, list(range(experiment.seeds)))
        return
    for seed in range(experiment.seeds):
        work = maps / f"embed-{seed}"
        files = write_split(stores, split(experiment.known, list(stores), seed), work / "features")
        folder = build_map(experiment, files, experiment.known, work, "embed")
        yield from _localized(row, experiment, folder, files, [seed])


def _localized(
    row: Deployment, experiment: LocalizationExperiment, folder: Path, files: Sequence[Path], seeds: list[int]
) -> Iterator[dict[str, Any]]:
    """The figures of some repeats in one map."""
    place, (mode, target) = experiment.place, row.mode
    localizer = Localizer.open(
        folder, files, translator=experiment.translator, mode=mode, target=target, ratio=experiment.ratio,
        retrieval=experiment.retrieval,
    )  # fmt: skip
    found: dict[str, list[Localization]] = {}
    with FeatureSet([place.stores[row.query]]) as features:
        for name in console.track(experiment.queries, str(row), "queries"):
            photo = features.read(name)
            rows = photo.usable_rows()
            found[name] = localizer.localize_repeatedly(
                photo.keypoints, rows, place.cameras[name], seeds, descriptor=features.held(name),
                frames=features.frames(name),
            )  # fmt: skip
    for i, seed in enumerate(seeds):
        yield {
            "seed": seed,
            "points": len(localizer.map.points),
            **_figures(place, {n: f[i] for n, f in found.items()}),
        }


def _figures(place: MapScene, found: dict[str, Localization]) -> dict[str, Any]:
    """Shares, medians and per-query errors of one repeat."""
    poses = {name: f.pose for name, f in found.items() if f.pose is not None}
    errors = pose_errors(poses, place.poses, list(found), place.scale)
    position, rotation = errors.medians()
    return {
        "within": {label(p, r, place.scale): errors.within(p, r) for p, r in LOCALIZATION[place.scale]},
        "localized": float(np.mean(errors.found)),
        "median_position": None if np.isnan(position) else position,
        "median_rotation_deg": None if np.isnan(rotation) else rotation,
        "inliers": float(np.median([f.inliers for f in found.values()])),
        "inlier_ratio": float(np.median([f.inlier_ratio for f in found.values()])),
        "position": [float(p) if np.isfinite(p) else None for p in errors.position],
    }


# --- Report ------------------------------------------------------------------------------------------------


def _row(entry: dict[str, Any]) -> Deployment:
    return Deployment(entry["scenario"], entry["map"], entry["query"])


def _summary(row: dict[str, Any]) -> str:
    shares = ", ".join(str(spread(row, "within", name, factor=100)) for name in row["repeats"][0]["within"])
    return f"{shares} %, {spread(row, 'inliers', digits=0)} inliers"


def _table(results: list[dict[str, Any]], scale: Scale) -> Table:
    limits = [label(p, r, scale) for p, r in LOCALIZATION[scale]]
    columns = [Column("map, query", text=True), Column("scenario", text=True)]
    columns += [Column(f"within {limit}", "%") for limit in limits]
    columns += [Column("position error", UNITS[scale]), Column("rotation error", "deg"), Column("inliers")]
    columns += [Column("inliers of matches", "%"), Column("3D points")]
    rows = [
        [
            str(_row(entry)),
            Cell(entry["scenario"], badge="native" if entry["scenario"] == "standard" else "translated"),
            *(spread(entry, "within", limit, factor=100) for limit in limits),
            spread(entry, "median_position", digits=4),
            spread(entry, "median_rotation_deg", digits=3),
            spread(entry, "inliers", digits=0),
            spread(entry, "inlier_ratio", factor=100, digits=0),
            spread(entry, "points", digits=0),
        ]
        for entry in results
    ]
    return Table(columns, rows)


def answer(results: list[dict[str, Any]], scale: Scale) -> Answer:
    """The share of queries within the tightest limits, a scenario, as means over its rows."""
    limit = label(*LOCALIZATION[scale][0], scale)
    near = means(results, "scenario", "within", limit, factor=100)
    sentence = (
        f"In maps of another descriptor {near['continuous deployment']:.0f} % of the queries are localised within "
        f"{limit} where the map is translated, {near['cross-device']:.0f} % where they are; in maps of their own "
        f"{near['standard']:.0f} %."
    )
    return Answer(sentence, [Number(f"{mean:.1f}", scenario, "%") for scenario, mean in near.items()])


def _print(title: str, results: list[dict[str, Any]], scale: Scale) -> None:
    """Means alone, so that the table fits a screen."""
    limits = [label(p, r, scale) for p, r in LOCALIZATION[scale]]
    for scenario in dict.fromkeys(entry["scenario"] for entry in results):
        rows = [
            (
                str(_row(entry)),
                " / ".join(f"{spread(entry, 'within', limit, factor=100).mean:.0f}" for limit in limits),
                f"{spread(entry, 'median_position').mean:.4f}",
                str(spread(entry, "inliers", digits=0)),
            )
            for entry in results
            if entry["scenario"] == scenario
        ]
        heading = f"{title}, {scenario}: % within {' / '.join(limits)}; median position error; median inliers"
        console.table(heading, ("map, query", "%", f"error [{UNITS[scale]}]", "inliers"), rows)


def _report(experiment: LocalizationExperiment, results: list[dict[str, Any]]) -> Path:
    place, settings = experiment.place, experiment.settings
    inliers = bars(
        [str(_row(entry)) for entry in results], [spread(entry, "inliers") for entry in results], "median inliers",
        "Inliers",
    )  # fmt: skip
    curves = []
    for scenario in dict.fromkeys(entry["scenario"] for entry in results):
        errors = {
            str(_row(entry)): np.concatenate(
                [[np.inf if p is None else p for p in repeat["position"]] for repeat in entry["repeats"]]
            )
            for entry in results
            if entry["scenario"] == scenario
        }
        curves.append(chart(map_drawing.error_curves, errors, UNITS[place.scale], title=f"Position errors: {scenario}"))
    first = read_model(experiment.out / "maps" / "embed-0" / "map" / "models" / "0")
    picture = chart(
        map_drawing.model_picture, first.points, list(first.poses.values()), list(place.poses.values()),
        title="A collaborative map from two sides", caption="crosses: photos of the map; circles: all photos",
    )  # fmt: skip
    text = (
        f"{settings['queries']} queries, {settings['map photos']} photos in the map, {settings['seeds']} repeats (mean "
        "\u00b1 standard deviation). \u2192: the map is translated, \u2190: the queries are. Shares of queries within "
        "three thresholds, median errors of position and rotation, median inliers and their share of the matches."
    )
    sections = [
        Section("Table 1", [_table(results, place.scale)], text),
        Section("Inliers and errors", [inliers, *curves]),
        Section("Map", [picture]),
    ]
    unit = pose_errors({}, place.poses, experiment.queries, place.scale).unit
    return experiment.write(
        "Localisation in maps of other descriptors", answer(results, place.scale), sections, results,
        defaults=defaults_of(localization), made_by="pipelines.localization", unit=unit,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(localization))
