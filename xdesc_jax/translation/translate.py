"""The stage `xdesc translate`: descriptors of one type -> another type, or embeddings.

In: a feature file (.h5), a COLMAP database or an array (.npy), and a model file. Out: a file of the same format
with translated rows in their stored form; a feature file keeps keypoints, scales, orientations, `valid` and row
order, a database (see `database`) all but the descriptors. Rows stream through, so a file may be larger
than memory. Runs on the base install.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.database import DatabaseReader, is_database
from xdesc_jax.colmap.database_file import database_hash
from xdesc_jax.features.frames import of_features
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.files import dry_run
from xdesc_jax.files.arrays import open_array
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.hdf5 import found_attribute
from xdesc_jax.files.whole import already_done, atomic, config_hash, content_hash, input_hash, recorded, write_json
from xdesc_jax.networks.frames import check as check_frames
from xdesc_jax.networks.views import VIEW, View, parse
from xdesc_jax.translation import database
from xdesc_jax.translation.ratios import TRANSLATED_FROM, again, origin
from xdesc_jax.translation.stream import Stream, ZeroRowsWarning
from xdesc_jax.translation.surroundings import check_positions
from xdesc_jax.translation.translator import Translator

ROWS = 65536  # rows of an array translated between two steps of the progress bar
FORMATS = (".h5", ".npy")
_EXPECTED = f"a {' or '.join(FORMATS)} file, or a COLMAP database"
DATABASE = ".db"  # stands for a COLMAP database, which is told by its content and may have any name
# Attributes of a feature file that describe its descriptors, and so do not pass to the translated file.
OWN_ATTRIBUTES = ("spec", "spec_json", "bits", "origin", "version", "config_hash")


def translate(
    features: Path,
    out: Path,
    *,
    target: str,
    model: Path,
    descriptor: str | None = None,
    frames: Path | None = None,
    positions: Path | None = None,
    packed: bool = False,
    views: tuple[str, ...] = (),
    overwrite: bool = False,
) -> Path:
    """Descriptors -> another type, or the joint space.

    In a COLMAP database, images that hold `descriptor` are translated; without it each from what it holds, and
    those that hold the target already are kept. Keypoints, cameras, rigs, frames, images, pose priors, matches and
    geometries stay; the input is never written. A run that was killed leaves a hidden partial file and goes on
    where it was. A COLMAP model whose photos are gone needs only its database or its feature file: the model
    names keypoints by their row, which stays. With target 'colmap-sift', COLMAP itself matches the result. Match
    that of any other target with `xdesc match`: COLMAP's own matchers end the process on descriptors that they
    do not know.

    Args:
        features: feature file (.h5), COLMAP database, or array (.npy, [N, D]).
        out: file to write, of the same format; with `views` a folder of one file a view, as roll090-scale1.0.db.
        target: descriptor to make, or 'embedding'.
        model: model file (.safetensors), the name of one that ships with the package (see `xdesc models`), or
            'user/model' for one of the Hugging Face hub (extra 'hub'); likewise wherever a model is given.
        descriptor: what `features` holds; may be left out where the file says so.
        frames: of the keypoints of an array's rows, for models that take them: .npy, [N, 2], sigma in px and
            orientation in radians (feature files and databases have them).
        positions: of the same keypoints, for models whose encoders look at a photo's other rows: .npy, [N, 2], px; the
            array then holds all rows of one photo.
        packed: the array holds packed bits (feature files and databases always do).
        views: 'roll=0,90,180,270 scale=0.5,1,2': from rows of SIFT and others that turn with their keypoints, those of
            a target that sees photos as they lie, had they been turned (degrees, clockwise) and scaled. Images of a
            database that hold other rows are in each file as they lie.
        overwrite: replace a result made with other settings.

    Returns:
        `out`; a summary lies beside each file as `<out>.json`.

    Raises:
        FileNotFoundError: no such features, or no model of that path or name.
        ValueError: formats, names, widths or values that do not fit, views of rows that none are rendered of, or a
            database that is being written.
        FileExistsError: `out` was made with other settings and `overwrite` is off.
        OSError: the disk is full.
    """
    features, out = Path(features), Path(out)
    asked = parse(views)
    if any(view.upright for view in asked):
        raise ValueError("--views gravity: goes by the poses of a map's photos, which `xdesc localize` has")
    made: dict[View | None, Path] = {view: out / f"{view.name}{_suffix(features)}" for view in asked}
    kind = _check_paths(features, *(made.values() or (out,)))
    if made and out.is_file():
        raise ValueError(f"{out}: is a file, and --views makes a folder of one file a view")
    for given, of_keypoints in ((frames, "frames"), (positions, "positions")):
        if given is not None and kind != ".npy":
            text = f"is for arrays (.npy); {features} has the {of_keypoints} of its keypoints itself"
            raise ValueError(f"--{of_keypoints} {given}: {text}")
    inputs = _Inputs(features, pretrained.resolve(model), model, frames, positions)
    translator = Translator.load(inputs.model)
    with dry_run.several():
        for view, path in (made or {None: out}).items():
            _translate(inputs, path, kind, translator, target, descriptor, packed, view, overwrite)
    return out


@dataclasses.dataclass(frozen=True)
class _Inputs:
    """Files that a translation is made of: `model` as it was found, and as it was `named`."""

    features: Path
    model: Path
    named: Path
    frames: Path | None
    positions: Path | None


def _translate(
    inputs: _Inputs, out: Path, kind: str, translator: Translator, target: str, descriptor: str | None, packed: bool,
    view: View | None, overwrite: bool,
) -> None:  # fmt: skip
    """Makes one file; the arguments are those of `translate`, with the view that it shows."""
    features, model, frames, positions = inputs.features, inputs.model, inputs.frames, inputs.positions
    with contextlib.ExitStack() as stack:
        if kind == DATABASE:
            reader = stack.enter_context(DatabaseReader(features))
            plan = database.plan(reader, translator, descriptor, target)
            name, packed = ", ".join(plan.sources) or plan.target.name, False
        else:
            name, warnings = _source(features, descriptor, translator)
            if name == translator.spec(target).name:
                raise ValueError(f"{features}: nothing to translate: holds {name!r} already")
            packed = translator.spec(name).binary if kind == ".h5" else packed
            if kind == ".npy" and positions is None and translator.takes_context(name, target):
                raise ValueError(
                    f"{features}: {model} looks at a photo's other rows to translate {name!r}: the array must hold all "
                    "rows of one photo; give the positions of its keypoints by --positions POSITIONS.npy"
                )
        if view is not None:
            sources = (plan.sources or [plan.target.name]) if kind == DATABASE else [name]
            if not any(translator.takes_views(source, target) for source in sources):
                translator.stream(sources[0], target).check_views(str(features))
        with console.status(f"reading {features}"):
            features_hash = database_hash(features) if kind == DATABASE else input_hash(features)
        config: dict[str, Any] = {
            "stage": "translate",
            "features": features_hash,
            "model": content_hash(model),
            "source": name,
            "target": translator.spec(target).name,
            "packed": packed,
        }
        config |= {} if frames is None else {"frames": input_hash(frames)}
        config |= {} if positions is None else {"positions": input_hash(positions)}
        config |= {} if view is None else {"view": view.name}
        expected, summary = config_hash(config), out.with_name(out.name + ".json")
        found = _found_hash(out, kind, summary)
        paths = {"features": features, "model": inputs.named}
        differs = partial(changes, summary, found, config, paths, names_kept=["inputs"])
        if already_done(out, found, expected, overwrite, beside=[summary], differs=differs):
            console.up_to_date(out)
            return
        if dry_run.active():  # of several views
            return
        told = {**paths, "source": name, "target": target, "packed": packed or None}
        told |= {} if view is None else {"view": view.name}
        console.settings(f"xdesc translate -> {out}", told)
        start = time.perf_counter()
        stack.enter_context(claimed(beside(out), "xdesc translate", out))
        attributes = {"config_hash": expected, "model": model.name} | ({} if view is None else {VIEW: view.name})
        if kind == DATABASE:
            streams = database.translate_images(reader, plan, out, translator, attributes, summary, view)
            counts, warnings = plan.counts(), plan.warnings(reader)
        else:
            stream = translator.stream(name, target, packed=packed, storage=True, kept=True)
            streams = [stream]
            if kind == ".h5":
                counts = _translate_store(features, out, stream, attributes, translator.bundle.ratios, summary, view)
            else:
                counts = _translate_array(features, out, stream, summary, frames, positions, view)
    _summarise(summary, streams, counts, warnings, {**config, "inputs": paths}, time.perf_counter() - start)
    console.result(out, figures=summary)


def _suffix(features: Path) -> str:
    """Of the files that are made of these features, one a view."""
    return features.suffix if features.suffix in FORMATS else DATABASE


def _check_paths(features: Path, *outputs: Path) -> str:
    """The format of all, one of FORMATS or DATABASE."""
    if not features.exists():
        raise FileNotFoundError(f"{features}: no such file")
    if features.is_dir():
        raise ValueError(f"{features}: is a folder, expected {_EXPECTED}")
    kind = features.suffix
    if kind not in FORMATS:
        with contextlib.suppress(ValueError, FileNotFoundError):
            kind = DATABASE if is_database(features) else kind
    if kind not in (*FORMATS, DATABASE):
        raise ValueError(f"{features}: is a {kind or 'nameless'} file, expected {_EXPECTED}")
    for out in outputs:
        if kind == DATABASE and out.suffix in FORMATS:
            raise ValueError(f"{out}: {features} is a COLMAP database, so the output must be one, too")
        if kind != DATABASE and features.suffix != out.suffix:
            raise ValueError(f"{out}: {features} is a {features.suffix} file, so the output must be one, too")
        if features.resolve() == out.resolve():
            raise ValueError(f"{out}: is the input itself")
    return kind


def _source(features: Path, source: str | None, translator: Translator) -> tuple[str, list[str]]:
    """The source's name, checked against what the file says and holds, and what the file gives reason to warn of."""
    spec = translator.spec(source) if source is not None else None
    if features.suffix == ".npy":
        if spec is None:
            raise ValueError(f"{features}: an array does not say which descriptor it holds; pass --descriptor")
        return spec.name, []
    with FeatureStore(features, spec) as store:
        store.require_photos()
        found = database.known(str(features), store.spec, translator)
        for name in store.names[:1]:
            try:
                store.read(name)
            except ValueError as error:
                raise ValueError(f"{error}; the model has {translator.describe()}") from error
        return found.name, again([(store.spec, store.attributes.get(TRANSLATED_FROM))])


