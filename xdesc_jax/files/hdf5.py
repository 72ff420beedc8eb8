"""HDF5 files: opened with a message of what is wrong, read only where it is stored, written whole or not at all.

In: paths, and names of arrays. Out: arrays whose declared size is that of the bytes in the file; a few bytes can
declare any size, which HDF5 would make of fill values. Formats are their owners': `features.store` and
`matching.matches`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import math
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from xdesc_jax.files.whole import atomic

if TYPE_CHECKING:
    import h5py

DAMAGE = (OSError, KeyError, RuntimeError)  # what h5py raises where a file's inner structure is broken
MATCHES, FEATURES, GLOBAL_FEATURES = "a match file", "a feature file", "a file of global features"
_TOLD_BY = {"matches0": MATCHES, "keypoints": FEATURES, "global_descriptor": GLOBAL_FEATURES}
_SHOWN = 5
_HEAP = b"GCOL\1\0\0\0"  # how a heap of texts begins, behind which its size stands
_OBJECT = struct.Struct("<HHIQ")  # number, references, nothing, size
_HEAPS_WITHIN = 1 << 20  # bytes from the beginning and from the end, where those of a file's own attributes lie
_BLOCK = 1 << 24  # bytes looked through at a time


def open_file(path: Path, what: str, texts_anywhere: bool = False) -> h5py.File:
    """An HDF5 file opened for reading.

    Args:
        path: the file.
        what: it is, for messages ('feature file').
        texts_anywhere: whether texts will be read of more than the file's own attributes.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an HDF5 file, cut short, or open for writing.
    """
    import h5py

    if not path.exists():
        raise FileNotFoundError(f"{path}: no such {what}")
    try:
        _check_heaps(path, texts_anywhere)
        return h5py.File(path, "r")
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES) and "lock" in str(error) or "open for write" in str(error):
            raise ValueError(
                f"{path}: is being written by another process; wait for it, or close the file there ({error})"
            ) from error
        raise ValueError(f"{path}: not a readable HDF5 file, or cut short ({error})") from error


def found_attribute(path: Path | str, *keys: str) -> Any:
    """The first of these attributes that a file has; None where there is no such file, or none of them."""
    import h5py

    try:
        _check_heaps(Path(path))
        with h5py.File(path, "r") as file:
            return next((file.attrs[key] for key in keys if key in file.attrs), None)
    except DAMAGE:
        return None


def _check_heaps(path: Path, whole: bool = False) -> None:
    """Raises OSError where a heap of texts would keep HDF5 busy for ever.

    HDF5 goes from object to object by their sizes, and stays at one that has none, as where a part of the file is zero.
    A file's own attributes lie where they were written, before all photos or behind them; those of each pair lie all
    over the file, so then the `whole` of it is looked through, at about 1 GB/s.
    Source: the HDF5 file format specification, version 3.0, III.E, global heap.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        last = max(_HEAPS_WITHIN, size - _HEAPS_WITHIN)
        for part in [range(size)] if whole else [range(min(size, _HEAPS_WITHIN)), range(last, size)]:
            for at in _heaps(file, part):
                _check_heap(file, at, size)


def _heaps(file: BinaryIO, part: range) -> Iterator[int]:
    """Where heaps begin in a part of a file."""
    for start in range(part.start, part.stop, _BLOCK):
        file.seek(start)
        data = file.read(min(_BLOCK, part.stop - start) + len(_HEAP) - 1)  # one may lie across two blocks
        at = data.find(_HEAP)
        while at >= 0:
            yield start + at
            at = data.find(_HEAP, at + len(_HEAP))


