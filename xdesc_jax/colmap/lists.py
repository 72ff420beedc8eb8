"""Lists as text: hloc's queries with intrinsics, and the benchmarks' poses.

In: `name MODEL width height params...` a line. Out: cameras by name; poses as `name qw qx qy qz tx ty tz`,
world to camera. Imports numpy alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.camera_models import PARAMETERS, number, parse_camera
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.files.whole import atomic

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
        numbers = [number(word) for word in words[1:]]
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
        numbers = [math.isfinite(number(word)) for _, word in words]
        if len(words) > 3 and all(numbers[-2:]):
            raise ValueError(f"{where}: no camera model that COLMAP knows, {EXPECTED}: {line!r}")
        return line, None
    name = line[: words[at][0]].rstrip()
    return name, parse_camera(line[words[at][0] :], f"{where}: {name!r}")
