"""Spreads rows over shards at random, in bounded memory and sequential writes.

In: rows photo by photo. Out: balanced shards, each a random sample of all photos in random order; a function
of the seed and the order of the rows. A reader can then read whole shards and still see a mixture.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.data.schema import Column, row_dtype
from xdesc_jax.data.source import Columns


class Spreader:
    """Deals rows to shards by way of one raw file a shard.

    Args:
        folder: for the raw files; made anew.
        columns: of the rows.
        rows: how many rows will come.
        rows_per_shard: the most that a shard may have.
        seed: of the dealing and of the order inside a shard.

    Attributes:
        shard_rows: rows of each shard; they differ by one at most.
    """

    def __init__(self, folder: Path, columns: Mapping[str, Column], rows: int, rows_per_shard: int, seed: int):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder = folder
        self._dtype = row_dtype(columns)
        self._seed = seed
        count = -(-rows // rows_per_shard)
        self.shard_rows = np.diff(np.arange(count + 1) * rows // max(count, 1)).tolist()
        deal = np.repeat(np.arange(count, dtype=np.int32), self.shard_rows)
        self._shard_of_row = np.random.default_rng(seed).permutation(deal)
        self._added = 0

    def add(self, rows: Columns) -> None:
        """Takes the rows of one photo, {column: [n, ...]}."""
        count = len(next(iter(rows.values())))
        packed = np.empty(count, self._dtype)
        for name in self._dtype.names or ():
            packed[name] = rows[name]
        shards = self._shard_of_row[self._added : self._added + count]
        assert len(shards) == count, "more rows than announced"
        self._added += count
        order = np.argsort(shards, kind="stable")
        packed, shards = packed[order], shards[order]
        for shard, start, end in zip(*_runs(shards), strict=True):
            # Opened for each photo: there may be more shards than a process may have files open.
            with open(self._file(shard), "ab") as file:
                file.write(packed[start:end].data)

    def shards(self) -> Iterator[Columns]:
        """Yields the shards in order, each permuted, and removes their raw files."""
        assert self._added == len(self._shard_of_row), "fewer rows than announced"
        for shard, expected in enumerate(self.shard_rows):
            rows = np.fromfile(self._file(shard), self._dtype)
            assert len(rows) == expected, f"shard {shard} has {len(rows)} rows, expected {expected}"
            rows = rows[np.random.default_rng([self._seed, shard]).permutation(expected)]
            self._file(shard).unlink()
            yield {name: rows[name] for name in self._dtype.names or ()}

    def _file(self, shard: int) -> Path:
        return self._folder / f"{shard:05d}.rows"


def _runs(ascending: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Values of an ascending array with the start and end of each one's run."""
    values, starts = np.unique(ascending, return_index=True)
    return values.tolist(), starts.tolist(), [*starts[1:].tolist(), len(ascending)][: len(values)]
