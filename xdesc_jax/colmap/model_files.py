"""Whether the files of a COLMAP model are whole, before COLMAP reads them and after it wrote them.

In: the folder of a model. Out: an error where a binary file ends too early or too late. COLMAP does not look:
of a file that was cut short it takes what the memory holds, and crashes, or asks for terabytes, or never ends;
and it writes to a full disk without a word. Files are mapped, never copied into memory. Imports numpy alone.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.camera_models import CAMERA_MODELS, PARAMETERS

PARTS = ("cameras", "images", "points3D", "rigs", "frames")  # .bin or .txt; COLMAP 3 has the first three
COUNT_BYTES = 8  # in which a file begins with the number of its entries, and a list with that of its elements
HEAD_BYTES = 4 + 7 * 8 + 4  # of a photo's entry, before its name: id, pose, camera
TRACK_AT = 8 + 3 * 8 + 3 + 8  # where a point's track begins: behind id, position, colour, error
POINT_2D_BYTES, TRACK_ELEMENT_BYTES = 24, 8
_RIGID, _DATA_ID = 7 * 8, 16

Content = mmap.mmap | bytes

_byte, _word, _long = (struct.Struct(form).unpack_from for form in ("<B", "<I", "<Q"))


def _camera(data: Content, at: int) -> int:
    _, model = struct.unpack_from("<Ii", data, at)
    if not 0 <= model < len(CAMERA_MODELS):
        raise struct.error(f"camera model {model}")
    return at + 8 + 16 + 8 * PARAMETERS[CAMERA_MODELS[model]]  # width and height in between


def _rig(data: Content, at: int) -> int:
    sensors = _word(data, at + 4)[0]
    at += 8
    for sensor in range(sensors):
        at += 8
        if sensor:  # the first is the reference, which has no pose
            at += 1 + _RIGID * bool(_byte(data, at)[0])
        _check_end(data, at)
    return at


def _frame(data: Content, at: int) -> int:
    at += 8 + _RIGID
    return at + 4 + _word(data, at)[0] * _DATA_ID


def _image(data: Content, at: int) -> int:
    at = name_end(data, at) + 1
    return at + COUNT_BYTES + _long(data, at)[0] * POINT_2D_BYTES


def _point(data: Content, at: int) -> int:
    return at + TRACK_AT + COUNT_BYTES + _long(data, at + TRACK_AT)[0] * TRACK_ELEMENT_BYTES


# Where an entry ends that begins at a place; what is read on the way lies within the file.
_ENDS: dict[str, Callable[[Content, int], int]] = {
    "cameras.bin": _camera, "rigs.bin": _rig, "frames.bin": _frame, "images.bin": _image, "points3D.bin": _point,
}  # fmt: skip


def name_end(data: Content, at: int) -> int:
    """Where the name of a photo ends whose entry begins at `at`; raises struct.error where it does not."""
    end = data.find(b"\0", at + HEAD_BYTES)
    if end < 0:
        raise struct.error("a name without an end")
    return end


def _check_end(data: Content, at: int) -> None:
    if at > len(data):
        raise struct.error(f"an entry up to byte {at}, of which {len(data)} are there")


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[Content]:
    """The content of a file, in memory only where it is looked at."""
    with path.open("rb") as file:
        if not path.stat().st_size:  # cannot be mapped
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def entry_starts(path: Path, data: Content) -> np.ndarray:
    """Where the entries of a binary file begin, and where the last one ends.

    Args:
        path: of the file, which says what its entries are.
        data: its content.

    Returns:
        [N + 1] int64, bytes from the beginning of the file.

    Raises:
        ValueError: the file is not as long as its content says.
    """
    end_of, at, count, starts = _ENDS[path.name], COUNT_BYTES, 0, [COUNT_BYTES]
    size = len(data)
    try:
        (count,) = _long(data, 0)
        while len(starts) <= count:
            at = end_of(data, at)
            if at > size:
                _check_end(data, at)
            starts.append(at)
    except struct.error as error:
        raise ValueError(
            f"{path}: cut short or damaged, its {size} bytes hold {len(starts) - 1} of {count} entries ({error})"
        ) from error
    if at != size:
        raise ValueError(f"{path}: {size} bytes, expected {at} for its {count} entries")
    return np.array(starts, np.int64)


def models_below(folder: Path) -> list[Path]:
    """Folders of COLMAP models in a folder, or one deeper: '0' of COLMAP's `sparse`. By number, then by name."""
    for depth in ("*", "*/*"):
        if found := {file.parent for end in ("bin", "txt") for file in folder.glob(f"{depth}/images.{end}")}:
            return sorted(found, key=lambda path: (not path.name.isdecimal(), len(path.name), path))
    return []


def meant(folder: Path) -> str:
    """'; did you mean colmap/sparse/0?' where models lie below a folder; '' where none do."""
    found = models_below(folder)
    return f"; did you mean {found[0]}?" if found else ""


def check_model_files(folder: Path) -> None:
    """Raises ValueError where a binary file of a model is not as long as its content says."""
    for name in _ENDS:
        path = folder / name
        if path.exists():
            with mapped(path) as data:
                entry_starts(path, data)
