"""COLMAP models as text, of any writer, in front of COLMAP's own reader.

In: the folder of a text model. Out: a folder that COLMAP reads as it is meant, or an error with file, line and reason.
COLMAP's reader takes tabs, marks and doubled blanks for part of a value, needs a line of keypoints behind every photo,
and tells little of what is wrong. Comments are optional. Quaternions may have any length above 0: `bindings.api`
scales them. Imports numpy alone.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.camera_models import number, parse_camera
from xdesc_jax.console.words import counted
from xdesc_jax.files.text_list import BLANKS, Line, words_of

FILES = ("cameras.txt", "images.txt", "points3D.txt", "rigs.txt", "frames.txt")
_POSE = "QW QX QY QZ TX TY TZ"


@contextlib.contextmanager
def readable(folder: Path) -> Iterator[Path]:
    """Yields a folder that COLMAP reads: the model's own, or a copy with the same entries, plainly written.

    Raises:
        ValueError: a file that is no text, or an entry that cannot be.
    """
    texts = {name: _text(folder / name) for name in FILES if (folder / name).is_file()}
    check = _Checker()
    plain = {name: check.entries(folder / name, text) for name, text in texts.items()}
    # What COLMAP would stumble over: all but a plain blank between values, and a mark at the head.
    odd = any(c in text for text in texts.values() for c in ("\t", "\r", "  ", " \n", "\n ", "\ufeff"))
    if not odd:
        yield folder
        return
    with tempfile.TemporaryDirectory() as copy:
        for name, lines in plain.items():
            (Path(copy) / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        yield Path(copy)


def count_entries(path: Path) -> int:
    """How many cameras, photos, points, rigs or frames a file lists.

    Raises:
        ValueError: it is no text.
    """
    entries = len([line for line in _lines(path, _text(path)) if _holds(line)])
    if path.name != "images.txt":
        return entries
    return sum(1 for _ in _photos(path, _text(path)))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error})") from error


def _lines(path: Path, text: str) -> list[Line]:
    rows = text.removeprefix("\ufeff").split("\n")
    return [Line(f"{path}:{n}", row.removesuffix("\r")) for n, row in enumerate(rows, start=1)]


def _holds(line: Line) -> bool:
    return bool(line.text) and not line.marked


def _photos(path: Path, text: str) -> Iterator[tuple[Line, Line | None]]:
    """The two lines of each photo; None where the file ends before the second."""
    lines = iter(_lines(path, text)[: -1 if text.endswith("\n") else None])
    for line in lines:
        if _holds(line):
            yield line, next(lines, None)


class _Checker:
    """Goes over the files of a model in the order of `FILES`; each refers to those before it alone."""

    def __init__(self) -> None:
        self._cameras: set[int] = set()
        self._keypoints: dict[int, int] = {}  # photo -> how many

    def entries(self, path: Path, text: str) -> list[str]:
        """The entries of a file, plainly written; raises ValueError where one cannot be."""
        if path.name == "images.txt":
            return [plain for pair in _photos(path, text) for plain in self._photo(*pair)]
        check: dict[str, Callable[[str, list[str]], None]] = {
            "cameras.txt": self._camera, "points3D.txt": self._point, "rigs.txt": self._rig, "frames.txt": self._frame,
        }  # fmt: skip
        found = []
        for line in filter(_holds, _lines(path, text)):
            words = _words(line)
            check[path.name](line.where, words)
            found.append(" ".join(words))
        return found

    def _camera(self, where: str, words: list[str]) -> None:
        _need(where, words, 4, "CAMERA_ID MODEL WIDTH HEIGHT PARAMS...")
        camera = _whole(where, "camera's id", words[0])
        parse_camera(" ".join(words[1:]), f"{where}: camera {camera}")
        if camera in self._cameras:
            raise ValueError(f"{where}: camera {camera} is listed twice")
        self._cameras.add(camera)

    def _photo(self, head: Line, points: Line | None) -> tuple[str, str]:
        words = _words(head)
        _need(head.where, words, 10, f"IMAGE_ID {_POSE} CAMERA_ID NAME")
        photo = _whole(head.where, "photo's id", words[0])
        _check_pose(head.where, words[1:8])
        if (camera := _whole(head.where, "camera's id", words[8])) not in self._cameras:
            raise ValueError(f"{head.where}: photo {photo} has camera {camera}, which cameras.txt does not list")
        if photo in self._keypoints:
            raise ValueError(f"{head.where}: photo {photo} is listed twice")
        values = [] if points is None else _words(points)
        where = head.where if points is None else points.where
        numbers = np.array([number(word) for word in values])
        if points is None or len(values) % 3 or not np.isfinite(numbers).all():
            raise ValueError(
                f"{where}: behind each photo stands a line of its keypoints, 'X Y POINT3D_ID ...', empty where it has "
                f"none; behind photo {photo} stands {'nothing' if points is None else repr(points.text[:60])}"
            )
        if not (numbers[2::3] == np.floor(numbers[2::3])).all() or (numbers[2::3] < -1).any():
            raise ValueError(f"{where}: keypoints of photo {photo} name points that are no whole numbers from -1")
        self._keypoints[photo] = len(values) // 3
        name = head.text[words_of(head.text)[9][0] :]
        return f"{' '.join(words[:9])} {name}", " ".join(values)

    def _point(self, where: str, words: list[str]) -> None:
        _need(where, words, 8, "POINT3D_ID X Y Z R G B ERROR TRACK...")
        point = _whole(where, "point's id", words[0])
        position = [number(word) for word in words[1:4]]
        if not np.isfinite(position).all():
            raise ValueError(f"{where}: point {point} is at {' '.join(words[1:4])}, expected finite numbers")
        for word in words[4:7]:
            _whole(where, "colour", word)
        if len(words) % 2:
            raise ValueError(f"{where}: the track of point {point} has {len(words) - 8} values, expected pairs")
        for photo, row in zip(words[8::2], words[9::2], strict=True):
            count = self._keypoints.get(_whole(where, "photo's id", photo))
            if count is None or not 0 <= _whole(where, "keypoint's row", row) < count:
                known = "is not in images.txt" if count is None else f"has {counted(count, 'keypoint')}"
                raise ValueError(f"{where}: point {point} is seen by keypoint {row} of photo {photo}, which {known}")

    def _rig(self, where: str, words: list[str]) -> None:
        _need(where, words, 2, "RIG_ID NUM_SENSORS REF_SENSOR_TYPE REF_SENSOR_ID SENSORS...")
        at, left = 4, _whole(where, "number of sensors", words[1]) - 1
        while left > 0:
            _need(where, words, at + 3, "SENSOR_TYPE SENSOR_ID HAS_POSE")
            posed = _whole(where, "HAS_POSE", words[at + 2])
            if posed:
                _need(where, words, at + 10, _POSE)
                _check_pose(where, words[at + 3 : at + 10])
            at, left = at + (10 if posed else 3), left - 1

    def _frame(self, where: str, words: list[str]) -> None:
        _need(where, words, 10, f"FRAME_ID RIG_ID {_POSE} NUM_DATA_IDS DATA_IDS...")
        _check_pose(where, words[2:9])


def _words(line: Line) -> list[str]:
    return [word for _, word in words_of(line.raw)]


def _need(where: str, words: Sequence[str], count: int, expected: str) -> None:
    if len(words) < count:
        raise ValueError(f"{where}: {len(words)} values, expected {expected}: {' '.join(words).strip(BLANKS)[:80]!r}")


def _whole(where: str, what: str, word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"{where}: the {what} is {word!r}, expected a whole number") from None


def _check_pose(where: str, words: Sequence[str]) -> None:
    values = np.array([number(word) for word in words])
    if not np.isfinite(values).all() or not values[:4].any():
        raise ValueError(f"{where}: the pose is {' '.join(words)}, expected finite numbers and a quaternion not zero")
