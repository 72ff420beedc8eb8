"""Text of localisation: hloc's query lists with intrinsics, and the benchmarks' pose lists.

In: `name MODEL width height params...` a line, or sizes of photos to guess a camera for. Out: cameras by
name; poses as `name qw qx qy qz tx ty tz`, world to camera. Imports numpy alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.files.whole import atomic

# COLMAP's camera models in the order of their numbers, and how many parameters each has.
PARAMETERS = {
    "SIMPLE_PINHOLE": 3, "PINHOLE": 4, "SIMPLE_RADIAL": 4, "RADIAL": 5, "OPENCV": 8, "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12, "FOV": 5, "SIMPLE_RADIAL_FISHEYE": 4, "RADIAL_FISHEYE": 5, "THIN_PRISM_FISHEYE": 12,
    "RAD_TAN_THIN_PRISM_FISHEYE": 16, "SIMPLE_DIVISION": 4, "DIVISION": 5, "SIMPLE_FISHEYE": 3, "FISHEYE": 4,
    "EUCM": 6, "EQUIRECTANGULAR": 2,
}  # fmt: skip
CAMERA_MODELS = tuple(PARAMETERS)  # by number, as databases and binary models hold it
# Those whose first two parameters are focal lengths; of the others the first is, but for EQUIRECTANGULAR.
TWO_FOCALS = {
    "PINHOLE", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV", "THIN_PRISM_FISHEYE", "RAD_TAN_THIN_PRISM_FISHEYE",
    "DIVISION", "FISHEYE", "EUCM",
}  # fmt: skip
FOCAL_GUESS = 1.2  # times the longer side, as COLMAP guesses
EXPECTED = "expected 'name MODEL width height params...'"


def read_queries(path: Path | str) -> dict[str, Camera | None]:
    """Reads a query list; names may hold blanks.

    Returns:
        Name -> camera, in the order of the list; None for a line that holds a name alone.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not UTF-8, no query at all, a name twice, or a line that is not as expected.
    """
    cameras: dict[str, Camera | None] = {}
    for where, line in _lines(Path(path)):
        name, camera = _parse_query(line, where)
        if name in cameras:
            raise ValueError(f"{where}: query {name!r} is listed twice")
        cameras[name] = camera
    if not cameras:
        raise ValueError(f"{path}: holds no query")
    return cameras


def check_camera(camera: Camera, where: str) -> None:
    """Raises ValueError where a camera is none of COLMAP's: its model, size or parameters."""
    if camera.model not in PARAMETERS:
        raise ValueError(f"{where}: camera model is {camera.model!r}, expected one of {', '.join(PARAMETERS)}")
    expected = PARAMETERS[camera.model]
    if len(camera.params) != expected:
        raise ValueError(f"{where}: {len(camera.params)} parameters, but {camera.model} has {expected}")
    if camera.width <= 0 or camera.height <= 0:
        raise ValueError(f"{where}: photo size is {camera.width} x {camera.height} px, expected above 0")
    if not all(map(math.isfinite, camera.params)):
        raise ValueError(f"{where}: parameters are {list(camera.params)}, expected finite ones")
    if bad := [focal for focal in camera.params[: focals(camera.model)] if focal <= 0]:
        raise ValueError(f"{where}: focal length is {bad[0]:g} px, expected above 0")


def focals(model: str) -> int:
    """How many of a camera model's first parameters are focal lengths."""
    return 0 if model == "EQUIRECTANGULAR" else 1 + (model in TWO_FOCALS)


def parse_camera(text: str, where: str) -> Camera:
    """A camera of the words 'MODEL width height params...'.

    Raises:
        ValueError: an unknown model, a wrong number of parameters, or values that cannot be; says `where`.
    """
    model, *words = text.split()
    if model not in PARAMETERS:
        raise ValueError(f"{where}: camera model is {model!r}, expected one of {', '.join(PARAMETERS)}")
    values = [_number(word) for word in words]
    if len(values) < 2 or not all(math.isfinite(v) for v in values):
        raise ValueError(f"{where}: expected 'MODEL width height params...' with finite numbers: {text!r}")
    if not all(v.is_integer() for v in values[:2]):
        raise ValueError(f"{where}: photo size is {values[0]:g} x {values[1]:g} px, expected whole numbers")
    camera = Camera(model, int(values[0]), int(values[1]), tuple(values[2:]))
    check_camera(camera, where)
    return camera


def guessed_camera(size: tuple[int, int]) -> Camera:
    """The camera of a photo of (width, height) px of which nothing else is known; `known` is False."""
    width, height = size
    return Camera("SIMPLE_PINHOLE", width, height, (FOCAL_GUESS * max(size), width / 2, height / 2), known=False)


def write_poses(path: Path | str, poses: Mapping[str, Pose]) -> Path:
    """Writes poses as text, atomically; numbers keep all their digits.

    Raises:
        ValueError: a name with a line break.
    """
    lines = []
    for name, pose in poses.items():
        if any(c in name for c in "\n\r"):
            raise ValueError(f"{path}: photo name {name!r} holds a line break, which a list of poses cannot")
        numbers = [*pose.quaternion.tolist(), *np.asarray(pose.translation).tolist()]
        lines.append(f"{name} {' '.join(map(repr, map(float, numbers)))}\n")
    with atomic(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
    return Path(path)


def read_poses(path: Path | str) -> dict[str, Pose]:
    """Reads poses of `write_poses`, the benchmarks' text; names may hold blanks, and the file no pose.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not UTF-8, a name twice, or a line that is not as expected.
    """
    poses: dict[str, Pose] = {}
    for where, line in _lines(Path(path)):
        words = line.rsplit(maxsplit=7)
        numbers = [_number(word) for word in words[1:]]
        if len(words) != 8 or not np.isfinite(numbers).all() or not any(numbers[:4]):
            raise ValueError(f"{where}: expected 'name qw qx qy qz tx ty tz', quaternion not zero: {line!r}")
        if words[0] in poses:
            raise ValueError(f"{where}: {words[0]!r} has two poses")
        poses[words[0]] = Pose.from_quaternion(np.array(numbers[:4]), np.array(numbers[4:]))
    return poses


def _lines(path: Path) -> list[tuple[str, str]]:
    """(file:line, text) of the lines that are neither blank nor comments."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such list")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error})") from error
    lines = [(f"{path}:{number}", line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    return [(where, line) for where, line in lines if line and not line.startswith("#")]


def _parse_query(line: str, where: str) -> tuple[str, Camera | None]:
    words = [(match.start(), match.group()) for match in re.finditer(r"\S+", line)]
    # The last word that names a model: a photo's name may hold one, too, but no parameter does.
    at = next((i for i in range(len(words) - 1, 0, -1) if words[i][1] in PARAMETERS), None)
    if at is None:
        # A name alone may hold blanks, but numbers behind it are intrinsics of a model that is not known.
        numbers = [math.isfinite(_number(word)) for _, word in words]
        if len(words) > 3 and all(numbers[-2:]):
            raise ValueError(f"{where}: no camera model that COLMAP knows, {EXPECTED}: {line!r}")
        return line, None
    name = line[: words[at][0]].rstrip()
    return name, parse_camera(line[words[at][0] :], f"{where}: {name!r}")


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan
