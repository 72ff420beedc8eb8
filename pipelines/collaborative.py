"""Mapping by devices of different descriptors: the rows of the paper's table 2, on any scene.

    python -m pipelines.collaborative SCENE --out OUT [--scale relative]

SCENE holds `images/` and `reference/` (see `map_scene`). Rows:

    standard      all photos hold one descriptor
    own quarter   only the photos that one of four descriptors got, in a random split
    embed         all photos of the split, matched in the joint space
    progressive   all photos of the split, of each pair the lower descriptor translated to the higher

All pairs are matched, verified and mapped incrementally with the true intrinsics, and measured against the true
poses. Each row is repeated with several seeds: of the split, of verification and of mapping. Writes one table,
JSON, and a page with co-visibility and the map from two sides. Finished models and rows are kept.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.evaluate import map_drawing
from xdesc_jax.evaluate.benchmarks.places.incremental import ALL, Mapper, Method
from xdesc_jax.evaluate.covisibility import covisibility
from xdesc_jax.evaluate.map_report import two_sides
from xdesc_jax.evaluate.poses import MAPPING, UNITS, Scale, label
from xdesc_jax.evaluate.sfm import measure
from xdesc_jax.mapping.from_photos import NotReconstructed
from xdesc_jax.reports.chart import chart
from xdesc_jax.reports.parts import Answer, Cell, Column, Number, Picture, Section, Table
from xdesc_jax.reports.settings import defaults_of

from .map_experiment import Experiment, bars, means, spread
from .map_scene import DESCRIPTORS, open_scene


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table; 'embed' and 'progressive' use all descriptors."""

    method: Method
    descriptor: str = ALL


def table_rows(descriptors: Sequence[str]) -> list[Row]:
    """The rows of table 2, in its order."""
    return [
        *(Row("standard", d) for d in descriptors),
        *(Row("own quarter", d) for d in descriptors),
        Row("embed"),
        Row("progressive"),
    ]


@dataclasses.dataclass(frozen=True)
class MappingExperiment(Experiment):
    """The experiment, with the descriptors that photos are split among, and the threads of mapping."""

    descriptors: tuple[str, ...]
    threads: int


