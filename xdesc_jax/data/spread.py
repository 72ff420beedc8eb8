"""Spreads rows over shards at random, in bounded memory, few open files and sequential writes.

In: rows photo by photo, and their deal. Out: balanced shards, each a random sample of all rows in random order (or of
all photos). A reader can then read whole shards and still see a mixture. There may be far more shards than a process
may have files open, so rows go to files of many shards first, and from each of these to files of fewer: a file is
opened once to be written and once to be read, however many photos there are.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.data.deal import AnyDeal
from xdesc_jax.data.schema import Column, row_dtype
from xdesc_jax.data.source import Columns
from xdesc_jax.files.whole import full_told

FILES = 256  # written at the same time for a split; a process may commonly have 1024 open
BUFFER_BYTES = 64 << 10  # of each
CHUNK_BYTES = 16 << 20  # of a file of many shards, in memory at once


def packed(rows: Columns, dtype: np.dtype) -> np.ndarray:
    """The columns of n rows as one array [n] of `schema.row_dtype`."""
    records = np.empty(len(next(iter(rows.values()))), dtype)
    for name in dtype.names or ():
        records[name] = rows[name]
    return records


def by_shard(records: np.ndarray, shards: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (shard, its rows in their order) for packed rows [n] and the shard of each, int [n]."""
    order = np.argsort(shards, kind="stable")
    records, shards = records[order], shards[order]
    for shard, start, end in zip(*_runs(shards), strict=True):
        yield shard, records[start:end]


class Spreader:
    """Deals rows to shards by way of raw files; use as a context manager, which closes them.

    Args:
        folder: for the raw files; made anew.
        columns: of the rows.
        deal: how many rows will come, and where they go.

    Attributes:
        shard_rows: rows of each shard.
    """

    def __init__(self, folder: Path, columns: Mapping[str, Column], deal: AnyDeal):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._dtype = row_dtype(columns)
        self._deal = deal
        self.shard_rows = deal.shard_rows
        self._files = _Files(folder, range(deal.shards), np.dtype([("shard", np.int32), ("row", self._dtype)]))
        self._added = 0

    def __enter__(self) -> Spreader:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def add(self, rows: Columns) -> None:
        """Takes the rows of one photo, {column: [n, ...]}."""
        records = packed(rows, self._dtype)
        start, self._added = self._added, self._added + len(records)
        assert self._added <= self._deal.rows, "more rows than announced"
        self._files.write(records, self._deal.shard_of(start, self._added))

    def shards(self) -> Iterator[Columns]:
        """Yields the shards in order, each in the order of its deal, and removes their raw files."""
        assert self._added == self._deal.rows, "fewer rows than announced"
        for shard, rows in self._files.shards():
            assert len(rows) == self.shard_rows[shard], f"shard {shard} has {len(rows)} rows"
            rows = rows[self._deal.order(shard)]
            yield {name: rows[name] for name in self._dtype.names or ()}


class _Files:
    """The rows of a range of shards, in at most `FILES` raw files that are open until all rows are there.

    Args:
        folder: of the files.
        shards: whose rows they are.
        dtype: of a row in a file: its `shard`, and the packed `row`.
    """

    def __init__(self, folder: Path, shards: range, dtype: np.dtype):
        self._folder, self._dtype, self._first = folder, dtype, shards.start
        self._each = 1  # shards of a file
        while len(shards) > FILES * self._each:
            self._each *= FILES
        self._parts = [shards[i : i + self._each] for i in range(0, len(shards), self._each)]
        self._paths = [folder / f"{part.start:07d}-{part.stop - 1:07d}.rows" for part in self._parts]
        with contextlib.ExitStack() as stack:
            self._open = [stack.enter_context(open(path, "wb", buffering=BUFFER_BYTES)) for path in self._paths]
            self._stack = stack.pop_all()

    def write(self, records: np.ndarray, shards: np.ndarray) -> None:
        """Adds packed rows [n], each to the file of its shard [n]."""
        rows = np.empty(len(records), self._dtype)
        rows["shard"], rows["row"] = shards, records
        with full_told(self._folder):
            for file, part in by_shard(rows, (shards - self._first) // self._each):
                self._open[file].write(part.data)

    def close(self) -> None:
        with full_told(self._folder):
            self._stack.close()

    def shards(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (shard, its packed rows in the order they came in) in order, and removes the files."""
        self.close()
        for part, path in zip(self._parts, self._paths, strict=True):
            if len(part) == 1:
                with open(path, "rb") as file:
                    rows = np.fromfile(file, self._dtype)["row"]
                path.unlink()
                yield part.start, rows
                continue
            fewer = _Files(path.parent, part, self._dtype)
            with contextlib.closing(fewer), open(path, "rb") as file:
                while len(chunk := np.fromfile(file, self._dtype, max(1, CHUNK_BYTES // self._dtype.itemsize))):
                    fewer.write(chunk["row"], chunk["shard"])
            path.unlink()
            yield from fewer.shards()


def _runs(ascending: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Values of an ascending array with the start and end of each one's run."""
    values, starts = np.unique(ascending, return_index=True)
    return values.tolist(), starts.tolist(), [*starts[1:].tolist(), len(ascending)][: len(values)]
