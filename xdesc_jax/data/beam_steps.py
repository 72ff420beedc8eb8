"""The steps of the Beam pipeline that makes records, each a function of one photo or one shard.

In: photo names, and what reads a photo's rows. Out: the shards' files, and how many rows each photo has. Elements
between steps are names, counts, and the packed rows of some photos that go to one shard. One worker lays out all
photos; the others know those that they have in work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterable, Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from xdesc_jax.data.deal import AnyDeal
from xdesc_jax.data.places import Counted, Placed, lay_out
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.rows import RowReader
from xdesc_jax.data.schema import KEYPOINT, PHOTO, Column, row_dtype
from xdesc_jax.data.source import Columns
from xdesc_jax.data.spread import by_shard, packed
from xdesc_jax.features.images import UnreadablePhoto
from xdesc_jax.files.whole import read_json, staged, write_json

NAMES, COUNTED = "names.json", "counted.json"
HELD_BYTES = 64 << 20  # rows that wait in a worker for others of their shard
Key = tuple[str, int]  # split, shard
Block = tuple[bytes, bytes]  # numbers of rows in their split (int64), packed rows
Deals = dict[str, AnyDeal]


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
    write_json(folder / NAMES, names)  # in the pipeline's description, a million are too many for some runners
    found = (
        pipeline
        | "list" >> beam.Create([folder / NAMES])
        | "names" >> beam.FlatMap(_numbered)
        | "spread names" >> beam.Reshuffle()
        | "count" >> beam.ParDo(CountRows(reader, settings))
    )
    listed = found | "list counts" >> beam.combiners.ToList()
    _ = listed | "keep counts" >> beam.Map(_write_counted, folder / COUNTED)
    layout = listed | "plan" >> beam.Map(lay_out, settings, strict)
    deals = beam.pvalue.AsSingleton(layout | "deals" >> beam.Map(operator.attrgetter("deals")))
    _ = (
        layout
        | "photos" >> beam.FlatMap(operator.attrgetter("photos"))
        | "spread photos" >> beam.Reshuffle()
        | "deal" >> beam.ParDo(DealRows(reader, settings, columns), deals)
        | "by shard" >> beam.GroupByKey()
        | "write" >> beam.ParDo(WriteShard(folder, columns), deals)
    )


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    yield from enumerate(read_json(path))


def _write_counted(photos: list[Counted], path: Path) -> None:
    with staged(path) as temporary:
        write_json(temporary, sorted(map(dataclasses.asdict, photos), key=lambda fields: fields["index"]))


def shard_name(split: str, shard: int, deal: AnyDeal) -> str:
    """Name of a shard's file."""
    from xdesc_jax.data import builder  # tensorflow, where it is needed anyway

    return builder.file_name(split, shard, deal.shards)


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
    """`Placed` -> blocks: the rows that go to the same shard, of as many photos of a bundle as are held at once."""

    def __init__(self, reader: RowReader, settings: RecordSettings, columns: dict[str, Column]):
        super().__init__(reader, settings)
        self._dtype = row_dtype(columns)

    def start_bundle(self) -> None:
        self._held: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}  # by split; see `process`
        self._bytes = 0

    def process(self, photo: Placed, deals: Deals) -> Iterator[tuple[Key, Block]]:
        rows = self._kept(photo.name)
        if (count := len(rows[KEYPOINT])) != photo.rows:
            raise ValueError(f"{photo.name}: has {count} rows, had {photo.rows}; it has changed during the run")
        rows[PHOTO] = np.full(count, photo.index, np.int32)
        records, end = packed(rows, self._dtype), photo.before + count
        shards = deals[photo.split].shard_of(photo.before, end)
        self._held.setdefault(photo.split, []).append((shards, np.arange(photo.before, end), records))
        self._bytes += records.nbytes
        if self._bytes >= HELD_BYTES:
            yield from self._blocks()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for block in self._blocks():
            yield WindowedValue(block, window.max_timestamp(), (window,))

    def _blocks(self) -> Iterator[tuple[Key, Block]]:
        """The rows that are held, and no longer are."""
        numbered = np.dtype([("number", np.int64), ("row", self._dtype)])
        for split, held in self._held.items():
            shards = np.concatenate([of for of, _, _ in held])
            rows = np.empty(len(shards), numbered)
            np.concatenate([number for _, number, _ in held], out=rows["number"])
            np.concatenate([records for _, _, records in held], out=rows["row"])
            for shard, part in by_shard(rows, shards):
                yield (split, shard), (part["number"].tobytes(), part["row"].tobytes())
        self.start_bundle()


class WriteShard(beam.DoFn):
    """(shard, its blocks in any order) -> a file below `folder`."""

    def __init__(self, folder: Path, columns: dict[str, Column]):
        self._folder, self._columns = folder, columns

    def process(self, shard: tuple[Key, Iterable[Block]], deals: Deals) -> None:
        from xdesc_jax.data import builder

        (split, index), blocks = shard
        deal, found = deals[split], list(blocks)
        numbers = np.frombuffer(b"".join(part for part, _ in found), np.int64)
        rows = np.frombuffer(b"".join(part for _, part in found), row_dtype(self._columns))
        if len(rows) != (expected := deal.rows_of(index)):
            raise ValueError(f"shard {index} of {split} has {len(rows)} rows, expected {expected}")
        rows = rows[np.argsort(numbers)[deal.order(index)]]
        with staged(self._folder / shard_name(split, index, deal)) as temporary:
            builder.write_shard(temporary, self._columns, {name: rows[name] for name in self._columns})