def collaborative(
    scene: Path,
    *,
    out: Path,
    scale: Scale = "metric",
    model: Path = Path("colmap"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    keypoints: Literal["colmap", "opencv"] = "colmap",
    max_keypoints: int = 2000,
    ratio: float | Literal["auto"] = "auto",
    seeds: int = 5,
    threads: int = 2,
    features: Path | None = None,
) -> list[dict[str, Any]]:
    """Runs all rows of table 2 on a scene.

    Args:
        scene: folder with `images/` and `reference/`.
        out: folder for everything that is made.
        scale: 'metric' where the reference is in metres; 'relative' divides positions by u, the median distance
            from a reference camera to its nearest.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: that the photos are split among.
        keypoints: detector; the translator should be trained on it.
        max_keypoints: of a photo.
        ratio: of matching; 'auto' for the calibrated ones.
        seeds: repeats.
        threads: of mapping.
        features: folder for the features, so that experiments share them; OUT/features where None.

    Returns:
        The rows with their figures, which are also in OUT/results.json and OUT/report.html.
    """
    start = time.monotonic()
    place = open_scene(scene, features or out / "features", descriptors, scale, max_keypoints, keypoints)
    experiment = MappingExperiment(
        place, out, pretrained.resolve(model), ratio, seeds, {"photos": len(place.names)},
        descriptors=descriptors, threads=threads,
    )  # fmt: skip
    results = experiment.run(
        table_rows(descriptors),
        lambda row: [_repeat(row, experiment, seed) for seed in range(seeds)],
        lambda entry: f"{_name(entry)}: {spread(entry, 'registered_share', factor=100)} % registered",
    )
    report = _report(experiment, results)
    _print(scene.name, results, scale)
    console.info(f"took {time.monotonic() - start:,.0f} s")
    console.result(out, figures=out / "results.json", report=report)
    return results


# --- Models ------------------------------------------------------------------------------------------------


def _mapper(experiment: MappingExperiment) -> Mapper:
    place = experiment.place
    return Mapper(
        experiment.out, place.names, {name: place.stores[name] for name in experiment.descriptors}, place.reference,
        experiment.model, experiment.ratio, (), experiment.threads,
    )  # fmt: skip


def _repeat(row: Row, experiment: MappingExperiment, seed: int) -> dict[str, Any]:
    """The figures of a repeat; of photos that give no model, the reason and zeros."""
    place = experiment.place
    try:
        folder = _mapper(experiment).run(row.method, row.descriptor, seed)
    except NotReconstructed as error:
        console.warn(f"{row.method}, {row.descriptor}, seed {seed}: {error}")
        nothing = {"registered_share": 0.0, "points": 0, "track_length": None, "reprojection_error_px": None}
        return {"seed": seed, **nothing, "aligned": False, "reason": str(error)}
    result = measure(folder, read_model(folder), place.poses, place.names, place.scale, seed)
    return {"seed": seed, **{k: v for k, v in result.to_dict().items() if k != "per_photo"}}


# --- Report ------------------------------------------------------------------------------------------------


def _name(entry: dict[str, Any]) -> str:
    return entry["method"] if entry["descriptor"] == ALL else f"{entry['method']}: {entry['descriptor']}"


def _near(scale: Scale) -> list[tuple[str, tuple[str, str]]]:
    """Name and place in the figures of each share of near photos."""
    limits = MAPPING[scale]
    positions = [(f"{p:g} {UNITS[scale]}", ("within_position", f"{p:g} {UNITS[scale]}")) for p, _ in limits]
    return positions + [(label(p, r, scale), ("within_pose", label(p, r, scale))) for p, r in limits]


def _table(results: list[dict[str, Any]], scale: Scale) -> Table:
    near = _near(scale)
    columns = [Column("descriptor", text=True), Column("method", text=True)]
    columns += [Column(f"within {name}", "%") for name, _ in near]
    columns += [Column("registered", "%"), Column("3D points"), Column("track length")]
    columns += [Column("reprojection error", "px"), Column("not alignable", "repeats")]
    rows = [
        [
            entry["descriptor"],
            Cell(entry["method"], badge="native" if entry["method"] == "standard" else "translated"),
            # What has no place in the reference's frame is near to nothing in it.
            *(spread(entry, *keys, factor=100, without=0.0) for _, keys in near),
            spread(entry, "registered_share", factor=100),
            spread(entry, "points", digits=0),
            spread(entry, "track_length", digits=2),
            spread(entry, "reprojection_error_px", digits=3),
            sum(not repeat["aligned"] for repeat in entry["repeats"]),
        ]
        for entry in results
    ]
    return Table(columns, rows)


def answer(results: list[dict[str, Any]], scale: Scale) -> Answer:
    """The share of photos near their true position, a method, as means over its rows."""
    name, keys = _near(scale)[0]
    near = means(results, "method", *keys, factor=100, without=0.0)
    sentence = (
        f"Photos of all descriptors together: {near['embed']:.0f} % are mapped within {name} in the joint space, "
        f"{near['progressive']:.0f} % translated; each descriptor's own photos alone: {near['own quarter']:.0f} %."
    )
    return Answer(sentence, [Number(f"{mean:.1f}", method, "%") for method, mean in near.items()])


def _print(title: str, results: list[dict[str, Any]], scale: Scale) -> None:
    """Means alone, so that the table fits a screen."""
    near = _near(scale)[: len(MAPPING[scale])]
    rows = [
        (
            _name(entry),
            " / ".join(f"{spread(entry, *keys, factor=100, without=0.0).mean:.0f}" for _, keys in near),
            f"{spread(entry, 'registered_share', factor=100).mean:.0f}",
            f"{spread(entry, 'points').mean:,.0f}",
            *(
                "-" if np.isnan(mean) else f"{mean:.2f}"
                for mean in (spread(entry, key).mean for key in ("track_length", "reprojection_error_px"))
            ),
        )
        for entry in results
    ]
    heading = " / ".join(f"% {name}" for name, _ in near)
    console.table(f"Mapping, {title}", ("", heading, "% reg.", "points", "track", "px"), rows)


def _report(experiment: MappingExperiment, results: list[dict[str, Any]]) -> Path:
    place, settings = experiment.place, experiment.settings
    text = (
        f"{settings['photos']} photos, {settings['seeds']} repeats (mean \u00b1 standard deviation): share of the "
        "photos near their true position, and near position and rotation, after robust alignment; of those "
        "registered at all; points of the largest model, their mean track length and reprojection error; repeats "
        "that cannot be aligned, in which no photo is near."
    )
    points = bars(
        [_name(entry) for entry in results], [spread(entry, "points") for entry in results], "3D points", "3D points"
    )
    pictures: list[Picture] = []
    for method in ("embed", "progressive"):
        folder = _mapper(experiment).folder(method, ALL, 0) / "models" / "0"  # type: ignore[arg-type]
        if folder.exists():
            model = read_model(folder)
            shared = covisibility(model, _mapper(experiment).kinds(0), experiment.descriptors)
            seen = chart(map_drawing.covisibility_picture, shared, title=f"Co-visibility, {method}", caption="repeat 0")
            measured = measure(folder, model, place.poses, place.names, place.scale)
            pictures += [seen, two_sides(measured, model, place.poses, f"{method}, repeat 0")]
    sections = [
        Section("Table 2", [_table(results, place.scale)], text),
        Section("Points and maps", [points, *pictures]),
    ]
    return experiment.write(
        "Mapping by devices of different descriptors", answer(results, place.scale), sections, results,
        defaults=defaults_of(collaborative), made_by="pipelines.collaborative",
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(collaborative))
