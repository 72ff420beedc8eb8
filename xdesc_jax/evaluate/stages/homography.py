"""The stage `xdesc evaluate homography`: scenes with known homographies -> figures and a report.

In: a folder of scenes, and feature files or what to extract; a model for the translated rows. Out:
`homography.json` with every pair's measures, a table, and `report.html`. The one module of `evaluate` that
calls extraction, and only where no features are given.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.descriptors import get_entry, registered
from xdesc_jax.evaluate.across import Across, evaluate_across
from xdesc_jax.evaluate.homography import Result, evaluate
from xdesc_jax.evaluate.photos import spec_by_name
from xdesc_jax.evaluate.scenes import Scene, find_scenes
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files import dry_run
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import already_done, config_hash, content_hash, input_hash, read_json, write_json
from xdesc_jax.reports.settings import Settings, defaults_of
from xdesc_jax.translation.translator import Translator

RESULTS, REPORT = "homography.json", "report.html"
NAME_AFTER = "name the file after it, as in sift.h5 (a name that the package or --model knows)"
_PROBE_PX = np.array([[0, 0], [640, 0], [640, 480], [0, 480]], np.float64)


def homography(
    scenes: Path,
    *,
    out: Path,
    features: tuple[Path, ...] = (),
    other: tuple[Path, ...] = (),
    model: Path | None = None,
    descriptors: tuple[str, ...] = (),
    keypoints: str = "opencv",
    max_keypoints: int = 2000,
    weights: tuple[str, ...] = (),
    processes: int = 1,
    overwrite: bool = False,
) -> list[Result]:
    """Measures matching on planar scenes: native, translated, joint and naive. Goes on where it was stopped.

    Args:
        scenes: folder of scenes in the layout of HPatches-sequences (1.ppm ... 6.ppm, H_1_2 ...) or of the
            Oxford set (img1.ppm, H1to2p), or one such scene; photo 1 is the query.
        out: folder for homography.json, report.html and, where they are extracted, the features.
        features: feature files, or folders of them, of the photos by their names below SCENES; extracted
            where none are given.
        other: feature files of the database photos, where these have keypoints of another detector: each file of
            `features` is compared with each of them, and both with themselves, with the repeatability of their
            keypoints beside. Each file has keypoints of its own then, and holds all photos.
        model: the translator, a model file or the name of one that ships with the package (see `xdesc models`);
            without it there are only native and naive rows.
        descriptors: which ones; by default all of the feature files, or all of the model's that photos give.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors, where features are extracted and the weights are
            neither shipped nor installed.
        processes: processes that extract.
        overwrite: measure again even if the result is there.

    Returns:
        One result per comparison; with `other`, of those across the two.

    Raises:
        ValueError: no scene, `other` without `features`, no descriptor named, or feature files that do not fit the
            photos or each other.
        FileNotFoundError: a file that is missing.
        FileExistsError: `out` holds the result of another configuration.
        InUse: another process works on it.
    """
    found = find_scenes(scenes)
    named, model = model, pretrained.resolve(model) if model else None
    translator = Translator.load(model) if model else None
    if other:
        if descriptors:
            raise ValueError(
                f"--descriptors {' '.join(descriptors)}: with --other, all files that are named are compared"
            )
        if not features:
            raise ValueError("--other: has keypoints of its own, so --features must name the files of the query photos")
        return _across(scenes, found, out, features, other, translator, named, overwrite).results
    if features:
        stores = given_stores(features, descriptors, translator)
    else:
        names = to_extract(descriptors, translator, keypoints)
        with dry_run.step(out / RESULTS, out / REPORT):
            stores = extracted_stores(
                scenes, out / "features", names, keypoints=keypoints, max_keypoints=max_keypoints, weights=weights,
                processes=processes, overwrite=overwrite,
            )  # fmt: skip
    if translator and (lacking := [name for name in stores if name not in translator.names]):
        console.warn(f"{model}: nothing of {', '.join(lacking)} is translated, it has {translator.describe()}")
    with console.status("reading the inputs"):
        hashes = {name: input_hash(path) for name, path in stores.items()}
        model_hash = content_hash(model) if model else None
    settings = {
        "scenes": f"{scenes} ({', '.join(scene.name for scene in found)})",
        "pairs": sum(len(scene.pairs) for scene in found),
        "features": {name: f"{path} (sha256 {hashes[name]})" for name, path in stores.items()},
        "model": f"{model} (sha256 {model_hash})" if model else None,
    }
    told = {"scenes": scenes, "scenes found": len(found), "pairs": settings["pairs"], "model": named}
    told |= {"features": features, "descriptors": list(stores), "keypoints": keypoints, "max_keypoints": max_keypoints}
    console.settings(f"xdesc evaluate homography -> {out}", told, homography)
    expected = config_hash([scene_config(found), hashes, model_hash])
    path = out / RESULTS
    if _is_done(path, expected, settings, overwrite):
        results = [Result.from_dict(value) for value in read_json(path)["results"]]
    else:
        given = {"descriptors": descriptors, "keypoints": keypoints, "max_keypoints": max_keypoints, "weights": weights}
        used = Settings.of(given, defaults_of(homography))
        with _resumed(path, expected) as journal:
            results = evaluate(found, stores, translator, journal=journal)
            with console.status("drawing the report"):
                _write_report(out / REPORT, scenes, found, stores, translator, results, used, settings)
            as_json = [result.to_dict() for result in results]
            write_json(path, {"hash": expected, "settings": settings, "results": as_json})
    print_table(results)
    console.result(out, figures=path, report=out / REPORT)
    return results


def _across(
    root: Path, scenes: Sequence[Scene], out: Path, features: Sequence[Path], other: Sequence[Path],
    translator: Translator | None, model: Path | None, overwrite: bool,
) -> Across:  # fmt: skip
    """Files of the query photos against files of the database photos: JSON, tables and page.

    The arguments are those of `homography`, and the scenes that were found in `root`.
    """
    from xdesc_jax.evaluate.across_report import match_rows, repeatability_rows, write_report

    queries, databases = (given_stores(paths, (), translator) for paths in (features, other))
    with console.status("reading the inputs"):
        hashes = [{name: input_hash(path) for name, path in stores.items()} for stores in (queries, databases)]
        model_hash = content_hash(pretrained.resolve(model)) if model else None
    pairs, path = sum(len(scene.pairs) for scene in scenes), out / RESULTS
    told: dict[str, Any] = {"scenes": root, "scenes found": len(scenes), "pairs": pairs, "model": model}
    told |= {"features": list(queries.values()), "other": list(databases.values())}
    console.settings(f"xdesc evaluate homography -> {out}", told, homography)
    expected = config_hash(["across", scene_config(scenes), *hashes, model_hash])
    settings = {name: str(value) for name, value in told.items()} | {"sha256 of": [*hashes, model_hash]}
    if _is_done(path, expected, settings, overwrite):
        found = Across.from_dict(read_json(path))
    else:
        with _resumed(path, expected) as journal:
            found = evaluate_across(scenes, queries, databases, translator, journal)
            with console.status("drawing the report"):
                write_report(out / REPORT, found, settings, pairs, len(scenes))
            write_json(path, {"hash": expected, "settings": settings, **found.to_dict()})
    for title, heads, rows in (match_rows(found), repeatability_rows(found)):
        console.table(title, heads, rows)
    console.result(out, figures=path, report=out / REPORT)
    return found


def _is_done(path: Path, expected: str, settings: Mapping[str, Any], overwrite: bool) -> bool:
    """Whether this very result is there; raises FileExistsError for another configuration's, with what differs."""
    found = None if overwrite or not path.exists() else _found_hash(path)
    differs = functools.partial(changes, path, found, settings, kept="settings", hash_kept="hash")
    return already_done(path, found, expected, overwrite, differs=differs)


