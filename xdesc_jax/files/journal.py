"""What a run has finished so far: one file that grows by an entry an item, private to one result.

In: named values and arrays of an item, as it is finished. Out: the same again when a run that was stopped anywhere goes
on; an entry that was being written is dropped. Entries of other settings or inputs are not used, and that is said. An
entry is two lengths, its JSON, the bytes of its arrays, and their checksum; arrays come back bit for bit.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_log = logging.getLogger("xdesc_jax")
_FORMAT = "xdesc-journal 1"
_LENGTHS, _CHECKSUM = struct.Struct("<IQ"), struct.Struct("<I")

Entry = dict[str, Any]  # name -> array, or what JSON holds


class Journal:
    """The finished items of a result; use as a context manager. One process writes to it (see `claim`).

    Args:
        path: the file; made where it is missing.
        config_hash: of all that the items depend on; entries made with another are removed.
    """

    def __init__(self, path: Path, config_hash: str):
        self.path = path
        self._places: dict[str, int] = {}  # key -> where its entry begins
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self._end = 0
        about = next(self._read(), None)
        if about is None or (about.get("format"), about.get("config_hash")) != (_FORMAT, config_hash):
            if self._size():
                _log.info("%s: was made with other settings or inputs, or is damaged; it is not used", path)
            self._truncate(0)
            self._append({"format": _FORMAT, "config_hash": config_hash}, [])
            return
        for header in self._read():
            self._places[header["key"]] = header["start"]
        self._truncate(self._end)  # what a killed run left cut

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __getitem__(self, key: str) -> Entry:
        """The entry of an item; raises KeyError where it is not finished."""
        header, payload, _ = self._entry(self._places[key])
        entry, at = dict(header["values"]), 0
        for name, kind, shape in header["arrays"]:
            dtype, count = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
            entry[name] = np.frombuffer(payload, dtype, count, at).reshape(shape).copy()
            at += count * dtype.itemsize
        return entry

    def add(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keeps what became of an item; it outlives this process when this returns.

        Raises:
            OSError: it cannot be written.
        """
        arrays = {n: np.ascontiguousarray(v) for n, v in entry.items() if isinstance(v, np.ndarray)}
        header = {
            "key": key,
            "values": {name: value for name, value in entry.items() if name not in arrays},
            "arrays": [(name, array.dtype.str, entry[name].shape) for name, array in arrays.items()],
        }
        self._places[key] = self._append(header, [array.tobytes() for array in arrays.values()])

    def recall(self, key: str, make: Callable[[], Entry]) -> Entry:
        """The entry of an item, which is made and kept where it is not there yet."""
        if key not in self:
            self.add(key, make())
        return self[key]

    def remove(self) -> None:
        """Removes the file, once the result is there."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self._places:  # nothing to go on with
            self.path.unlink(missing_ok=True)

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _truncate(self, size: int) -> None:
        if self._size() > size:
            os.ftruncate(self._file.fileno(), size)
        self._end = size

    def _append(self, header: dict[str, Any], payload: list[bytes]) -> int:
        """Writes an entry; returns where it begins."""
        text = json.dumps(header).encode()
        body = b"".join([_LENGTHS.pack(len(text), sum(map(len, payload))), text, *payload])
        try:
            self._file.write(body + _CHECKSUM.pack(zlib.crc32(body)))
            self._file.flush()
        except OSError as error:  # of a write, it is told without a name
            raise OSError(error.errno, f"{self.path}: cannot be written ({error.strerror})") from error
        start, self._end = self._end, self._end + len(body) + _CHECKSUM.size
        return start

    def _entry(self, start: int) -> tuple[dict[str, Any], bytes, int]:
        """Header, payload and end of the entry that begins there; raises ValueError where it is cut or damaged."""
        number = self._file.fileno()
        lengths = os.pread(number, _LENGTHS.size, start)
        if len(lengths) < _LENGTHS.size:
            raise ValueError(f"{self.path}: ends at {start}")
        text, payload = _LENGTHS.unpack(lengths)
        whole = _LENGTHS.size + text + payload + _CHECKSUM.size
        if start + whole > self._size():
            raise ValueError(f"{self.path}: is cut after {start}")
        content = os.pread(number, whole, start)
        body = content[: -_CHECKSUM.size]
        if _CHECKSUM.pack(zlib.crc32(body)) != content[-_CHECKSUM.size :]:
            raise ValueError(f"{self.path}: is damaged after {start}")
        header = json.loads(body[_LENGTHS.size : _LENGTHS.size + text])
        return header, body[_LENGTHS.size + text :], start + whole

    def _read(self) -> Iterator[dict[str, Any]]:
        """Headers of the entries from `_end` on, which moves along, up to the first that is cut or damaged."""
        while True:
            start = self._end
            try:
                header, _, self._end = self._entry(start)
            except ValueError:
                return
            yield {**header, "start": start}
