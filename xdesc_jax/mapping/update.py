"""The stage `xdesc map update`: a translated map, and new photos of the place -> the map with real rows.

In: a sparse model, the feature files or databases of its photos (translated), and new photos: query list and features.
Out: a folder with `model`, the model with the new photos, `features.h5` of all photos, in which real rows have
taken the place of translated ones, `summary.json` and `report.html`, which show how the share of real rows and the
accuracy grew. Started again on its own result with more photos, it goes on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.bindings.registration import add_photos
from xdesc_jax.colmap.camera_models import camera_option
from xdesc_jax.colmap.foreign.read import find
from xdesc_jax.colmap.reference import reference_poses
from xdesc_jax.descriptors import DescriptorSpec, stored
from xdesc_jax.evaluate.poses import Scale, pose_errors
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import already_done, atomic, config_hash, content_hash, recorded, write_json
from xdesc_jax.localization.compared import check_rows
from xdesc_jax.localization.finished import recall
from xdesc_jax.localization.localize import model_hash
from xdesc_jax.localization.map import LocalizationMap
from xdesc_jax.localization.outcome import PoseSettings
from xdesc_jax.localization.query_cameras import query_cameras
from xdesc_jax.mapping.bootstrap import UpdatedMap
from xdesc_jax.mapping.update_steps import held_of, print_steps, step_after
from xdesc_jax.matching.feature_set import COPY_IT, FeatureSet
from xdesc_jax.matching.routes import Router
from xdesc_jax.translation.ratios import RATIOS, TRANSLATED_FROM
from xdesc_jax.translation.translator import Translator

MODEL, FEATURES, SUMMARY, REPORT = "model", "features.h5", "summary.json", "report.html"
_SHOWN = 5


def update(
    reconstruction: Path,
    out: Path,
    *,
    features: tuple[Path, ...],
    queries: Path,
    new_features: tuple[Path, ...],
    batch: int = 5,
    retrieval: int | None = None,
    model: Path | None = None,
    test_queries: Path | None = None,
    test_features: tuple[Path, ...] = (),
    reference: Path | None = None,
    scale: Scale = "metric",
    ratio: float | None = None,
    min_inliers: int = PoseSettings.min_inliers,
    max_error_px: float = PoseSettings.max_error_px,
    seed: int = 0,
    camera: str | None = None,
    intrinsics: Path | None = None,
    photos: Path | None = None,
    assume_focal: bool = False,
    overwrite: bool = False,
) -> Path:
    """Translated map and new photos -> the map with real rows. Started again, it goes on where it stopped.

    Args:
        reconstruction: folder of a COLMAP model with 3D points.
        out: folder to make.
        features: translated feature files (.h5) and databases of the model's photos, all of one descriptor.
        queries: list of the new photos, 'name MODEL width height params...' a line, in the order they came in.
        new_features: feature files and databases of the new photos, of the same descriptor.
        batch: photos that are registered before the map's rows are replaced; later ones profit.
        retrieval: map photos that a new one is matched with, in the joint space of `model`; all without.
        model: model file (.safetensors), or the name of one that ships; for `retrieval` alone.
        test_queries: list of further photos, which are localised after every batch and never added.
        test_features: feature files and databases of these.
        reference: COLMAP model, or one of another program, with true poses of the test photos, in the map's frame.
        scale: of errors against the reference: 'metric', or 'relative' to the distance between its cameras.
        ratio: largest first-to-second distance ratio; the calibrated one without.
        min_inliers: a pose with fewer is a failure.
        max_error_px: largest reprojection error of an inlier.
        seed: of RANSAC and of the retrieval's vocabulary.
        camera: of all new and test photos that are listed without, as 'MODEL width height params...'.
        intrinsics: list as `queries`, COLMAP model or database with the cameras of those, in place of `camera`.
        photos: folder of the new and the test photos, for the cameras' EXIF; nothing else of them is read.
        assume_focal: guess 1.2 times the longer side as the focal length of photos of which nothing knows it.
        overwrite: replace a result made with other settings.

    Returns:
        `out`.

    Raises:
        ValueError: files that do not fit each other, more than one descriptor, or new photos that the map holds.
        FileExistsError: `out` was made with other settings and `overwrite` is off.
        InUse: another process makes it.
    """
    reconstruction, out = Path(reconstruction), Path(out)
    if batch < 1:
        raise ValueError(f"batch is {batch}, expected at least 1")
    if retrieval is not None and model is None:
        raise ValueError("--retrieval needs --model, in whose joint space photos are compared")
    if test_queries is not None and not test_features:
        raise ValueError(f"{test_queries}: the features of the test photos are missing (--test-features)")
    if reference is not None and test_queries is None:
        raise ValueError(f"{reference}: is the reference of test photos, but there are none (--test-queries)")
    given = camera_option(camera)
    named, model = model, pretrained.resolve(model) if model is not None else None
    lists = [path for path in (queries, test_queries, reference, model) if path is not None]
    _check_out(out, [reconstruction, *features, *new_features, *test_features, *lists])
    translator = Translator.load(model) if model is not None else None
    with (
        FeatureSet(features, hint=COPY_IT) as known,
        FeatureSet(new_features, hint=COPY_IT) as new,
        FeatureSet(test_features or new_features, hint=COPY_IT) as test,
    ):
        if find(reconstruction) is not None:
            raise ValueError(f"{reconstruction}: is of another program, and only a COLMAP model can be updated")
        sparse = read_model(reconstruction)
        known.check_names(sparse.names, f"the model {reconstruction}")
        cameras_of = partial(
            query_cameras, assume_focal=assume_focal, intrinsics=intrinsics, photos=photos, camera=given
        )
        cameras = cameras_of(queries, new)
        test_cameras = cameras_of(test_queries, test) if test_queries is not None else {}
        _check_apart(queries, cameras, "new photos", sparse.names, "in the map already")
        _check_apart(
            test_queries, test_cameras, "test photos", [*sparse.names, *cameras], "in the map or among the new ones"
        )
        _check_native(new, list(cameras))
        check_rows(new, cameras)
        asked: list[tuple[FeatureSet, Sequence[str]]] = [(known, sparse.names), (new, list(cameras))]
        spec = _one_descriptor([*asked, (test, list(test_cameras))])
        true = reference_poses(reference, test_cameras) if reference is not None else {}
        if reference is not None:
            pose_errors({}, true, list(test_cameras), scale, str(reference))  # says which are missing
        inputs = {"reconstruction": reconstruction, "features": known.paths, "queries": queries}
        inputs |= {"new_features": new.paths, "model": named, "test_queries": test_queries, "reference": reference}
        inputs["test_features"] = test.paths if test_queries is not None else []
        settings: dict[str, Any] = {
            "stage": "map update",
            "reconstruction": model_hash(reconstruction),
            "features": known.hashes(),
            "queries": content_hash(queries),
            "new_features": new.hashes(),
            "batch": batch,
            "retrieval": retrieval,
            "model": content_hash(model) if model is not None else None,
            "test_queries": content_hash(test_queries) if test_queries is not None else None,
            "test_features": test.hashes() if test_queries is not None else [],
            "assume_focal": assume_focal,
            "reference": model_hash(reference) if reference is not None else None,
            "scale": scale,
            "ratio": ratio,
            "min_inliers": min_inliers,
            "max_error_px": max_error_px,
            "seed": seed,
        }
        if given is not None:
            settings["camera"] = dataclasses.asdict(given)
        if intrinsics is not None or photos is not None:
            settings["cameras"] = config_hash([cameras, test_cameras])
        expected, summary = config_hash(settings), out / SUMMARY
        found = recorded(summary)
        differs = partial(changes, summary, found, settings, inputs, kept="settings", names_kept=["inputs"])
        files = [out / MODEL, out / FEATURES, out / REPORT]
        if already_done(out, found, expected, overwrite, files, differs=differs):
            console.up_to_date(out)
            return out
        shown = {"map photos": len(sparse.names), "3D points": len(sparse.points), "new photos": len(cameras)}
        told = {name: value for name, value in (settings | inputs).items() if name != "stage"} | {"camera": camera}
        console.settings(f"xdesc map update -> {out}", {**told, **shown, "descriptor": spec.name}, update)
        with claimed(beside(out), "xdesc map update", out):
            router = Router("native", None, ratio="auto" if ratio is None else ratio, ratios=known.ratios)
            built = LocalizationMap.build(
                sparse, known, router, translator, retrieval=retrieval is not None, seed=seed,
                where=str(reconstruction), track=lambda names: console.track(names, "reading the map", "photos"),
            )  # fmt: skip
            limits = PoseSettings(min_inliers, max_error_px, seed)
            updated = UpdatedMap(built, sparse, {n: _real(known, n) for n in sparse.names}, limits, retrieval)
            with Journal(beside(out, ".part"), expected) as journal:
                if len(journal):
                    console.info(
                        f"going on: {console.counted(len(journal), 'photo is', 'photos are')} localised already"
                    )
                after = partial(
                    step_after, updated, test=test, cameras=test_cameras, true=true, scale=scale, journal=journal
                )
                with console.status("localizing the test queries", shown=bool(test_cameras)):
                    steps = [after({}, 0)]
                failed: dict[str, str] = {}
                order = list(cameras)
                for start in console.track(range(0, len(order), batch), "registering", "batches"):
                    names = order[start : start + batch]
                    readable = []
                    for name in names:
                        try:
                            readable.append((name, new.read(name), held_of(new, name), cameras[name]))
                        except ValueError as error:  # of this photo alone
                            failed[name] = str(error)
                    results = updated.take_in(readable, lambda name, work: recall(journal, f"new {name}", work))
                    failed |= {name: str(r.reason) for name, r in results.items() if r.pose is None}
                    steps.append(after(results, start + len(names)))
                about: dict[str, Any] = {"settings": settings, "inputs": inputs, "config_hash": expected}
                about["descriptor"] = spec.name
                about |= {"registered": [photo.name for photo in updated.added], "failed": failed, "steps": steps}
                with console.status("writing the map"):
                    _write(out, reconstruction, known, new, updated, spec, about)
                journal.remove()
    print_steps(steps, failed, scale)
    console.result(out, model=out / MODEL, features=out / FEATURES, report=out / REPORT)
    return out


def _check_out(out: Path, inputs: Sequence[Path]) -> None:
    """Raises where `out` is, holds or lies in an input, or is anything but an earlier update."""
    here = out.resolve()
    for path in map(Path, inputs):
        if here == path.resolve() or here in path.resolve().parents or path.resolve() in here.parents:
            raise ValueError(f"{out}: is or holds the input {path}, or lies in it; choose another output")
    if out.exists() and not (out / SUMMARY).exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out}: exists and is no update of a map; choose another output")


def _check_apart(listed: Path | None, names: Collection[str], what: str, others: Collection[str], where: str) -> None:
    """Raises ValueError where photos of a list are among others."""
    taken = set(others)
    if twice := [name for name in names if name in taken]:
        raise ValueError(f"{listed}: {len(twice)} {what} are {where}, first {twice[:_SHOWN]}")


def _check_native(features: FeatureSet, names: Sequence[str]) -> None:
    """Raises ValueError where rows of new photos are translations themselves."""
    for name in names:
        held = features.held(name)
        if held is not None and held.translated_from is not None:
            raise ValueError(
                f"{features.path(name)}: rows of {name!r} were translated from {held.translated_from!r}; "
                f"an update takes rows that were extracted"
            )


def _one_descriptor(asked: Sequence[tuple[FeatureSet, Sequence[str]]]) -> DescriptorSpec:
    """The descriptor of all these photos; raises ValueError with photos that hold another, or none."""
    specs: dict[str, tuple[DescriptorSpec, str]] = {}
    for features, names in asked:
        for name in names:
            if (held := features.held(name)) is not None:
                specs.setdefault(held.spec.name, (held.spec, f"{features.path(name)}: {name!r}"))
    if not specs:
        raise ValueError("neither the map nor the new photos have descriptors")
    if len(specs) != 1:
        told = "; ".join(f"{spec} ({where})" for spec, (_, where) in specs.items())
        raise ValueError(
            f"map and new photos hold several descriptors: {told}; translate the map to that of the new photos first"
        )
    return next(iter(specs.values()))[0]


def _real(features: FeatureSet, name: str) -> np.ndarray:
    """Which rows of a photo are real: all of a native one; of a translated one, those that are marked."""
    count = len(features.keypoints(name))
    held = features.held(name)
    if held is None:
        return np.zeros(count, bool)
    if held.translated_from is None:
        return np.ones(count, bool)
    marked = features.read(name).real
    return np.zeros(count, bool) if marked is None else marked


def _write(
    out: Path,
    reconstruction: Path,
    known: FeatureSet,
    new: FeatureSet,
    updated: UpdatedMap,
    spec: DescriptorSpec,
    about: dict[str, Any],
) -> None:
    """The folder, whole or not at all."""
    from xdesc_jax.evaluate.update_report import write_report
    from xdesc_jax.reports.page import link
    from xdesc_jax.reports.settings import defaults_of

    held = {name: known.held(name) for name in updated.real}
    origins = {h.translated_from for h in held.values() if h is not None} - {None}
    attributes = {"config_hash": about["config_hash"]}
    if origins:  # of which rows, `real` says
        attributes |= {TRANSLATED_FROM: "+".join(sorted(map(str, origins))), RATIOS: json.dumps(known.ratios)}
    with atomic(out) as folder:
        (folder / MODEL).mkdir(parents=True)
        add_photos(reconstruction, folder / MODEL, updated.added)
        with StoreWriter(folder / FEATURES, spec, attributes) as writer:
            for name, real in updated.real.items():
                photo = known.read(name) if held[name] is not None else _bare(known, name, spec)
                rows = updated.rows(name)
                made = rows if spec.binary else stored(rows, spec)
                # What was not replaced stays as it was stored, bit for bit.
                replaced = real & ~_real(known, name)
                changed = np.where(replaced[:, None], made, photo.descriptors)
                valid = photo.valid | replaced
                writer.write(name, dataclasses.replace(photo, descriptors=changed, valid=valid, real=real))
            for added in updated.added:
                photo = new.read(added.name)
                writer.write(added.name, dataclasses.replace(photo, real=np.ones(len(photo), bool)))
        write_report(folder / REPORT, about, defaults_of(update), linked=False)
        write_json(folder / SUMMARY, about)
    link(out / REPORT)


def _bare(features: FeatureSet, name: str, spec: DescriptorSpec) -> ImageFeatures:
    """A photo that has keypoints alone, as one of which no row is valid."""
    xy, frames = features.keypoints(name), features.frames(name)
    rows, nothing = np.zeros((len(xy), spec.stored_width), spec.stored_dtype), np.zeros(len(xy), bool)
    scales, oris = (None, None) if frames is None else frames.T
    return ImageFeatures(xy, rows, nothing, features.image_size(name), scales, oris)
