"""Spreads rows over shards at random, in bounded memory and sequential writes.

In: rows photo by photo. Out: balanced shards, each a random sample of all photos in random order; a function
of the seed and the order of the rows. A reader can then read whole shards and still see a mixture.
`Deal` says where each row goes; whoever writes shards asks it, so that all write the same.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.data.schema import Column, row_dtype
from xdesc_jax.data.source import Columns


@dataclasses.dataclass(frozen=True)
class Deal:
    """Which shard each row goes to, and the order inside a shard.

    Attributes:
        rows: how many there are.
        rows_per_shard: the most that a shard may have.
        seed: of the dealing and of the order inside a shard.
    """

    rows: int
    rows_per_shard: int
    seed: int

    @property
    def shard_rows(self) -> list[int]:
        """Rows of each shard; they differ by one at most."""
        count = -(-self.rows // self.rows_per_shard)
        return np.diff(np.arange(count + 1) * self.rows // max(count, 1)).tolist()

    def shard_of_row(self) -> np.ndarray:
        """The shard of each row, int32 [rows], rows in the order of their photos."""
        sizes = self.shard_rows
        return np.random.default_rng(self.seed).permutation(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))

    def order(self, shard: int) -> np.ndarray:
        """What permutes the rows of a shard, which come in the order of their photos, int64 [rows of the shard]."""
        return np.random.default_rng([self.seed, shard]).permutation(self.shard_rows[shard])


def packed(rows: Columns, dtype: np.dtype) -> np.ndarray:
    """The columns of n rows as one array [n] of `schema.row_dtype`."""
    records = np.empty(len(next(iter(rows.values()))), dtype)
    for name in dtype.names or ():
        records[name] = rows[name]
    return records


def by_shard(records: np.ndarray, shards: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (shard, its rows in their order) for packed rows [n] and the shard of each, int32 [n]."""
    order = np.argsort(shards, kind="stable")
    records, shards = records[order], shards[order]
    for shard, start, end in zip(*_runs(shards), strict=True):
        yield shard, records[start:end]


class Spreader:
    """Deals rows to shards by way of one raw file a shard.

    Args:
        folder: for the raw files; made anew.
        columns: of the rows.
        deal: how many rows will come, and where they go.

    Attributes:
        shard_rows: rows of each shard.
    """

    def __init__(self, folder: Path, columns: Mapping[str, Column], deal: Deal):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder = folder
        self._dtype = row_dtype(columns)
        self._deal = deal
        self.shard_rows = deal.shard_rows
        self._shard_of_row = deal.shard_of_row()
        self._added = 0

    def add(self, rows: Columns) -> None:
        """Takes the rows of one photo, {column: [n, ...]}."""
        records = packed(rows, self._dtype)
        shards = self._shard_of_row[self._added : self._added + len(records)]
        assert len(shards) == len(records), "more rows than announced"
        self._added += len(records)
        for shard, part in by_shard(records, shards):
            # Opened for each photo: there may be more shards than a process may have files open.
            with open(self._file(shard), "ab") as file:
                file.write(part.data)

    def shards(self) -> Iterator[Columns]:
        """Yields the shards in order, each permuted, and removes their raw files."""
        assert self._added == len(self._shard_of_row), "fewer rows than announced"
        for shard, expected in enumerate(self.shard_rows):
            rows = np.fromfile(self._file(shard), self._dtype)
            assert len(rows) == expected, f"shard {shard} has {len(rows)} rows, expected {expected}"
            rows = rows[self._deal.order(shard)]
            self._file(shard).unlink()
            yield {name: rows[name] for name in self._dtype.names or ()}

    def _file(self, shard: int) -> Path:
        return self._folder / f"{shard:05d}.rows"


def _runs(ascending: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Values of an ascending array with the start and end of each one's run."""
    values, starts = np.unique(ascending, return_index=True)
    return values.tolist(), starts.tolist(), [*starts[1:].tolist(), len(ascending)][: len(values)]
