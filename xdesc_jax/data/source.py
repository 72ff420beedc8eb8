"""The order of rows in an epoch, and the batches cut from it, whatever the rows are read from.

In: rows per shard, seed, epoch, host. Out: numpy batches {descriptor: [B, stored_width], 'photo': [B],
'mask': [B], ...}. The order is a function of (seed, epoch) alone: the shards are permuted, windows of them
are read whole, and the rows of a window are permuted. A position is (epoch, batch); starting there opens only
the shards from its window on. Imports neither tensorflow nor jax.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from xdesc_jax.data.around import Neighbourhood, take, with_neighbours
from xdesc_jax.data.schema import MASK, NEIGHBOURS, PHOTO, TRAIN, RecordInfo
from xdesc_jax.networks.neighbours import NONE

Columns = dict[str, np.ndarray]
WINDOW = 4  # shards in memory; rows were spread over shards at random when they were written


class Source(abc.ABC):
    """Batches of aligned rows of one split.

    Args:
        path: a records folder.
        split: 'train' or 'validation'.
        batch_size: rows of a batch over all hosts; this host yields batch_size / num_hosts of them.
        columns: which descriptors (or other columns) to yield; None: every descriptor.
        patches: also yield `patch` uint8 [B, 32, 32].
        seed: of the order.
        host: index of this host.
        num_hosts: hosts that share the epoch; every host sees the same number of batches.
        shuffle: permute the rows anew each epoch; None: for 'train' only.
        remainder: what becomes of a last partial batch: 'drop', or 'pad' with zero rows whose mask is False;
            None: 'drop' for 'train', else 'pad'.
        rows_a_photo: how many rows of a photo come together where rows are permuted, see `shuffled_rows`.

    Attributes:
        info: what the folder holds.
        rows: rows of the split, over all hosts.
        batches_per_epoch: the same on all hosts and in all epochs.
        resident: whether batches also come as numbers of rows of columns held in memory, see `ResidentSet`.

    Raises:
        ValueError: an empty split, a column that is not there, a batch size that the hosts cannot share, fewer rows
            than a batch where the remainder is dropped, or a seed that numpy's generators do not take.
    """

    resident = False
    around: Neighbourhood | None = None  # batches also hold rows' neighbours, see `around.take`

    def __init__(
        self,
        path: Path | str,
        split: str,
        batch_size: int,
        columns: Sequence[str] | None = None,
        patches: bool = False,
        seed: int = 0,
        host: int = 0,
        num_hosts: int = 1,
        *,
        shuffle: bool | None = None,
        remainder: Literal["drop", "pad"] | None = None,
        rows_a_photo: int = 1,
    ):
        if not 0 <= host < num_hosts:
            raise ValueError(f"host is {host}, expected 0 to {num_hosts - 1}")
        if seed < 0:
            raise ValueError(f"the seed of the order of rows is {seed}, expected 0 or more")
        if batch_size < 1 or batch_size % num_hosts:
            raise ValueError(f"batch size is {batch_size}, expected a positive multiple of {num_hosts} hosts")
        self.info = RecordInfo.load(path)
        self.split, self.seed, self.host, self.num_hosts = split, seed, host, num_hosts
        self.shuffle = split == TRAIN if shuffle is None else shuffle
        self.remainder = remainder or ("drop" if split == TRAIN else "pad")
        self._columns = self.info.select(columns, patches)
        self.rows = self._count_rows()
        self._rows_a_photo = rows_a_photo
        self._batch = batch_size // num_hosts
        fewest, most = self._host_rows()
        self.batches_per_epoch = fewest // self._batch if self.remainder == "drop" else -(-most // self._batch)
        if not self.batches_per_epoch:
            raise ValueError(
                f"{path}: split {split!r} gives a host {fewest} rows, fewer than one batch of {self._batch}"
            )

    def _count_rows(self) -> int:
        """Rows of the split that batches are cut from, over all hosts."""
        return sum(self.info.shard_rows(self.split))

    @abc.abstractmethod
    def _host_rows(self) -> tuple[int, int]:
        """Bounds of the rows that a host gets in any epoch: (fewest, most)."""

    @abc.abstractmethod
    def _window_rows(self, epoch: int) -> list[int]:
        """Rows of each window that this host reads in `epoch`."""

    @abc.abstractmethod
    def _windows(self, epoch: int, first: int) -> Iterator[tuple[Columns, np.ndarray]]:
        """The columns of each window from `first` on, and the order in which to take their rows."""

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Columns]:
        """Yields the batches of `epoch` from `start_batch` on, as an uninterrupted run would.

        Raises:
            ValueError: `start_batch` is not in the epoch, or a file is damaged.
        """
        if not 0 <= start_batch <= self.batches_per_epoch:
            raise ValueError(f"start_batch is {start_batch}, the epoch has {self.batches_per_epoch} batches")
        return self._batches(epoch, start_batch)

    def _batches(self, epoch: int, start_batch: int) -> Iterator[Columns]:
        due = self.batches_per_epoch - start_batch
        ends = np.cumsum(self._window_rows(epoch))
        at = start_batch * self._batch  # row of the epoch, then of the window
        first = int(np.searchsorted(ends, at, side="right"))
        at -= int(ends[first - 1]) if first else 0
        parts: list[Columns] = []
        missing = self._batch
        for columns, order in self._windows(epoch, first) if due and first < len(ends) else ():
            if PHOTO in columns:
                self.info.check_photos(columns[PHOTO], f"{self.info.path}: {self.split}")
            while at < len(order):
                taken = order[at : at + missing]
                parts.append(take(columns, taken, self.around))
                at += len(taken)
                missing -= len(taken)
                if missing:
                    break
                yield self._join(parts)
                parts, missing, due = [], self._batch, due - 1
                if not due:
                    return
            at = 0
            del columns, order  # before the next window is read
        for _ in range(due if self.remainder == "pad" else 0):
            yield self._join(parts)
            parts = []

    def _join(self, parts: list[Columns]) -> Columns:
        """One batch of parts in a row, filled up with masked zero rows."""
        found = sum(len(next(iter(part.values()))) for part in parts)
        if found < self._batch:
            missing = self._batch - found
            parts = [*parts, {n: np.zeros((missing, *x.shape[1:]), x.dtype) for n, x in self._one_row().items()}]
        batch = (
            parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        )
        batch[MASK] = np.arange(self._batch) < found
        return batch

    def _one_row(self) -> Columns:
        """A row of zeros of what batches hold, [1, ...] each."""
        row = {name: np.zeros((1, *c.shape), c.dtype) for name, c in self._columns.items()}
        if self.around is not None:
            row[NEIGHBOURS] = np.full((1, self.around.nearest + self.around.larger), NONE, np.int32)
        return take(row, np.zeros(1, np.int64), self.around)


def shuffled_rows(photos: np.ndarray, rows_a_photo: int, rng: np.random.Generator) -> np.ndarray:
    """An order of rows, random but that rows of a photo come together: the hardest negatives are of the same photo.

    Args:
        photos: int [N], the photo of each row.
        rows_a_photo: how many come together, drawn from their photo's; the last of a photo are those that are left.
            With 1, rows come in any order.
        rng: draws it.

    Returns:
        int64 [N], a permutation.
    """
    order = rng.permutation(len(photos))
    if rows_a_photo == 1:
        return order
    order = order[np.argsort(photos[order], kind="stable")]  # each photo's rows in a random order
    at, of = np.arange(len(order)), photos[order]
    first = np.maximum.accumulate(np.where(np.diff(of, prepend=of[:1]) != 0, at, 0))  # of its photo
    group = np.cumsum((at - first) % rows_a_photo == 0) - 1
    return order[np.argsort(rng.permutation(len(order))[group], kind="stable")]


@dataclasses.dataclass(frozen=True)
class ShardOrder:
    """Which shards a host reads in which order, and how the rows of a window are permuted."""

    shard_rows: tuple[int, ...]
    window: int
    seed: int
    shuffle: bool
    host: int
    num_hosts: int

    def windows(self, epoch: int) -> list[list[int]]:
        """Indices of the shards in each window of this host. Which host gets which changes every epoch."""
        shards = np.arange(len(self.shard_rows))
        if self.shuffle:
            shards = np.random.default_rng([self.seed, epoch]).permutation(shards)
        mine = shards[self.host :: self.num_hosts].tolist()
        return [mine[i : i + self.window] for i in range(0, len(mine), self.window)]

    def rows(self, epoch: int, window: int, photos: np.ndarray, rows_a_photo: int = 1) -> np.ndarray:
        """The order of the rows of one window, of which `photos` [N] are the photos, int64 [N]; see `shuffled_rows`."""
        if not self.shuffle:
            return np.arange(len(photos))
        return shuffled_rows(photos, rows_a_photo, np.random.default_rng([self.seed, epoch, window, self.host]))

    def host_rows(self) -> tuple[int, int]:
        """Fewest and most rows of a host, whichever shards an epoch deals to it."""
        ascending = sorted(self.shard_rows)
        fewest = len(ascending) // self.num_hosts
        most = -(-len(ascending) // self.num_hosts)
        return sum(ascending[:fewest]), sum(ascending[-most:])


class ShardedSource(Source):
    """A source that reads shards one after the other and holds one window of them in memory.

    Args:
        window: shards per window.
        around: whose neighbours batches hold beside the rows; the columns must include the keypoints.
        Others as for `Source`.

    Raises:
        ValueError: as `Source`; fewer shards than hosts; neighbours are asked for, and the rows of a photo are spread
            over the shards.
    """

    def __init__(
        self, path: Path | str, split: str, batch_size: int, *args, window: int = WINDOW,
        around: Neighbourhood | None = None, **kwargs,
    ):  # fmt: skip
        self._window, self.around = window, around
        super().__init__(path, split, batch_size, *args, **kwargs)
        if around is not None and not self.info.whole_photos:
            raise ValueError(
                f"{path}: the rows of a photo are spread over the shards, and a row's neighbours must be at hand: "
                "set resident=True, or make records with --deal-by photo"
            )

    def _host_rows(self) -> tuple[int, int]:
        shard_rows = self.info.shard_rows(self.split)
        if len(shard_rows) < self.num_hosts:
            raise ValueError(
                f"{self.info.path}: split {self.split!r} has {len(shard_rows)} shards for {self.num_hosts} "
                "hosts; make the records with smaller --rows-per-shard"
            )
        self._order = ShardOrder(shard_rows, self._window, self.seed, self.shuffle, self.host, self.num_hosts)
        return self._order.host_rows()

    def _window_rows(self, epoch: int) -> list[int]:
        rows = self._order.shard_rows
        return [sum(rows[shard] for shard in window) for window in self._order.windows(epoch)]

    def _windows(self, epoch: int, first: int) -> Iterator[tuple[Columns, np.ndarray]]:
        windows = self._order.windows(epoch)
        pieces = self._read_shards([shard for window in windows[first:] for shard in window])
        for index in range(first, len(windows)):
            count = sum(self._order.shard_rows[shard] for shard in windows[index])
            columns = self._fill_window(pieces, count)
            if self.around is not None:
                rng = np.random.default_rng([self.seed, epoch, index, self.host, 1])
                columns = with_neighbours(columns, self.around, rng)
            yield columns, self._order.rows(epoch, index, columns[PHOTO], self._rows_a_photo)
            del columns  # before the next window is read

    def _fill_window(self, pieces: Iterator[Columns], count: int) -> Columns:
        columns = {name: np.empty((count, *c.shape), c.dtype) for name, c in self._columns.items()}
        end = 0
        while end < count:
            piece = next(pieces)
            start, end = end, end + len(next(iter(piece.values())))
            for name, target in columns.items():
                target[start:end] = piece[name]
        return columns

    @abc.abstractmethod
    def _read_shards(self, shards: list[int]) -> Iterator[Columns]:
        """The columns of these shards, in this order and whole; nothing else is opened.

        They come in pieces of one shard each, or of a part of one.
        """
