"""The stage `xdesc records`: photos, or aligned feature files, to a records folder for training.

In: photos (patches and descriptors are computed) or two or more feature files of the same keypoints. Out: a
folder in the 'tfds' or 'npy' format with a train and a validation split, split by photo. The folder appears
when it is complete; extraction that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console
from xdesc_jax.data import columns as npy_format
from xdesc_jax.data.origin import Origin
from xdesc_jax.data.plan import Plan, RecordSettings, plan_rows
from xdesc_jax.data.rows import RowSource
from xdesc_jax.data.schema import FILE, KEYPOINT, PHOTO, Column, RecordInfo, columns_of
from xdesc_jax.data.spread import Spreader
from xdesc_jax.files.whole import already_done, atomic, config_hash, read_json

# (out, source, work, settings, config), see `build`.
Build = Callable[[Path, Any, Path, RecordSettings, dict[str, Any]], RecordInfo]


def records(
    out: Path,
    *,
    photos: Path | None = None,
    paired: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    keypoints: str = "colmap",
    first_octave: int = -1,
    max_keypoints: int | None = None,
    weights: tuple[str, ...] = (),
    patches: bool = True,
    format: Literal["tfds", "npy"] = "tfds",
    validation_share: float = 0.1,
    seed: int = 0,
    max_rows_per_photo: int | None = None,
    rows_per_shard: int = 16384,
    processes: int = 1,
    overwrite: bool = False,
    strict: bool = False,
) -> RecordInfo:
    """Makes training records of aligned descriptors, from photos or from feature files.

    Args:
        out: the folder to make; `xdesc train --data` takes it.
        photos: folder of photos, with any sub-folders.
        paired: instead of photos, two or more feature files of the same keypoints.
        descriptors: with photos, what to compute (brief and sift where not given); with feature files, what
            they hold, in order, where they do not say.
        keypoints: of photos: 'colmap' or 'opencv' (SIFT detectors), or a feature file or COLMAP database.
        first_octave: of COLMAP's detector; -1 doubles the photo first, 0 does not.
        max_keypoints: of a photo: keep the strongest.
        weights: of learned descriptors, as NAME=FILE, where they are neither shipped nor installed.
        patches: keep the patches of photos, to train with augmentation or other descriptors.
        format: tfds (TFRecord shards, a TensorFlow dataset directory) or npy (read without tensorflow).
        validation_share: share of the photos whose rows are kept for validation.
        seed: of the split, of the choice of rows and of their order.
        max_rows_per_photo: keep at most so many rows of a photo, drawn at random (from photos: of the keypoints whose
            patch is usable, so that a row without some other descriptor leaves one less).
        rows_per_shard: the most rows of a shard; readers hold a few shards in memory.
        processes: that extract from photos.
        overwrite: make the folder anew even if it is there.
        strict: stop at a photo that cannot be read, instead of leaving it out.

    Raises:
        ValueError: settings out of range, feature files that do not match, or no valid row.
        FileExistsError: `out` holds something else.
    """
    origin = Origin(photos, paired, descriptors, keypoints, first_octave, max_keypoints, weights, patches)
    settings = RecordSettings(format, validation_share, seed, max_rows_per_photo, rows_per_shard)
    work = work_folder(out)
    with origin.open(work / "parts", max_rows_per_photo, seed, processes, strict) as source:
        shown = {"from": origin, "out": out, "found": f"{len(source.names)} photos"}
        return make("records", shown, out, source, work, settings, overwrite)


def work_folder(out: Path) -> Path:
    """Where the temporary files of records at `out` lie until they are complete."""
    return out.with_name(f".{out.name}.work")


def make(
    title: str,
    shown: dict[str, Any],
    out: Path,
    source: RowSource,
    work: Path,
    settings: RecordSettings,
    overwrite: bool,
    builder: Build | None = None,
) -> RecordInfo:
    """Prints the settings, and writes the rows of `source` as `out` unless they are there.

    Args:
        title, shown: printed before the settings.
        out, source, work, settings: as for `build`; `work` is removed.
        overwrite: make the folder anew even if it is there.
        builder: what writes them; None: `build`, in this process.

    Raises:
        ValueError, FileExistsError: as `build` and `is_finished`.
    """
    config = {**dataclasses.asdict(settings), **source.config}
    console.settings(title, {**shown, **config})
    if is_finished(out, config, overwrite):
        console.out.print(f"{out} is finished", markup=False)
        return RecordInfo.load(out)
    info = (builder or build)(out, source, work, settings, config)
    shutil.rmtree(work)
    summarize(info)
    return info


def is_finished(out: Path, config: dict[str, Any], overwrite: bool) -> bool:
    """Whether `out` holds these very records.

    Raises:
        FileExistsError: it holds other records and `overwrite` is off, or something that is not records.
    """
    if not out.exists():
        return False
    if not (out / FILE).exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(f"{out}: exists and is not a records folder; choose another output")
    if not (out / FILE).exists():
        return False
    return already_done(out, read_json(out / FILE).get("config_hash"), config_hash(config), overwrite)


def summarize(info: RecordInfo) -> None:
    """Prints rows and shards of each split."""
    rows = [(split, count, len(info.shards[split])) for split, count in info.counts.items()]
    size_mib = sum(info.files.values()) / 2**20
    title = f"{info.path}: {', '.join(info.columns)}; {len(info.photos)} photos, {size_mib:.1f} MiB"
    console.table(title, ("split", "rows", "shards"), rows)


def build(out: Path, source: RowSource, work: Path, settings: RecordSettings, config: dict[str, Any]) -> RecordInfo:
    """Writes the rows of `source` as a records folder, which appears at `out` when it is complete.

    Args:
        out: the folder to make; replaced where it exists.
        source: gives the rows photo by photo; it is gone through twice, to count and to write.
        work: for temporary files, removed by the caller.
        settings: format, split and shards.
        config: kept in the folder, to tell it from others.

    Raises:
        ValueError: no photo has a valid row.
    """
    counts = {}
    for name, rows in console.track(source.rows(), source.action, "photos", len(source.names)):
        counts[name] = len(settings.keep(len(rows[KEYPOINT]), name))
    plan = plan_rows(source.names, counts, settings)
    warn_without_rows(source.names, plan)
    columns = columns_of(source.specs, source.has_patches, source.has_pairs)
    spreaders = {split: Spreader(work / split, columns, deal) for split, deal in plan.deals.items()}
    _spread(source, settings, plan.split_of, spreaders)

    def write(folder: Path) -> None:
        _write_data(folder, settings.format, columns, spreaders)

    return publish(out, work, write, source, settings.format, plan, config)


def warn_without_rows(names: Sequence[str], plan: Plan) -> None:
    """Warns of those photos that have no row."""
    if without := [name for name in names if name not in plan.split_of]:
        console.warn(f"{len(without)} of {len(names)} photos have no valid row, first {without[:5]}")


def publish(
    out: Path,
    work: Path,
    write: Callable[[Path], None],
    source: RowSource,
    format: Literal["tfds", "npy"],
    plan: Plan,
    config: dict[str, Any],
) -> RecordInfo:
    """Puts the data files of records into a folder with their metadata, and the folder in its place.

    Args:
        out: the folder to make; replaced where it exists.
        work: for the folder until it is complete.
        write: puts the data files into a folder.
        source: what the rows came from.
        format: of the data files.
        plan: that they were written by.
        config: kept in the folder, to tell it from others.
    """
    shards = {split: tuple(deal.shard_rows) for split, deal in plan.deals.items()}
    with atomic(work / "dataset") as folder:
        folder.mkdir()
        write(folder)
        if format == "tfds":
            from xdesc_jax.data import builder

            columns = columns_of(source.specs, source.has_patches, source.has_pairs)
            builder.write_metadata(folder, columns, shards)
        info = RecordInfo(
            path=folder,
            format=format,
            specs=source.specs,
            shards=shards,
            has_patches=source.has_patches,
            photos=tuple(source.names),
            config=config,
            files={file.name: file.stat().st_size for file in sorted(folder.iterdir())},
            has_pairs=source.has_pairs,
        )
        info.save()
    with atomic(out) as folder:
        os.replace(work / "dataset", folder)
    return RecordInfo.load(out)


def _spread(
    source: RowSource,
    settings: RecordSettings,
    split_of: Mapping[str, str],
    spreaders: Mapping[str, Spreader],
) -> None:
    photo_of = {name: index for index, name in enumerate(source.names)}
    for name, rows in console.track(source.rows(), "sorting", "photos", len(source.names)):
        if name in split_of:
            keep = settings.keep(len(rows[KEYPOINT]), name)
            kept = {column: values[keep] for column, values in rows.items()}
            kept[PHOTO] = np.full(len(keep), photo_of[name], np.int32)
            spreaders[split_of[name]].add(kept)


def _write_data(folder: Path, format: str, columns: Mapping[str, Column], spreaders: Mapping[str, Spreader]) -> None:
    write_split = npy_format.write_split
    if format == "tfds":
        from xdesc_jax.data import builder

        write_split = builder.write_split
    for split, spreader in spreaders.items():
        rows = spreader.shard_rows
        if rows:
            shards = console.track(spreader.shards(), f"writing {split}", "shards", len(rows))
            write_split(folder, split, columns, rows, shards)
