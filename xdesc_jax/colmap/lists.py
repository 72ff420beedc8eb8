"""Lists as text: hloc's queries with intrinsics, the benchmarks' poses, and photos by name.

In: `name MODEL width height params...` a line, or a name alone. Out: cameras by name; poses as
`name qw qx qy qz tx ty tz`, world to camera. What a line is, comments and quoted names included, `text_list` says.
Imports numpy alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.camera_models import PARAMETERS, number, parse_camera
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.files.text_list import BLANKS, Line, known_form, read_lines, take_quoted, words_of, written
from xdesc_jax.files.whole import atomic

EXPECTED = "expected 'name MODEL width height params...'"
_POSE = 7  # numbers behind a name


# --- Photos ----------------------------------------------------------------------------------------------


def read_names(path: Path | str, known: Collection[str] = ()) -> list[str]:
    """Reads a list of photos, one name a line.

    Args:
        path: the list.
        known: names that photos have: only they begin with '#', or begin or end with a blank.

    Returns:
        The names, sorted, each once.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not UTF-8, or no name at all.
    """
    known, names = frozenset(known), set()
    for line in read_lines(Path(path), "list of photos"):
        quoted = take_quoted(line.text)
        name = known_form(line.raw, known)
        if quoted and not quoted[1] and name not in known:
            names.add(quoted[0])
        elif name in known or not line.marked:
            names.add(name)
    if not names:
        raise ValueError(f"{path}: holds no name")
    return sorted(names)


# --- Queries and intrinsics ------------------------------------------------------------------------------


def read_queries(path: Path | str, known: Collection[str] = ()) -> dict[str, Camera | None]:
    """Reads a query list; names may hold blanks.

    Args:
        path: the list.
        known: names that photos have; they tell a name that begins with '#' from a comment where nothing else does.

    Returns:
        Name -> camera, in the order of the list; None for a line that holds a name alone.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not UTF-8, no query at all, a name twice, or a line that is not as expected.
    """
    known = frozenset(known)
    cameras: dict[str, Camera | None] = {}
    for line in read_lines(Path(path), "list of photos and cameras"):
        name, words = _split_query(line, known)
        if _is_comment(line, name, words, known):
            continue
        if name in cameras:
            raise ValueError(f"{line.where}: query {name!r} is listed twice")
        cameras[name] = parse_camera(words, f"{line.where}: {name!r}") if words else None
    if not cameras:
        raise ValueError(f"{path}: holds no query")
    return cameras


def _split_query(line: Line, known: Collection[str]) -> tuple[str, str]:
    """The name of a line and the words of its camera, which may be none."""
    words = words_of(line.raw)
    # The last word that names a model: a photo's name may hold one, too, but no parameter does.
    at = next((i for i in range(len(words) - 1, 0, -1) if words[i][1] in PARAMETERS), None)
    start = len(line.raw) + 1 if at is None else words[at][0]
    name, camera = known_form(line.raw[: start - 1], known), line.raw[start:].strip(BLANKS)
    if name in known:
        return name, camera
    if (quoted := take_quoted(line.text)) is not None:
        return quoted
    # A name alone may hold blanks, but numbers behind it are intrinsics of a model that is not known.
    numbers = [math.isfinite(number(word)) for _, word in words]
    if not camera and len(words) > 3 and all(numbers[-2:]) and not line.marked:
        raise ValueError(f"{line.where}: no camera model that COLMAP knows, {EXPECTED}: {line.text!r}")
    return name, camera


def _is_comment(line: Line, name: str, camera: str, known: Collection[str]) -> bool:
    """Whether a line that begins with '#' is no photo: nothing calls it one, or it is one that was taken out."""
    if not line.marked or name in known:
        return False
    size = [math.isfinite(number(word)) for _, word in words_of(camera)[1:3]]
    return line.spaced or size != [True, True] or name.removeprefix("#") in known


# --- Poses -----------------------------------------------------------------------------------------------


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
        lines.append(f"{written(name)} {' '.join(map(repr, map(float, numbers)))}\n")
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
    for line in read_lines(Path(path), "list of poses"):
        words = words_of(line.text)
        numbers = [number(word) for _, word in words[-_POSE:]]
        named = len(words) > _POSE
        if line.marked and (line.spaced or not named or any(map(math.isnan, numbers))):
            continue
        if not named or not np.isfinite(numbers).all() or not any(numbers[:4]):
            raise ValueError(f"{line.where}: expected 'name qw qx qy qz tx ty tz', quaternion not zero: {line.text!r}")
        head = line.text[: words[-_POSE][0]].strip(BLANKS)
        quoted = take_quoted(head)
        name = quoted[0] if quoted is not None and not quoted[1] else head
        if name in poses:
            raise ValueError(f"{line.where}: {name!r} has two poses")
        poses[name] = Pose.from_quaternion(np.array(numbers[:4]), np.array(numbers[4:]))
    return poses