def _check_heap(file: BinaryIO, at: int, size: int) -> None:
    file.seek(at + 8)
    end = at + int.from_bytes(file.read(8), "little")
    place = at + 16
    while place + _OBJECT.size <= min(end, size):
        file.seek(place)
        number, _, _, length = _OBJECT.unpack(file.read(_OBJECT.size))
        # The size of object 0, the free space, counts its head, too.
        length = length if number == 0 else _OBJECT.size + -(-length // 8) * 8
        if not 0 < length <= end - place:
            raise OSError(f"an object of {length} bytes in the heap at {at}, which has {end - at}")
        place += length


def dataset(group: h5py.Group, key: str, shape: Sequence[int | None] | None = None) -> h5py.Dataset:
    """An array of a group that can be read: as much is stored as it declares.

    Args:
        group: where it lies.
        key: its name.
        shape: what it has to be; None in it is any length.

    Raises:
        KeyError: no such array.
        ValueError: a group of that name, another shape, or fewer bytes than it declares.
    """
    import h5py

    found = group[key]
    if not isinstance(found, h5py.Dataset) or found.shape is None:
        raise ValueError(f"{key} is {'empty' if isinstance(found, h5py.Dataset) else 'a group'}, expected an array")
    if shape is not None and not _fits(found.shape, shape):
        expected = ", ".join("N" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "")
        raise ValueError(f"{key} has shape {found.shape}, expected ({expected})")
    declared = math.prod(found.shape) * found.dtype.itemsize
    if found.is_virtual or found.external:
        raise ValueError(f"{key} lies in other files, expected it in this one")
    if found.chunks is None:
        stored = found.file.id.get_filesize() >= found.id.get_storage_size() >= declared
    else:  # compressed or not, each of its blocks is there
        blocks = math.prod(-(-n // size) for n, size in zip(found.shape, found.chunks, strict=True))
        stored = found.id.get_num_chunks() >= blocks
    if not stored:
        raise ValueError(
            f"{key} declares {list(found.shape)} values of {found.dtype}, {declared} bytes, of which "
            f"{found.id.get_storage_size()} are stored; it was not written, or only in part"
        )
    return found


def array(group: h5py.Group, key: str, dtype: Any = None, shape: Sequence[int | None] | None = None) -> np.ndarray:
    """`dataset`, read; with a dtype, it has to hold real numbers, which become of it."""
    found = dataset(group, key, shape)
    if dtype is not None and found.dtype.kind not in "biuf":
        raise ValueError(f"{key} has dtype {found.dtype}, expected numbers")
    return np.asarray(found, dtype)


def _fits(found: tuple[int, ...], expected: Sequence[int | None]) -> bool:
    return len(found) == len(expected) and all(e in (None, n) for n, e in zip(found, expected, strict=True))


def groups_with(file: h5py.File, key: str) -> list[str]:
    """Paths of the groups that hold an array called `key`, sorted.

    Goes over the names of what lies in the file and makes no object of any, as `visititems` does of all.
    """
    from h5py import h5o

    end, named = f"/{key}".encode(), []

    def visit(path: bytes) -> None:
        if path.endswith(end):
            named.append(path)

    file.id.links.visit(visit)
    arrays = [path for path in named if _kind(file, path) == h5o.TYPE_DATASET]
    return sorted(path[: -len(end)].decode("utf-8", "surrogateescape") for path in arrays)


def _kind(file: h5py.File, path: bytes) -> int | None:
    """What lies at a path, as HDF5 numbers it; None where a link leads nowhere."""
    from h5py import h5l, h5o

    try:
        return int(h5o.get_info(file.id, path).type)
    except (KeyError, RuntimeError):
        if file.id.links.get_info(path).type == h5l.TYPE_HARD:
            raise
        return None


def content(file: h5py.File) -> str:
    """What a file is, for messages: `MATCHES`, `FEATURES`, `GLOBAL_FEATURES`, or in other words.

    Told by what lies beside the first array, of however many pairs or photos; where that tells nothing, by all names.
    """
    if not len(file):
        return "an empty HDF5 file"
    first = _first_array(file)
    beside = None if first is None else file[first].parent
    for key, what in _TOLD_BY.items():
        if beside is not None and key in beside:
            return what
    for key, what in _TOLD_BY.items():
        if groups_with(file, key):
            return what
    return f"an HDF5 file of other content, first {list(itertools.islice(file, _SHOWN))}"


def _first_array(file: h5py.File) -> bytes | None:
    """Path of the first array by name; None where there is none."""
    from h5py import h5o

    found: bytes | None = file.id.links.visit(lambda path: path if _kind(file, path) == h5o.TYPE_DATASET else None)
    return found


class Writer:
    """An HDF5 file being written; use as a context manager. It appears when the block ends without error.

    Args:
        path: the file to make; an existing one is replaced at the end.
        many: it will hold a great many small groups: the format of HDF5 1.10, in which a group and a compressed array
            take tens of bytes beside their content; in that of 1.6, which is the default, thousands.

    Raises:
        OSError: it cannot be written, as where the disk is full.
    """

    def __init__(self, path: Path | str, many: bool = False):
        self.path, self._many = Path(path), many

    def __enter__(self) -> Writer:
        import h5py

        self._stack = contextlib.ExitStack()
        with self._stack:
            temporary = self._stack.enter_context(atomic(self.path))
            self._disk = self._stack.enter_context(contextlib.closing(_Disk(temporary)))
            self._stack.callback(self.check)
            opened = _open_for_many(self._disk) if self._many else h5py.File(self._disk, "w")
            self.file = self._stack.enter_context(contextlib.closing(opened))
            self._stack = self._stack.pop_all()
        return self

    def group(self, path: str) -> h5py.Group:
        """A new group, and those above it; without the time, so that the same content gives the same bytes."""
        import h5py
        from h5py import h5g, h5p

        link, creation = h5p.create(h5p.LINK_CREATE), h5p.create(h5p.GROUP_CREATE)
        link.set_create_intermediate_group(True)
        link.set_char_encoding(h5py.h5t.CSET_UTF8)
        creation.set_obj_track_times(False)
        return h5py.Group(h5g.create(self.file.id, path.encode(), lcpl=link, gcpl=creation))

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def check(self) -> None:
        """Raises OSError where something could not be written so far."""
        if (error := self._disk.error) is not None:
            raise OSError(error.errno, f"{self.path}: cannot be written ({error.strerror})") from error


def _open_for_many(disk: _Disk) -> h5py.File:
    import h5py
    from h5py import h5f, h5fd, h5p

    access, creation = h5p.create(h5p.FILE_ACCESS), h5p.create(h5p.FILE_CREATE)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    access.set_fileobj_driver(h5fd.fileobj_driver, disk)
    creation.set_obj_track_times(False)
    return h5py.File(h5f.create(repr(disk).encode(), h5f.ACC_TRUNC, fcpl=creation, fapl=access))


class _Disk(io.RawIOBase):
    """A file that HDF5 writes to without ever being told of a full disk: it would try again at the end of the process,
    and crash it. What could not be written is kept, since HDF5 may read it again before the writer stops.

    Attributes:
        error: why the first write failed; None where all went well.
    """

    def __init__(self, path: Path):
        self._file = path.open("w+b", buffering=0)
        self._kept: list[tuple[int, bytes]] = []
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        at, left = self._file.tell(), memoryview(data).cast("B")
        if self.error is None:
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError as error:
                self.error = error
        if left:
            end = self._file.tell()
            self._kept.append((end, bytes(left)))
            self._file.seek(end + len(left))
        return self._file.tell() - at

    def readinto(self, buffer: Any) -> int:
        at, view = self._file.tell(), memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        self._file.readinto(view)
        for start, data in self._kept:
            first, last = max(start, at), min(start + len(data), at + len(view))
            if first < last:
                view[first - at : last - at] = data[first - start : last - start]
        self._file.seek(at + len(view))
        return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            end = max([os.fstat(self._file.fileno()).st_size, *(at + len(data) for at, data in self._kept)])
            return self._file.seek(end + offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self, size: int | None = None) -> int:
        if self.error is None:
            try:
                return self._file.truncate(size)
            except OSError as error:
                self.error = error
        return self._file.tell() if size is None else size

    def close(self) -> None:
        self._file.close()
        super().close()