def _found_hash(out: Path, kind: str, summary: Path) -> str | None:
    if not out.exists():
        return None
    if kind == DATABASE:
        try:
            with DatabaseReader(out) as reader:
                return reader.attributes.get("config_hash")
        except ValueError:
            return None
    if kind == ".h5":
        return found_attribute(out, "config_hash")
    return recorded(summary)


# The old result and its summary stay until the new one is complete. Then the summary goes first: it must not
# vouch for a file that it does not describe.


def _translate_store(
    features: Path,
    out: Path,
    stream: Stream,
    attributes: dict[str, Any],
    ratios: dict[str, float],
    summary: Path,
    view: View | None,
) -> dict[str, int]:
    """Translates photo by photo; returns counts for the summary."""
    invalid = 0
    with FeatureStore(features, stream.source) as store:
        stream.check_rendered(store.attributes.get(VIEW), str(features))
        kept = {k: v for k, v in store.attributes.items() if k not in OWN_ATTRIBUTES}
        kept |= origin(store, stream.target, ratios)
        with StoreWriter(out, stream.target, kept | attributes) as writer:
            for name in console.track(store.names, "translating", "photos"):
                photo = store.read(name)
                rows = np.where(photo.valid[:, None], photo.descriptors, 0)
                where, at = f"{features}: {name!r}", None
                if stream.takes_context:
                    at = check_positions(photo.keypoints, len(photo), where, photo.image_size)
                translated = stream(rows, where=where, frames=of_features(photo), positions=at, view=view)
                writer.write(name, dataclasses.replace(photo, descriptors=translated, real=None))
                invalid += int((~photo.valid).sum())
            summary.unlink(missing_ok=True)
        return {"photos": len(store), "invalid_rows": invalid}


