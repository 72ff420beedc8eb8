"""Whether the files of a COLMAP model are whole, before COLMAP reads them and after it wrote them.

In: the folder of a model. Out: an error where a binary file ends too early or too late. COLMAP does not look:
of a file that was cut short it takes what the memory holds, and crashes, or asks for terabytes, or never ends;
and it writes to a full disk without a word. Imports numpy alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from xdesc_jax.colmap.camera_models import CAMERA_MODELS, PARAMETERS

_RIGID = 7 * 8  # bytes of a rotation and a translation
_POINT_2D, _TRACK_ELEMENT, _DATA_ID = 24, 8, 16


class _Bytes:
    """A file's content and the place in it; reading past the end raises struct.error."""

    def __init__(self, data: bytes):
        self._data = memoryview(data)
        self.at = 0

    def take(self, form: str) -> int:
        """The last of the values of a form."""
        values = struct.unpack_from("<" + form, self._data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[-1]

    def skip(self, size: int) -> None:
        if self.at + size > len(self._data):
            raise struct.error(f"{size} bytes at {self.at}, of which {len(self._data) - self.at} are there")
        self.at += size

    def skip_text(self) -> None:
        while self.take("B"):
            pass


def _camera(file: _Bytes) -> None:
    model = file.take("Ii")
    file.skip(16)  # width and height
    if not 0 <= model < len(CAMERA_MODELS):
        raise struct.error(f"camera model {model}")
    file.skip(8 * PARAMETERS[CAMERA_MODELS[model]])


def _rig(file: _Bytes) -> None:
    for sensor in range(file.take("II")):
        file.skip(8)
        if sensor and file.take("B"):  # the first is the reference, which has no pose
            file.skip(_RIGID)


def _frame(file: _Bytes) -> None:
    file.skip(8 + _RIGID)
    file.skip(file.take("I") * _DATA_ID)


def _image(file: _Bytes) -> None:
    file.skip(4 + _RIGID + 4)
    file.skip_text()
    file.skip(file.take("Q") * _POINT_2D)


def _point(file: _Bytes) -> None:
    file.skip(8 + 3 * 8 + 3 + 8)  # id, position, colour, error
    file.skip(file.take("Q") * _TRACK_ELEMENT)


_ENTRIES: dict[str, Callable[[_Bytes], None]] = {
    "cameras.bin": _camera, "rigs.bin": _rig, "frames.bin": _frame, "images.bin": _image, "points3D.bin": _point,
}  # fmt: skip


def check_model_files(folder: Path) -> None:
    """Raises ValueError where a binary file of a model is not as long as its content says."""
    for name, entry in _ENTRIES.items():
        path = folder / name
        if path.exists():
            data = path.read_bytes()
            file, done, count = _Bytes(data), 0, 0
            try:
                count = file.take("Q")
                while done < count:
                    entry(file)
                    done += 1
            except struct.error as error:
                raise ValueError(
                    f"{path}: cut short or damaged, its {len(data)} bytes hold {done} of {count} entries ({error})"
                ) from error
            if file.at != len(data):
                raise ValueError(f"{path}: {len(data)} bytes, expected {file.at} for its {count} entries")
