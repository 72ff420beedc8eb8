"""The stage `xdesc records-beam`: records as `xdesc records` makes them, by an Apache Beam pipeline.

In: photos, or aligned feature files, in a folder that all workers see under the same path. Out: the same records
folder, byte for byte, as the stage `records` writes from them on machines of one kind. Photos need no feature files:
extraction is the first step. The pipeline:

    names -> extract or read, count -> plan: split, rows before each photo, deal of rows to shards
                     |                              | side input
                     +-> read the kept features ----+-> blocks (photo, shard) -> by shard -> order -> one file a shard

Features of finished photos are kept beside the output until it is complete, in the very files that `records` keeps,
so that either stage goes on where the other was stopped. A bundle of work that a runner tries again, or twice at
once, writes the same files, each under its name only when it is whole.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineState

from xdesc_jax import console
from xdesc_jax.data.beam_steps import COUNTED, add_steps, shard_name
from xdesc_jax.data.origin import Origin
from xdesc_jax.data.places import Counted, plan_counted
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.records import make, publish, warn_without_rows, work_folder
from xdesc_jax.data.rows import ReadableSource
from xdesc_jax.data.schema import RecordInfo, columns_of
from xdesc_jax.files.whole import read_json

LOCAL = "DirectRunner"


def records_beam(
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
    runner: str = LOCAL,
    beam_options: tuple[str, ...] = (),
) -> RecordInfo:
    """Makes the records of `xdesc records` by an Apache Beam pipeline, on this machine or a cluster.

    Workers read the photos or feature files, and write OUT and .OUT.work beside it, under the same paths as here: on a
    cluster all of them lie on a shared file system. Workers need this package with the extras of this stage, and
    weights that are not shipped are named by --weights. All rows pass through the runner; that of one machine holds
    them in memory, about five times the size of the records. `xdesc records` does not.

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
        format: tfds; npy is refused, see `xdesc records`.
        validation_share: share of the photos whose rows are kept for validation.
        seed: of the split, of the choice of rows and of their order.
        max_rows_per_photo: keep at most so many rows of a photo, drawn at random.
        rows_per_shard: the most rows of a shard.
        processes: worker processes of the DirectRunner; other runners have options for it.
        overwrite: make the folder anew even if it is there.
        strict: stop at a photo that cannot be read, instead of leaving it out.
        runner: DirectRunner (this machine), FlinkRunner, SparkRunner, DataflowRunner, or another that Beam knows.
        beam_options: passed to Beam, as NAME=VALUE or NAME.

    Raises:
        ValueError: settings out of range, feature files that do not match, no valid row, or the npy format.
        FileExistsError: `out` holds something else.
        OSError: the pipeline failed, or its workers do not see the same files.
    """
    origin = Origin(photos, paired, descriptors, keypoints, first_octave, max_keypoints, weights, patches)
    settings = RecordSettings(format, validation_share, seed, max_rows_per_photo, rows_per_shard)
    if format != "tfds":
        raise ValueError(f"format is {format!r}, a pipeline writes 'tfds' alone; `xdesc records` also writes 'npy'")
    options = _options(runner, processes, beam_options)
    work = work_folder(out)
    with origin.open(work / "parts", max_rows_per_photo, seed, strict=strict) as source:
        shown = {"from": origin, "out": out, "found": f"{len(source.names)} photos"}
        shown |= {"runner": runner, "beam options": " ".join(options)}
        build = functools.partial(build_by_pipeline, runner=runner, options=options, strict=strict)
        return make("records-beam", shown, out, source, work, settings, overwrite, build)


def _options(runner: str, processes: int, words: tuple[str, ...]) -> list[str]:
    if processes < 1:
        raise ValueError(f"processes is {processes}, expected at least 1")
    if processes > 1 and runner != LOCAL:
        raise ValueError(f"processes is {processes}, but {runner} has Beam's options for that; expected 1")
    options = [word if word.startswith("-") else f"--{word}" for word in words]
    if named := [word for word in options if word.split("=")[0] == "--runner"]:
        raise ValueError(f"beam options hold {named[0]}; name the runner by --runner alone")
    if processes == 1:
        return options
    return [f"--direct_num_workers={processes}", "--direct_running_mode=multi_processing", *options]


def build_by_pipeline(
    out: Path,
    source: ReadableSource,
    work: Path,
    settings: RecordSettings,
    config: dict[str, Any],
    *,
    runner: str,
    options: list[str],
    strict: bool,
) -> RecordInfo:
    """Writes the rows of `source` as a records folder, which appears at `out` when it is complete.

    Args:
        out, source, work, settings, config: as for `records.build`.
        runner: its name.
        options: Beam's, each beginning with '--'.
        strict: stop at a photo that cannot be read.

    Raises:
        ValueError: no photo has a valid row, or one stops the run.
        OSError: the pipeline failed, or its workers do not see the same files.
    """
    pipeline = beam.Pipeline(
        # Beam's own DirectRunner begins with a download of a runner in Go. This is the one it falls back to.
        runner=FnApiRunner() if runner == LOCAL else runner,
        options=PipelineOptions(options),
    )
    columns = columns_of(source.specs, source.has_patches, source.has_pairs)
    shards = work.absolute() / "shards"
    shutil.rmtree(shards, ignore_errors=True)
    shards.mkdir(parents=True)
    counted = shards / COUNTED
    add_steps(pipeline, source.names, source.reader(), settings, columns, shards, strict)
    _run(pipeline, runner, work)
    if not counted.exists():
        raise OSError(f"{counted}: the pipeline ended without it; do its workers see this folder?")
    photos = [Counted(**fields) for fields in read_json(counted)]
    for photo in photos:
        if reason := photo.stops(strict):
            raise ValueError(reason)
        if photo.unreadable:
            console.warn(f"left out: {photo.unreadable}")
    plan = plan_counted(photos, settings)
    warn_without_rows(source.names, plan)

    def move(folder: Path) -> None:
        for split, deal in plan.deals.items():
            for shard in range(len(deal.shard_rows)):
                name = shard_name(split, shard, deal)
                if not (shards / name).exists():
                    raise OSError(f"{shards / name}: the pipeline ended without it; do its workers see this folder?")
                os.replace(shards / name, folder / name)

    return publish(out, work, move, source, settings.format, plan, config)


def _run(pipeline: beam.Pipeline, runner: str, work: Path) -> None:
    console.out.print(f"running the pipeline on {runner}", markup=False)
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # each runner has its own, and most hold a worker's traceback
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise OSError(f"the pipeline failed on {runner}: {last} (finished photos are kept in {work})") from error
    if state not in (None, PipelineState.DONE):
        raise OSError(f"the pipeline on {runner} ended as {state} (finished photos are kept in {work})")
