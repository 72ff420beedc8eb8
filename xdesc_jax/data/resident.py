"""A whole split in memory, for sets that fit: numpy arrays, which the caller can put on a device.

In: a records folder of either format; the 'npy' one needs no tensorflow. Out: `arrays`, and the batches of
`source.Source` in the order numpy's Generator([seed, epoch]) gives; or, for arrays that lie on a device, the
row numbers of the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.data.around import Neighbourhood, with_neighbours
from xdesc_jax.data.columns import open_column
from xdesc_jax.data.schema import MASK, PHOTO, POINT, RecordInfo
from xdesc_jax.data.source import Columns, Source, shuffled_rows

ROW = "row"
BLOCK_ROWS = 65536  # looked at at once


class ResidentSet(Source):
    """Batches from a split that is held in memory whole. Arguments as for `Source`, and those below.

    Args:
        around: whose neighbours batches hold beside the rows; the columns must include the keypoints.
        having: names of columns; batches hold the rows that have one or more of these descriptors, or all where none is
            named.
        in_twos: where rows are permuted, two of one point come behind each other, and rows without such another are
            left out; the columns must include `point`.

    Attributes:
        arrays: every column asked for, [rows, ...] in its stored form, in the order of the files, of the photos that
            have rows for the batches; with `around`, the numbers of each row's neighbours too.

    Raises:
        ValueError: as `Source`; no row has one of the descriptors, or no two rows are of one point.
    """

    def __init__(
        self, path: Path | str, split: str, *args, around: Neighbourhood | None = None, having: Sequence[str] = (),
        in_twos: bool = False, **kwargs,
    ):  # fmt: skip
        self._having, self._in_twos = having, in_twos
        super().__init__(path, split, *args, **kwargs)
        if around is not None:
            rng = np.random.default_rng(self.seed)  # one draw for the run, on every host and after a restart
            self.arrays, self.around = with_neighbours(self.arrays, around, rng), around

    resident = True
    arrays: Columns

    def take_arrays(self) -> Columns:
        """The columns, to be held elsewhere; `row_batches` has indices into them."""
        return self.arrays

    def order(self, epoch: int) -> np.ndarray:
        """Indices into `arrays` of the rows of batches in the order of `epoch` over all hosts, int64 [rows]."""
        if not self.shuffle:
            return self._taken
        rng, photos = np.random.default_rng([self.seed, epoch]), self.arrays[PHOTO][self._taken]
        if self._together == 1:
            return self._taken[shuffled_rows(photos, self._rows_a_photo, rng)]
        twos = two_of_each(self.arrays[POINT][self._taken], rng)
        return self._taken[twos[shuffled_rows(photos[twos[:, 0]], max(self._rows_a_photo // 2, 1), rng)].reshape(-1)]

    @property
    def _together(self) -> int:
        """Rows that no host is without the others of."""
        return 2 if self._in_twos and self.shuffle else 1

    def _own_order(self, epoch: int) -> np.ndarray:
        """`order` of this host's rows."""
        return self.order(epoch).reshape(-1, self._together)[self.host :: self.num_hosts].reshape(-1)

    def row_batches(self, epoch: int, start_batch: int = 0) -> Iterator[Columns]:
        """The batches of `epoch` as indices into `arrays`: {ROW: int32 [B], 'mask': bool [B]}.

        They stand for the batches of `Source.epoch`, but that padding repeats row 0.
        """
        mine = self._own_order(epoch).astype(np.int32)
        for batch in range(start_batch, self.batches_per_epoch):
            rows = mine[batch * self._batch : (batch + 1) * self._batch]
            padding = np.zeros(self._batch - len(rows), np.int32)
            yield {ROW: np.concatenate([rows, padding]), MASK: np.arange(self._batch) < len(rows)}

    def _count_rows(self) -> int:
        self.arrays, self._taken = load_arrays(self.info, self.split, list(self._columns), self._having)
        if self._together == 1:
            return len(self._taken)
        if not (rows := two_of_each(self.arrays[POINT][self._taken], np.random.default_rng(0)).size):
            raise ValueError(f"{self.info.path}: no two rows of split {self.split!r} are of one point")
        return rows

    def _host_rows(self) -> tuple[int, int]:
        units = self.rows // self._together
        return units // self.num_hosts * self._together, -(-units // self.num_hosts) * self._together

    def _window_rows(self, epoch: int) -> list[int]:
        return [len(range(self.host, self.rows // self._together, self.num_hosts)) * self._together]

    def _windows(self, epoch: int, first: int) -> Iterator[tuple[Columns, np.ndarray]]:
        yield self.arrays, self._own_order(epoch)


def two_of_each(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows in twos of one point.

    Args:
        points: int [N], of each row; -1 for none.
        rng: draws which two; of a point with an odd number of rows one is left out.

    Returns:
        int64 [M, 2], in the order of the points; M does not depend on `rng`.
    """
    rows = rng.permutation(len(points))
    rows = rows[points[rows] >= 0]
    rows = rows[np.argsort(points[rows], kind="stable")]
    _, first, count = np.unique(points[rows], return_index=True, return_counts=True)
    place = np.arange(len(rows)) - np.repeat(first, count)  # among those of its point
    return rows[place < np.repeat(count // 2 * 2, count)].reshape(-1, 2)


def load_arrays(
    info: RecordInfo, split: str, names: Sequence[str], having: Sequence[str] = ()
) -> tuple[Columns, np.ndarray]:
    """Columns of a split, in the order of the files, and the rows that batches are cut from.

    Args:
        info: the records.
        split: 'train' or 'validation'.
        names: of the columns, that of the photos among them.
        having: names of descriptors; batches hold the rows that have one or more of them, or all where none is named.

    Returns:
        {name: [rows, ...]}, of the photos that have such rows and whole, as neighbours are looked for among all rows of
        a photo; and int64 [n], which rows these are.

    Raises:
        ValueError: an empty split, an unknown column, a damaged file, or no row with one of the descriptors.
    """
    columns = _mapped(info, split, names) if info.format == "npy" else _read(info, split, names)
    taken = _rows_with(columns, having)
    if having and not taken.any():
        raise ValueError(f"{info.path}: no row of split {split!r} has {' or '.join(having)}")
    photos = np.asarray(columns[PHOTO])
    kept = taken if taken.all() else np.isin(photos, photos[taken])
    if not kept.all():
        columns = {name: np.asarray(x)[kept] for name, x in columns.items()}
    arrays = {name: np.array(x) if isinstance(x, np.memmap) else x for name, x in columns.items()}
    return arrays, np.flatnonzero(taken[kept])


def _mapped(info: RecordInfo, split: str, names: Sequence[str]) -> Columns:
    return {name: open_column(info, split, name) for name in names}


def _read(info: RecordInfo, split: str, names: Sequence[str]) -> Columns:
    from xdesc_jax.data.pipeline import RecordSource

    largest = max(info.shard_rows(split))
    source = RecordSource(info.path, split, largest, names, shuffle=False, window=1, remainder="pad")
    columns = {name: info.columns[name] for name in names}
    arrays = {name: np.empty((source.rows, *c.shape), c.dtype) for name, c in columns.items()}
    for index, batch in enumerate(source.epoch(0)):
        for name, array in arrays.items():
            part = array[index * largest : (index + 1) * largest]
            part[:] = batch[name][: len(part)]
    return arrays


def _rows_with(columns: Columns, having: Sequence[str]) -> np.ndarray:
    """Which rows have one of the descriptors or more, bool [rows]; all where none is named."""
    found = np.full(len(columns[PHOTO]), not having)
    for name in having:
        missing = np.flatnonzero(~found)
        for start in range(0, len(missing), BLOCK_ROWS):
            rows = missing[start : start + BLOCK_ROWS]
            found[rows] = columns[name][rows].any(axis=1)  # a row of zeros stands for none
    return found
