"""Records by an Apache Beam pipeline, for `xdesc records --beam`.

In: photos, or aligned feature files, in a folder that all workers see under the same path. Out: the same records
folder, byte for byte, as `build.build` writes from them on machines of one kind. Photos need no feature files:
extraction is the first step. The pipeline:

    names -> extract or read, count -> plan: split, deal of rows to shards, rows before each photo
                                                    | side input                  |
              one file a shard <- order <- by shard <- blocks (shard) <- read the kept features

Features of finished photos are kept beside the output until it is complete, in the very files that `xdesc records`
keeps without --beam, so that either goes on where the other was stopped. A bundle of work that a runner tries again,
or twice at once, writes the same files, each under its name only when it is whole.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineState

from xdesc_jax import console
from xdesc_jax.data.beam_steps import COUNTED, add_steps, shard_name
from xdesc_jax.data.build import LOCAL, publish, warn_without_rows
from xdesc_jax.data.places import Counted, plan_counted
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.rows import ReadableSource, columns_from
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.files.whole import read_json

PAUSE = 20


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """What makes records in place of `build.build`; the fields are arguments of `records.records`.

    Raises:
        ValueError: processes out of range or of a runner that has options for them, or a runner among the options.
    """

    runner: str
    processes: int
    beam_options: tuple[str, ...]
    strict: bool

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ValueError(f"processes is {self.processes}, expected at least 1")
        if self.processes > 1 and self.runner != LOCAL:
            raise ValueError(
                f"processes is {self.processes}, but {self.runner} has Beam's options for that; expected 1"
            )
        if named := [word for word in self.options if word.split("=")[0] == "--runner"]:
            raise ValueError(f"beam options hold {named[0]}; name the runner by --runner alone")

    @property
    def options(self) -> list[str]:
        """Beam's options, each beginning with '--'."""
        options = [word if word.startswith("-") else f"--{word}" for word in self.beam_options]
        if self.processes == 1:
            return options
        return [f"--direct_num_workers={self.processes}", "--direct_running_mode=multi_processing", *options]

    def build(
        self, out: Path, source: ReadableSource, work: Path, settings: RecordSettings, config: dict[str, Any]
    ) -> RecordInfo:
        """Writes the rows of `source` as a records folder, as `build.build` does.

        Raises:
            ValueError: no photo has a valid row, or one stops the run.
            OSError: the pipeline failed, or its workers do not see the same files.
        """
        pipeline = beam.Pipeline(
            # Beam's own DirectRunner begins with a download of a runner in Go. This is the one it falls back to.
            runner=FnApiRunner() if self.runner == LOCAL else self.runner,
            options=PipelineOptions(self.options),
        )
        columns = columns_from(source)
        shards = work.absolute() / "shards"
        shutil.rmtree(shards, ignore_errors=True)
        shards.mkdir(parents=True)
        add_steps(pipeline, source.names, source.reader(), settings, columns, shards, self.strict)
        _run(pipeline, self.runner, work, len(source.names))
        photos = [Counted(**fields) for fields in read_json(_written(shards / COUNTED))]
        for photo in photos:
            if reason := photo.stops(self.strict):
                raise ValueError(reason)
            if photo.unreadable:
                console.warn(f"left out: {photo.unreadable}")
        plan = plan_counted(photos, settings)
        readable = [photo.name for photo in photos if not photo.unreadable]  # the others have been told
        warn_without_rows(readable, plan, source.unit, settings)

        def move(folder: Path) -> None:
            for split, deal in plan.deals.items():
                for shard in range(deal.shards):
                    name = shard_name(split, shard, deal)
                    os.replace(_written(shards / name), folder / name)

        return publish(out, work, move, source, settings.format, plan, config)


def paced(text: Callable[[], str], clock: Callable[[], float]) -> Callable[[], str]:
    """`text`, but the last one again for `PAUSE` times as long as that took: a million files are not found at once."""
    last, due = "", -math.inf

    def again() -> str:
        nonlocal last, due
        if (start := clock()) >= due:
            last = text()
            due = (end := clock()) + PAUSE * (end - start)
        return last

    return again


def _run(pipeline: beam.Pipeline, runner: str, work: Path, photos: int) -> None:
    @functools.partial(paced, clock=time.monotonic)
    def progress() -> str:
        # Counters of a runner come when it is done, of some never; all write their files here.
        extracted = sum(1 for _ in (work / "parts").glob("**/*.npz"))
        written = sum(1 for path in (work / "shards").glob("*tfrecord*"))
        found = f", {extracted:,} of {photos:,} photos extracted" if extracted else ""
        counted = ", all rows counted" if (work / "shards" / COUNTED).exists() else ""
        return f"the pipeline runs{found}{counted}, {console.counted(written, 'shard')} written"

    console.info(f"running the pipeline on {runner}")
    try:
        with console.status(progress):
            state = pipeline.run().wait_until_finish()
    except Exception as error:  # each runner has its own, and most hold a worker's traceback
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise OSError(f"the pipeline failed on {runner}: {last} (finished photos are kept in {work})") from error
    if state not in (None, PipelineState.DONE):
        raise OSError(f"the pipeline on {runner} ended as {state} (finished photos are kept in {work})")


def _written(path: Path) -> Path:
    if not path.exists():
        raise OSError(f"{path}: the pipeline ended without it; do its workers see this folder?")
    return path
