"""The 'npy' format of records: one .npy array per split and column, `<split>.<column>.npy`.

In: blocks of rows in their final order. Out: a folder that is read with numpy alone: in blocks with bounded
memory (`ColumnSource`) or whole (`resident.ResidentSet`). Imports neither tensorflow nor jax.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.data.schema import Column, RecordInfo
from xdesc_jax.data.source import Columns, ShardedSource
from xdesc_jax.files.arrays import open_array


def file_name(split: str, column: str) -> str:
    """Name of the file of one column."""
    return f"{split}.{column}.npy"


def write_split(
    folder: Path,
    split: str,
    columns: Mapping[str, Column],
    rows: Sequence[int],
    shards: Iterator[Columns],
) -> None:
    """Writes the shards of one split, of so many `rows` each, one after the other into its column files."""
    with contextlib.ExitStack() as stack:
        files = {}
        for name, column in columns.items():
            file = files[name] = stack.enter_context(open(folder / file_name(split, name), "wb"))
            header = {
                "descr": np.lib.format.dtype_to_descr(column.dtype),
                "fortran_order": False,
                "shape": (sum(rows), *column.shape),
            }
            np.lib.format.write_array_header_1_0(file, header)
        for shard in shards:
            for name, file in files.items():
                file.write(np.ascontiguousarray(shard[name]).data)


def open_column(info: RecordInfo, split: str, name: str) -> np.ndarray:
    """A read-only memory map [rows, ...] of one column.

    Raises:
        ValueError: the file is damaged or does not hold what the records say.
    """
    path = info.path / file_name(split, name)
    array = open_array(path)
    column = info.columns[name]
    expected = (sum(info.shard_rows(split)), *column.shape)
    if array.shape != expected or array.dtype != column.dtype:
        raise ValueError(f"{path}: holds {array.dtype} {array.shape}, expected {column.dtype} {expected}")
    return array


class ColumnSource(ShardedSource):
    """Batches from the npy format, a window of blocks in memory. Arguments as for `ShardedSource`."""

    def _read_shards(self, shards: list[int]) -> Iterator[Columns]:
        ends = np.cumsum(self._order.shard_rows)
        with contextlib.ExitStack() as stack:
            # Read, not mapped: pages of a living map count as this process's memory.
            blocks = {name: stack.enter_context(_Blocks(self.info, self.split, name)) for name in self._columns}
            for shard in shards:
                count = self._order.shard_rows[shard]
                yield {name: column.read(int(ends[shard]) - count, count) for name, column in blocks.items()}


class _Blocks:
    """Reads rows of one column from a file that stays open; use as a context manager.

    Raises:
        ValueError: as `open_column`.
    """

    def __init__(self, info: RecordInfo, split: str, name: str):
        header = open_column(info, split, name)
        assert isinstance(header, np.memmap)
        self._path, self._begin, self._column = info.path / file_name(split, name), header.offset, info.columns[name]
        self._file = open(self._path, "rb")  # noqa: SIM115 (closed by __exit__)

    def __enter__(self) -> _Blocks:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, start: int, count: int) -> np.ndarray:
        """The rows from `start` on, [count, ...]; raises ValueError where the file has become shorter."""
        column = self._column
        self._file.seek(self._begin + start * column.row_bytes)
        values = np.fromfile(self._file, column.dtype, count * column.row_bytes // column.dtype.itemsize)
        if values.nbytes != count * column.row_bytes:
            raise ValueError(f"{self._path}: damaged, ends before row {start + count}")
        return values.reshape(count, *column.shape)
