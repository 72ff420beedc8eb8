"""Writing and reading .npz files of arrays with a header: readable by numpy alone.

In: arrays and header entries, as `tensors` takes them. Out: a file, whole or not at all; the same content gives
the same bytes. Layout: an uncompressed .npz with an array under each tensor's name, and under `header` the UTF-8 bytes
of a JSON object. Anyone reads it so:

    with np.load(path) as file:
        header = json.loads(bytes(file["header"]))
        arrays = {name: file[name] for name in file.files}

Entries that are JSON texts stand in the object as the values they describe.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from xdesc_jax.files.whole import atomic, parse_json

HEADER = "header"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_DEFLATE_LIMIT = 1032  # bytes that one byte can stand for, at most
PLAIN = ("format", "version")  # entries that are texts, not JSON


def write(path: Path | str, tensors: Mapping[str, np.ndarray], entries: Mapping[str, str]) -> Path:
    """Writes arrays by name, and header entries in the order of their names.

    Args:
        path: the file.
        tensors: arrays; none is named `header`.
        entries: texts by name, JSON but for `format` and `version`.
    """
    header = {name: text if name in PLAIN else json.loads(text) for name, text in sorted(entries.items())}
    content = json.dumps(header, ensure_ascii=False).encode()
    arrays: dict[str, Any] = {HEADER: np.frombuffer(content, np.uint8), **dict(sorted(tensors.items()))}
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    return Path(path)


def read(path: Path | str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Header entries, as `write` takes them, and arrays.

    Raises:
        ValueError: no .npz file, cut short, damaged, or without a header; does not name the file.
    """
    try:
        arrays = read_plain(path)
        if HEADER not in arrays:
            raise ValueError(f"holds no array {HEADER!r}")
    except ValueError as error:
        raise ValueError(f"not an .npz file of this package, or cut short ({error})") from error
    header = parse_json(arrays.pop(HEADER).tobytes())
    if not isinstance(header, dict):
        raise ValueError(f"{HEADER!r} is a JSON {type(header).__name__}, expected an object")
    return {k: v if k in PLAIN else json.dumps(v) for k, v in header.items()}, arrays


def read_plain(path: Path | str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file of any program, by name.

    Raises:
        ValueError: no .npz file, cut short or damaged; does not name the file.
    """
    try:
        # Opened here: numpy leaves a file open that it cannot read.
        with Path(path).open("rb") as raw:
            if not zipfile.is_zipfile(raw):
                raise ValueError("no whole zip archive")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                for member in file.zip.infolist():
                    if member.file_size > _DEFLATE_LIMIT * min(member.compress_size, Path(path).stat().st_size):
                        raise ValueError(f"{member.filename} declares {member.file_size} bytes, more than it can hold")
                    with file.zip.open(member) as stored:
                        check_header(stored, member.file_size)
                return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def check_header(file: IO[bytes], size: int) -> None:
    """Raises ValueError where an array in numpy's format declares another size than it has.

    Args:
        file: at its beginning.
        size: of all of it, bytes.
    """
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"array format version {version}, expected {' or '.join(map(str, _HEADERS))}")
    try:
        shape, _, dtype = _HEADERS[version](file)
    except Exception as error:  # numpy reads it as Python source, and raises whatever that may
        raise ValueError(f"its header cannot be read ({error})") from error
    if min(shape, default=0) < 0 or dtype.hasobject or any(isinstance(n, bool) for n in shape):
        raise ValueError(f"declares shape {list(shape)} of {dtype}, expected numbers")
    declared, stored = math.prod(shape) * dtype.itemsize, size - file.tell()
    if declared > stored:
        raise ValueError(f"declares shape {list(shape)} of {dtype}, {declared} bytes, of which {stored} are stored")


def open_array(path: Path) -> np.ndarray:
    """An array of a .npy file, memory-mapped.

    Raises:
        ValueError: no such array, cut short, or a pickle.
    """
    try:
        with path.open("rb") as file:
            check_header(file, path.stat().st_size)
        return np.lib.format.open_memmap(path, mode="r")  # unlike np.load, takes no .npz or pickle
    except (ValueError, EOFError, OSError, OverflowError) as error:
        raise ValueError(f"{path}: not a readable .npy array, or cut short ({error})") from error
