"""Localisation of one row after another: its map, its queries' poses, and what becomes of them.

In: a place (photos of the map with poses, queries with intrinsics and the photos to match them with), feature files,
translators. Out: of each row the file of poses that the benchmark's server takes, and figures. Maps of one descriptor
serve all rows that need them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from xdesc_jax import console
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.evaluate.benchmarks.places import query_scores
from xdesc_jax.evaluate.benchmarks.places.deployments import EMBED, Deployment
from xdesc_jax.evaluate.benchmarks.places.maps import triangulated
from xdesc_jax.evaluate.divided import split, write_lines, write_split
from xdesc_jax.evaluate.localization import read_localized
from xdesc_jax.files.text_list import written
from xdesc_jax.files.whole import content_hash, read_json

SUBMISSIONS = "submissions"


@dataclasses.dataclass(frozen=True)
class Task:
    """One row to compute.

    Attributes:
        name: of the row, and of its files.
        deployment: who holds what.
        model: the translator; None for rows that need none.
        paper: the paper's row.
    """

    name: str
    deployment: Deployment
    model: Path | None
    paper: str = ""


@dataclasses.dataclass(frozen=True)
class Place:
    """What all rows share.

    Attributes:
        out: folder of everything that is made.
        reference: COLMAP model with the map's poses and cameras.
        known: photos of the map.
        stores: descriptor -> feature file of all photos.
        map_pairs: list of the map's photos that are matched.
        queries: name -> camera.
        query_pairs: list of the photos that each query is matched with; None to retrieve them in the joint space.
        retrieval: how many a query.
        truth: the queries' poses, where they are known.
        ratio, seed, workers: of matching, of RANSAC and of the split, and of localisation.
        overwrite: make everything anew.
        made: maps that were made by this run.
    """

    out: Path
    reference: Path
    known: Sequence[str]
    stores: Mapping[str, Path]
    map_pairs: Path
    queries: Mapping[str, Camera]
    query_pairs: Path | None
    retrieval: int
    truth: Mapping[str, Pose] | None
    ratio: float | Literal["auto"] | None
    seed: int
    workers: int
    overwrite: bool
    made: set[str] = dataclasses.field(default_factory=set)


def file_name(name: str) -> str:
    """A row's name as that of a file: letters, digits, '-', '.' and '_'; its arrow as a word."""
    name = name.replace("->", "to").replace("<-", "from")
    return "_".join("".join(c if c.isalnum() or c in "-." else " " for c in name).split())


def localised(task: Task, place: Place) -> dict[str, Any]:
    """Localises all queries of a row; what is finished is kept. Gives its figures, JSON-like."""
    from xdesc_jax.localization.localize import localize

    row = task.deployment
    mode, target = row.mode
    retrieving = place.query_pairs is None
    # Without a list the model finds the photos of 'standard' rows, too.
    model = task.model if retrieving or mode != "native" else None
    with console.inner():
        files = _files(task, place)
        folder = _map(task, place, files)
        out = place.out / "localized" / file_name(task.name)
        localize(
            folder, out, features=tuple(files), queries=_query_list(place), query_features=(place.stores[row.query],),
            model=model, mode=mode, target=target, pairs=None if retrieving else str(place.query_pairs),
            retrieval=place.retrieval if retrieving else None, ratio=place.ratio, seed=place.seed,
            workers=place.workers, overwrite=place.overwrite,
        )  # fmt: skip
    found = read_localized(out)
    query_scores.submission(place.out / SUBMISSIONS / f"{file_name(task.name)}.txt", found.poses)
    summary = read_json(folder.parent.parent / "summary.json")
    scored = query_scores.figures(found.poses, found.inliers, list(place.queries), place.truth)
    return {**scored, "points": int(summary["models"][0]["points"])}


def _files(task: Task, place: Place) -> list[Path]:
    """Feature files of the map."""
    if task.deployment.map != EMBED:
        return [place.stores[task.deployment.map]]
    kind_of = split(sorted(place.known), list(place.stores), place.seed)
    return write_split(place.stores, kind_of, place.out / "split")


def _map(task: Task, place: Place, files: Sequence[Path]) -> Path:
    """Folder of the map's model."""
    joint = task.deployment.map == EMBED
    model = task.model if joint else None
    name = f"{EMBED}-{content_hash(model)}" if model is not None else file_name(task.deployment.map)
    overwrite = place.overwrite and name not in place.made
    place.made.add(name)
    return triangulated(
        files, place.known, place.reference, place.map_pairs, place.out / "maps" / name,
        mode="embed" if joint else "native", model=model, ratio=place.ratio, overwrite=overwrite,
    )  # fmt: skip


def _query_list(place: Place) -> Path:
    lines = [
        f"{written(name)} {c.model} {c.width} {c.height} {' '.join(repr(float(p)) for p in c.params)}"
        for name, c in place.queries.items()
    ]
    return write_lines(place.out / "queries.txt", lines)