def _translate_array(
    features: Path, out: Path, stream: Stream, summary: Path, frames: Path | None, positions: Path | None,
    view: View | None,
) -> dict[str, int]:  # fmt: skip
    """Translates an array through memory maps; returns counts for the summary."""
    x = open_array(features)
    if not x.ndim:
        raise ValueError(f"{features}: holds a single value, expected an array [N, D]")
    given = check_frames(open_array(frames), len(x), str(frames)) if frames is not None else None
    at = check_positions(open_array(positions), len(x), str(positions)) if positions is not None else None
    spec, step = stream.target, len(x) if stream.takes_context else ROWS  # rows of a photo go together
    with atomic(out) as temporary:
        shape = (len(x), spec.stored_width)
        y = np.lib.format.open_memmap(temporary, mode="w+", dtype=spec.stored_dtype, shape=shape)
        with console.progress_bar("rows") as bar:
            task = bar.add_task("translating", total=len(y))
            for start in range(0, max(len(y), 1), max(step, 1)):
                rows = slice(start, start + max(step, 1))
                of_rows = [None if of is None else of[rows] for of in (given, at)]
                stream(
                    x[rows], y[rows], where=str(features), first_row=start, frames=of_rows[0], positions=of_rows[1],
                    view=view,
                )  # fmt: skip
                bar.advance(task, len(y[rows]))
        y.flush()
        del y
        summary.unlink(missing_ok=True)
    return {"invalid_rows": 0}


def _summarise(
    path: Path,
    streams: Sequence[Stream],
    counts: dict[str, int],
    notes: list[str],
    config: dict[str, Any],
    seconds: float,
) -> None:
    rows, zero = sum(s.rows for s in streams), sum(s.zero_rows for s in streams) - counts.get("invalid_rows", 0)
    figures = {**counts, "rows": rows, "zero_rows": zero, "seconds": round(seconds, 3)}
    found = [finding for stream in streams for finding in stream.findings()]
    warnings = notes + [text for category, text in found if category is not ZeroRowsWarning]
    if zero:
        marked = " though valid" if "invalid_rows" in counts else ""  # databases mark no row as not valid
        warnings.insert(0, f"{zero:,} of {rows:,} rows are zero{marked}; they stay zero")
    for text in warnings:
        console.warn(text)
    inputs = config.pop("inputs")
    summary = {"config": config, "config_hash": config_hash(config), "inputs": inputs, **figures, "warnings": warnings}
    write_json(path, summary)
    rate = rows / seconds if seconds > 0 else 0.0
    console.figures(f"{config['source']} -> {config['target']}", {**figures, "rows per second": round(rate)})
