"""Rows -> a records folder, which appears when it is complete.

In: a source of rows, and settings. Out: a folder in the 'tfds' or 'npy' format with a train and a validation split,
unless these very records are there already.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console
from xdesc_jax.data import columns as npy_format
from xdesc_jax.data.deal import DEAL_VERSION
from xdesc_jax.data.plan import Plan, RecordSettings, plan_rows
from xdesc_jax.data.rows import RowSource, columns_from
from xdesc_jax.data.schema import FILE, KEYPOINT, PHOTO, Column, RecordInfo
from xdesc_jax.data.spread import Spreader
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.whole import already_done, atomic, config_hash, making, recorded

LOCAL = "DirectRunner"  # Beam's name for a pipeline that runs on this machine
# (out, source, work, settings, config), see `build`.
Build = Callable[[Path, Any, Path, RecordSettings, dict[str, Any]], RecordInfo]


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
    builder: Build,
    stage: Callable[..., Any],
) -> RecordInfo:
    """Prints the settings, and writes the rows of `source` as `out` unless they are there.

    Args:
        title, shown: printed before the settings.
        out, source, work, settings: as for `build`; `work` is removed.
        overwrite: make the folder anew even if it is there.
        builder: what writes them.
        stage: whose arguments have defaults, which are not printed.

    Raises:
        ValueError, FileExistsError: as `build` and `is_finished`; a name that cannot be split as the settings ask.
        InUse: another process makes them.
    """
    settings.check_names(source.names)
    config = {**settings.config(), "deal": DEAL_VERSION, **source.config}
    console.settings(f"xdesc {title} -> {out}", {**shown, "": settings}, stage)
    if is_finished(out, config, overwrite):
        console.up_to_date(out)
        return RecordInfo.load(out)
    with claimed(beside(out), f"xdesc {title}", out):
        info = builder(out, source, work, settings, config)
        shutil.rmtree(work)
    summarize(info)
    console.result(out)
    return info


def is_finished(out: Path, config: dict[str, Any], overwrite: bool) -> bool:
    """Whether `out` holds these very records.

    Raises:
        FileExistsError: it holds other records and `overwrite` is off, or something that is not records.
    """
    if not out.exists():
        making(out)
        return False
    if not (out / FILE).exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(f"{out}: exists and is not a records folder; choose another output")
    if not (out / FILE).exists():
        making(out)
        return False
    found = recorded(out / FILE)
    differs = partial(changes, out / FILE, found, config)
    return already_done(out, found, config_hash(config), overwrite, differs=differs)


def summarize(info: RecordInfo) -> None:
    """Prints rows and shards of each split."""
    rows = [(split, count, len(info.shards[split])) for split, count in info.counts.items()]
    size_mib = sum(info.files.values()) / 2**20
    console.table(f"{', '.join(info.columns)}; {size_mib:,.1f} MiB", ("split", "rows", "shards"), rows)


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
    for name, rows in console.track(source.rows(), source.action, source.unit, len(source.names)):
        counts[name] = len(settings.keep(len(rows[KEYPOINT]), name))
    plan = plan_rows(source.names, counts, settings, source.unit)
    warn_without_rows(list(counts), plan, source.unit, settings)  # what was left out has been told
    columns = columns_from(source)
    with contextlib.ExitStack() as stack:
        spreaders = {
            split: stack.enter_context(Spreader(work / split, columns, deal)) for split, deal in plan.deals.items()
        }
        _spread(source, settings, plan.split_of, spreaders, len(counts))

        def write(folder: Path) -> None:
            _write_data(folder, settings.format, columns, spreaders)

        return publish(out, work, write, source, settings.format, plan, config)


def warn_without_rows(names: Sequence[str], plan: Plan, unit: str, settings: RecordSettings) -> None:
    """Warns of those photos, or places, that have no row, and of a split that has none."""
    splits = set(plan.split_of.values())
    if len(splits) == 1 and settings.validation_share > 0:
        whole = "folders" if settings.split_by == "folder" else unit
        console.warn(f"all rows are in {splits.pop()}: {whole} are not divided, and training asks for two or more")
    if without := [name for name in names if name not in plan.split_of]:
        console.warn(f"{len(without)} of {len(names)} {unit} have no valid row, first {without[:5]}")


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

            columns = columns_from(source)
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
            has_points=source.has_points,
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
    photos: int,
) -> None:
    photo_of = {name: index for index, name in enumerate(source.names)}
    for name, rows in console.track(source.rows(), "sorting", source.unit, photos):
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
