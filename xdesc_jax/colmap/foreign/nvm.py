"""VisualSFM's `.nvm`.

In: the text, `NVM_V3`. Out: a `Scene` of its largest model. A camera has a quaternion, world to camera with COLMAP's
axes, its position in the world, a focal length in px, and one coefficient of distortion, which takes a *measured*
position to the ideal one: ideal = m (1 + r |m|^2), with m from the middle in units of the focal length. COLMAP's models
go the other way: the inverse is a power series in r |ideal|^2, whose [3/3] Pade approximant FULL_OPENCV holds; it is
off by less than 1e-7 focal lengths where |r| |ideal|^2 <= 0.05. The size of the photos stands nowhere.

Source: VisualSFM, "Output format" and "Camera model"; Multicore Bundle Adjustment, `LoadNVM` for the normalised r.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.camera_models import number
from xdesc_jax.colmap.foreign.scene import Lens, Observations, Photo, Scene, unique_observations
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.console.words import counted
from xdesc_jax.files.text_list import numbered_lines

HEADER = "NVM_V3"
_CAMERA = 10  # numbers behind a name: focal, quaternion, position, distortion, 0
_POINT, _MEASUREMENT = 7, 4
_FIXED = "FixedK"
_Line = tuple[str, str]  # 'file:number', and the line as it stands


def read(path: Path) -> Scene:
    """The scene of a file.

    Raises:
        ValueError: another version, cut short, or a value that cannot be; names file and value.
    """
    fixed, photos, held_points = _largest(path, with_points=True)
    offset = np.zeros(2) if fixed is None else np.array(fixed[1::2])
    points: list[list[float]] = []
    seen: list[tuple[int, int, int, float, float]] = []
    for where, line in held_points:
        values = _numbers(where, line.split(), "a point")
        views = values[_POINT:]
        if len(values) < _POINT or len(views) != _MEASUREMENT * values[_POINT - 1]:
            raise ValueError(f"{where}: a point of {len(values)} numbers, which its number of views does not fit")
        for view, row, x, y in np.array(views).reshape(-1, _MEASUREMENT).tolist():
            if not (view.is_integer() and 0 <= view < len(photos) and row.is_integer()):
                raise ValueError(f"{where}: is seen by feature {row:g} of photo {view:g} of {len(photos)}")
            seen.append((len(points), int(view), int(row), x + offset[0], y + offset[1]))
        points.append(values[:3])
    observations = unique_observations(Observations.of(seen), str(path))
    lacks = "" if seen else "it holds no points"
    xyz = np.array(points).reshape(-1, 3)
    return Scene(path, tuple(photos), xyz, observations, fixed is None, lacks, files=(path,))


def read_poses(path: Path) -> dict[str, Pose]:
    """Photo, as the file names it, -> pose; points are passed over, so a file of gigabytes takes little memory.

    Raises:
        ValueError: as for `read`, beside points; a photo that is listed twice.
    """
    _, photos, _ = _largest(path, with_points=False)
    poses: dict[str, Pose] = {}
    for photo in photos:
        if photo.path in poses:
            raise ValueError(f"{path}: {photo.path!r} is listed twice")
        poses[photo.path] = photo.pose
    return poses


def count_photos(path: Path) -> int:
    """How many photos the first model of a file says it has; opens no more than its head.

    Raises:
        ValueError: another version, or no number.
    """
    lines = numbered_lines(path, "file")
    _header(path, next(lines, None))
    return _count(path, next(lines, None), "the number of cameras")


def _largest(path: Path, with_points: bool) -> tuple[tuple[float, ...] | None, list[Photo], list[_Line]]:
    """The fixed intrinsics of a file, where it has some; photos of its largest model, and the lines of its points.

    Args:
        path: of the file.
        with_points: keep these lines.
    """
    lines = numbered_lines(path, "file")
    fixed = _header(path, next(lines, None))
    models: list[tuple[list[_Line], int, list[_Line]]] = []
    for line in lines:
        # Behind the models stands what PLY files there are.
        if line[1].startswith("#") or not (count := _count(path, line, "the number of cameras")):
            break
        cameras = list(_block(path, lines, count, "cameras"))
        held = _count(path, next(lines, None), "the number of points")
        points = _block(path, lines, held, "points")
        models.append((cameras, held, [line for line in points if with_points]))
    if not models:
        raise ValueError(f"{path}: holds no camera")
    mapped = [model for model in models if model[1]] or models[:1]
    cameras, _, kept = max(mapped, key=lambda model: len(model[0]))
    if len(mapped) > 1:
        console.warn(f"{path}: of its {len(mapped)} models the largest is taken, {counted(len(cameras), 'photo')}")
    return fixed, [_photo(where, line, fixed) for where, line in cameras], kept


def _header(path: Path, head: tuple[int, str] | None) -> tuple[float, ...] | None:
    """The fixed intrinsics fx, cx, fy, cy behind the version; None where there are none."""
    if head is None:
        raise ValueError(f"{path}: is empty, expected {HEADER}")
    where, words = f"{path}:{head[0]}", head[1].split()
    if not words or words[0] != HEADER:
        raise ValueError(f"{where}: begins with {head[1][:60]!r}, expected {HEADER}")
    if _FIXED not in words:
        return None
    values = _numbers(where, words[words.index(_FIXED) + 1 :], _FIXED)
    if len(values) < 4:
        raise ValueError(f"{where}: {_FIXED} has {len(values)} numbers, expected fx cx fy cy")
    return tuple(values[:4])


def _count(path: Path, line: tuple[int, str] | None, what: str) -> int:
    if line is None:
        raise ValueError(f"{path}: is cut short, it ends before {what}")
    value = number(next(iter(line[1].split()), ""))
    if not (math.isfinite(value) and value.is_integer() and value >= 0):
        raise ValueError(f"{path}:{line[0]}: {what} is {line[1][:60]!r}, expected a whole number")
    return int(value)


def _block(path: Path, lines: Iterator[tuple[int, str]], count: int, what: str) -> Iterator[_Line]:
    """The next lines, so many."""
    for done in range(count):
        line = next(lines, None)
        if line is None:
            raise ValueError(f"{path}: is cut short, it has {done} of {count} {what}")
        yield f"{path}:{line[0]}", line[1]


def _numbers(where: str, words: list[str], what: str) -> list[float]:
    values = [number(word) for word in words]
    for word, value in zip(words, values, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"{where}: {what} holds {word[:60]!r}, expected a number")
    return values


def _photo(where: str, line: str, fixed: tuple[float, ...] | None) -> Photo:
    words = line.split()
    values = _numbers(where, words[-_CAMERA:], "a camera")
    if len(words) <= _CAMERA:
        raise ValueError(f"{where}: {len(words)} values, expected a name and {_CAMERA} numbers: {line[:60]!r}")
    name = line.rsplit(None, _CAMERA)[0]
    focal, quaternion, centre, distortion = values[0], np.array(values[1:5]), np.array(values[5:8]), values[8]
    if not quaternion.any():
        raise ValueError(f"{where}: its quaternion is zero, expected a rotation")
    turned = Pose.from_quaternion(quaternion, np.zeros(3)).rotation
    lens = Lens(None, functools.partial(_camera, focal, distortion, fixed))
    # VisualSFM writes a blank within a name as a double quote.
    return Photo(name.strip(" \t").replace('"', " "), Pose(turned, -turned @ centre), lens)


def _camera(focal: float, distortion: float, fixed: tuple[float, ...] | None, width: int, height: int) -> Camera:
    fx, cx, fy, cy = fixed or (focal, width / 2, focal, height / 2)
    if not distortion:
        return Camera("PINHOLE", width, height, (fx, fy, cx, cy))
    k1, k2, k3, k4, k5, k6 = inverse_radial(distortion)
    return Camera("FULL_OPENCV", width, height, (fx, fy, cx, cy, k1, k2, 0.0, 0.0, k3, k4, k5, k6))


def inverse_radial(r: float) -> tuple[float, ...]:
    """k1 to k6 of s(z) = (1 + k1 z + k2 z^2 + k3 z^3) / (1 + k4 z + k5 z^2 + k6 z^3), z = u^2, with which m = u s(z)
    solves u = m (1 + r m^2).

    s + r z s^3 = 1, so s is the sum of C(3n, n) / (2n + 1) (-r z)^n; its [3/3] Pade approximant agrees to z^6.
    """
    c = [math.comb(3 * n, n) / (2 * n + 1) * (-1) ** n for n in range(7)]
    below = np.linalg.solve([[c[k - j] for j in (1, 2, 3)] for k in (4, 5, 6)], [-c[k] for k in (4, 5, 6)])
    q = [1.0, *below.tolist()]
    p = [sum(q[j] * c[k - j] for j in range(k + 1)) for k in range(4)]
    return tuple(p[k] * r**k for k in (1, 2, 3)) + tuple(q[k] * r**k for k in (1, 2, 3))