@contextlib.contextmanager
def _resumed(path: Path, expected: str) -> Iterator[Journal]:
    """What a stopped run has measured, until the body has written the result; this process alone works on it."""
    with claimed(beside(path), "xdesc evaluate homography", path), Journal(beside(path, ".part"), expected) as journal:
        yield journal
        journal.remove()


def _found_hash(path: Path) -> str | None:
    value = read_json(path)
    return value.get("hash") if isinstance(value, dict) else None


def _write_report(
    path: Path,
    root: Path,
    scenes: Sequence[Scene],
    stores: Mapping[str, Path],
    translator: Translator | None,
    results: Sequence[Result],
    settings: Settings,
    provenance: Mapping[str, Any],
) -> None:
    """The report, with the matches of the middle pair of the first scene drawn."""
    from xdesc_jax.evaluate.report import Evaluation, highlights, matched_pictures, write_report
    from xdesc_jax.features.images import read_gray

    pair = scenes[0].pairs[len(scenes[0].pairs) // 2]
    photos = read_gray(root / pair.query), read_gray(root / pair.database)
    pictures = matched_pictures(pair, photos, stores, translator, highlights(results))
    counts = f"{console.counted(provenance['pairs'], 'pair')} of {console.counted(len(scenes), 'scene')}"
    text = f"{counts}; the query is photo 1 of each scene."
    write_report(
        path,
        "Matching under known homographies",
        [Evaluation("Scenes", text, results, f"{pair.query} and {pair.database}", pictures)],
        settings=settings,
        provenance={"made by": "xdesc evaluate homography", **provenance},
        model=translator,
    )


def print_table(results: Sequence[Result]) -> None:
    """The matrix of AP (source x target, native on the diagonal) and the list of all comparisons."""
    from xdesc_jax.evaluate.report import columns, matrix, table_rows

    names, rows = matrix(results, "translated")
    cells = [[name, *("" if v is None else v for v in row)] for name, row in zip(names, rows, strict=True)]
    console.table("AP, query translated from row to column (diagonal: native)", ["", *names], cells, matrix=True)
    console.table(
        "All comparisons (->: translated, |: joint space)", ["query, database", *columns(results)], table_rows(results)
    )


def extracted_stores(
    scenes: Path,
    out: Path,
    descriptors: Sequence[str],
    *,
    keypoints: str,
    max_keypoints: int,
    weights: tuple[str, ...],
    processes: int,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Descriptor -> feature file in `out`, of all photos below SCENES; settings as in `homography`."""
    from xdesc_jax.features.extract import extract

    limit = max_keypoints if keypoints in ("opencv", "colmap") else None  # a file's are all kept
    with console.inner():
        extract(
            scenes, out, descriptors=tuple(descriptors), keypoints=keypoints, max_keypoints=limit,
            weights=weights, processes=processes, overwrite=overwrite, strict=True,
        )  # fmt: skip
    return given_stores([out], descriptors)


def to_extract(descriptors: Sequence[str], translator: Translator | None, keypoints: str) -> tuple[str, ...]:
    """Those asked for, or all of a model that photos give; ValueError where there are none, or the model alone knows
    one."""
    names = tuple(descriptors) or (computable(translator.names, keypoints) if translator else ())
    if not names:
        raise ValueError("name --descriptors to extract, or give a --model or --features")
    if translator and (own := [name for name in names if name in translator.names and name not in registered()]):
        text = "known by the model alone, photos do not give it; give its rows with --features"
        raise ValueError(f"--descriptors {' '.join(own)}: {text}")
    return names


def computable(names: Sequence[str], keypoints: str) -> tuple[str, ...]:
    """Those of a model's descriptors that photos give; says which are left out.

    Args:
        names: of the model.
        keypoints: 'opencv', 'colmap', or a file that holds them.

    Raises:
        ValueError: photos give none of them.
    """

    def given(name: str) -> bool:
        entry = get_entry(name) if name in registered() else None
        if entry is None or entry.source != "detector":
            return entry is not None and entry.describe is not None
        return keypoints != "opencv"  # COLMAP's descriptors come with its keypoints

    found = tuple(name for name in names if given(name))
    if lacking := ", ".join(name for name in names if name not in found):
        text = f"{lacking}: left out, since it is not computed from these photos; give its rows with --features"
        if not found:
            raise ValueError(text)
        console.warn(text)
    return found


def given_stores(
    paths: Sequence[Path], descriptors: Sequence[str] = (), translator: Translator | None = None
) -> dict[str, Path]:
    """Descriptor -> feature file, from files and folders of .h5 files.

    Args:
        paths: feature files or folders. A file that does not say what it holds (hloc's) is taken to hold
            the descriptor it is named after.
        descriptors: the ones to keep, in this order; all, sorted, where empty.
        translator: whose descriptors a file may be named after, before the registered ones.

    Raises:
        FileNotFoundError: no such file or folder, or a folder without feature files.
        ValueError: two files of one descriptor, or none of one that was asked for.
    """
    found: dict[str, Path] = {}
    for path in paths:
        files = sorted(path.glob("*.h5")) if path.is_dir() else [path]
        if not files:
            raise FileNotFoundError(f"{path}: holds no feature file (.h5)")
        for file in files:
            with FeatureStore(file, spec_by_name(file.stem, translator), hint=NAME_AFTER) as store:
                name = store.spec.name
            if name in found:
                raise ValueError(f"two files hold {name!r}: {found[name]} and {file}")
            found[name] = file
    if missing := [name for name in descriptors if name not in found]:
        raise ValueError(f"no feature file of {', '.join(missing)} (given: {', '.join(sorted(found))})")
    return {name: found[name] for name in descriptors or sorted(found)}


def scene_config(scenes: Sequence[Scene]) -> list[Any]:
    """Names and homographies; four points determine one."""
    return [
        [scene.name, pair.query, pair.database, pair.correspondence(_PROBE_PX)]
        for scene in scenes
        for pair in scene.pairs
    ]
