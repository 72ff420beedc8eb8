"""The steps of the Beam pipeline that makes records, each a function of one photo or one shard.

In: photo names, and what reads a photo's rows. Out: the shards' files, and how many rows each photo has. Elements
between steps are names, counts, and the packed rows of a photo that go to one shard.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np

from xdesc_jax.data.places import Counted, Layout, lay_out
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.rows import RowReader
from xdesc_jax.data.schema import KEYPOINT, PHOTO, Column, row_dtype
from xdesc_jax.data.source import Columns
from xdesc_jax.data.spread import Deal, by_shard, packed
from xdesc_jax.features.images import UnreadablePhoto
from xdesc_jax.files.whole import staged, write_json

COUNTED = "counted.json"
Key = tuple[str, int]  # split, shard
Block = tuple[int, bytes]  # rows of the split before it, packed rows


def add_steps(
    pipeline: beam.Pipeline,
    names: list[str],
    reader: RowReader,
    settings: RecordSettings,
    columns: dict[str, Column],
    folder: Path,
    strict: bool,
) -> None:
    """Adds what makes the shards of records to a pipeline.

    Args:
        pipeline: an empty one.
        names: the photos, sorted.
        reader: has the rows of each.
        settings: split and shards.
        columns: of the rows.
        folder: receives the shards, and what was counted, as JSON.
        strict: write no shard if a photo cannot be read.
    """
    found = (
        pipeline
        | "names" >> beam.Create(list(enumerate(names)))
        | "spread names" >> beam.Reshuffle()
        | "count" >> beam.ParDo(CountRows(reader, settings))
    )
    listed = found | "list counts" >> beam.combiners.ToList()
    _ = listed | "keep counts" >> beam.Map(_write_counted, folder / COUNTED)
    layout = beam.pvalue.AsSingleton(listed | "plan" >> beam.Map(lay_out, settings, strict))
    _ = (
        found
        | "spread photos" >> beam.Reshuffle()
        | "deal" >> beam.ParDo(DealRows(reader, settings, columns), layout)
        | "by shard" >> beam.GroupByKey()
        | "write" >> beam.ParDo(WriteShard(folder, columns), layout)
    )


def _write_counted(photos: list[Counted], path: Path) -> None:
    with staged(path) as temporary:
        write_json(temporary, sorted(map(dataclasses.asdict, photos), key=lambda fields: fields["index"]))


def shard_name(split: str, shard: int, deal: Deal) -> str:
    """Name of a shard's file."""
    from xdesc_jax.data import builder  # tensorflow, where it is needed anyway

    return builder.file_name(split, shard, len(deal.shard_rows))


class _Rows(beam.DoFn):
    """Has the kept rows of any photo."""

    def __init__(self, reader: RowReader, settings: RecordSettings):
        self._reader, self._settings = reader, settings

    def setup(self) -> None:
        self._open = contextlib.ExitStack()
        self._read = self._open.enter_context(self._reader.open())

    def teardown(self) -> None:
        self._open.close()

    def _kept(self, name: str) -> Columns:
        rows = self._read(name)
        keep = self._settings.keep(len(rows[KEYPOINT]), name)
        return {column: values[keep] for column, values in rows.items()}


class CountRows(_Rows):
    """(index, name) of a photo -> `Counted`; extracts it, where it comes from photos.

    What is wrong with a photo is passed on: it would be the same the next time. All other errors are the runner's,
    which tries again.
    """

    def process(self, photo: tuple[int, str]) -> Iterator[Counted]:
        try:
            yield Counted(*photo, rows=len(self._kept(photo[1])[KEYPOINT]))
        except UnreadablePhoto as error:
            yield Counted(*photo, unreadable=str(error))
        except ValueError as error:
            yield Counted(*photo, error=str(error))


@beam.typehints.with_output_types(tuple[Key, Block])
class DealRows(_Rows):
    """`Counted` -> blocks: the rows of a photo that go to the same shard."""

    def __init__(self, reader: RowReader, settings: RecordSettings, columns: dict[str, Column]):
        super().__init__(reader, settings)
        self._dtype = row_dtype(columns)

    def process(self, photo: Counted, layout: Layout) -> Iterator[tuple[Key, Block]]:
        if photo.name not in layout.places:
            return
        split, before, expected = layout.places[photo.name]
        rows = self._kept(photo.name)
        if (count := len(rows[KEYPOINT])) != expected:
            raise ValueError(f"{photo.name}: has {count} rows, had {expected}; it has changed during the run")
        rows[PHOTO] = np.full(count, photo.index, np.int32)
        shards = _shard_of_row(layout.deals[split])[before : before + count]
        for shard, part in by_shard(packed(rows, self._dtype), shards):
            yield (split, shard), (before, part.tobytes())


@functools.lru_cache(maxsize=2)  # one a split; millions of rows take a second
def _shard_of_row(deal: Deal) -> np.ndarray:
    return deal.shard_of_row()


class WriteShard(beam.DoFn):
    """(shard, its blocks in any order) -> a file below `folder`."""

    def __init__(self, folder: Path, columns: dict[str, Column]):
        self._folder, self._columns = folder, columns

    def process(self, shard: tuple[Key, Iterable[Block]], layout: Layout) -> None:
        from xdesc_jax.data import builder

        (split, index), blocks = shard
        deal = layout.deals[split]
        rows = np.frombuffer(b"".join(data for _, data in sorted(blocks)), row_dtype(self._columns))
        if len(rows) != (expected := deal.shard_rows[index]):
            raise ValueError(f"shard {index} of {split} has {len(rows)} rows, expected {expected}")
        rows = rows[deal.order(index)]
        with staged(self._folder / shard_name(split, index, deal)) as temporary:
            builder.write_shard(temporary, self._columns, {name: rows[name] for name in self._columns})
