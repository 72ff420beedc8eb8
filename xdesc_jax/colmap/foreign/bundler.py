"""Bundler's `bundle.out` and the list of its photos.

In: the text, `# Bundle file v0.3`, and a list with a photo a line, in the order of the cameras. Out: a `Scene`. A
camera looks along its negative z with y upwards, and positions in photos are measured from the middle with y upwards,
too: both are turned over. Photos without a focal length were not reconstructed. The size of photos stands nowhere.

Source: Bundler User's Manual, "Output format and scene representation".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.camera_models import number
from xdesc_jax.colmap.foreign.fields import rotation
from xdesc_jax.colmap.foreign.scene import FLIP, Lens, Observations, Photo, Scene, unique_observations
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.console.words import counted
from xdesc_jax.files.text_list import numbered_lines

HEADER = "# Bundle file"
_CAMERA, _POINT, _VIEW = 15, 6, 4  # numbers of each
_FOCAL = re.compile(r"\s+\d+\s+[-+.\deE]+\s*$")  # behind a name in the list


def read(path: Path) -> Scene:
    """The scene of a file.

    Raises:
        FileNotFoundError: no list of photos beside it.
        ValueError: cut short, a value that cannot be, or a list of another length; names file and value.
    """
    listed = list_of(path)
    names = [_FOCAL.sub("", line.strip(" \t")) for _, line in numbered_lines(listed, "list of photos")]
    values = Numbers(path)
    cameras, points = values.whole("the number of cameras"), values.whole("the number of points")
    if cameras != len(names):
        raise ValueError(f"{path}: has {counted(cameras, 'camera')}, but {listed} lists {counted(len(names), 'photo')}")
    photos: list[Photo] = []
    rows: dict[int, int] = {}  # camera -> photo
    for camera, name in enumerate(names):
        found = np.array(values.take(_CAMERA, f"camera {camera}"))
        if found[0] == 0:
            continue
        turned = rotation(found[3:12].reshape(3, 3), f"{path}: the rotation of camera {camera}")
        rows[camera] = len(photos)
        lens = Lens(None, functools.partial(_camera, *found[:3].tolist()))
        photos.append(Photo(name, Pose(FLIP @ turned, FLIP @ found[12:]), lens))
    places: list[list[float]] = []
    seen: list[tuple[int, int, int, float, float]] = []
    for point in range(points):
        place = values.take(_POINT, f"point {point}")
        of_point = []
        for _ in range(values.whole(f"the number of views of point {point}")):
            view, key, x, y = values.take(_VIEW, f"the views of point {point}")
            if view in rows:
                of_point.append((len(places), rows[int(view)], int(key), x, -y))
        if of_point:
            places.append(place[:3])
            seen += of_point
    values.end()
    observations = unique_observations(Observations.of(seen), str(path))
    lacks = "" if seen else "it holds no point that a photo sees"
    xyz = np.array(places).reshape(-1, 3)
    return Scene(path, tuple(photos), xyz, observations, True, lacks, files=(path, listed))


def _camera(focal: float, k1: float, k2: float, width: int, height: int) -> Camera:
    return Camera("RADIAL", width, height, (focal, width / 2, height / 2, k1, k2))


def list_of(path: Path) -> Path:
    """The list of the photos of a bundle file, by the names that programs give it."""
    names = dict.fromkeys(
        (path.name.replace("bundle", "list").removesuffix(".out") + ".txt", f"{path.name}.list.txt", "list.txt")
    )
    places = [folder / name for folder in (path.parent, path.parent / "..") for name in names]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        told = " or ".join(names)
        raise FileNotFoundError(f"{path}: the list of its photos is neither beside it nor one folder above ({told})")
    return found


class Numbers:
    """The numbers of a text, one after another; lines that begin with '#' are none.

    Args:
        path: the file.
        skip: lines that come before.

    Raises:
        ValueError: no text.
    """

    def __init__(self, path: Path, skip: int = 0):
        self._path = path
        self._words = self._all(skip)

    def _all(self, skip: int) -> Iterator[str]:
        for at, (_, line) in enumerate(numbered_lines(self._path, "file")):
            if at >= skip and not line.startswith("#"):
                yield from line.split()

    def take(self, count: int, what: str) -> list[float]:
        """The next numbers; raises ValueError where the file ends before, or holds something else."""
        found = []
        for _ in range(count):
            word = next(self._words, None)
            if word is None:
                raise ValueError(f"{self._path}: is cut short, it ends in {what}")
            value = number(word)
            if not np.isfinite(value):
                raise ValueError(f"{self._path}: {what} holds {word[:60]!r}, expected a number")
            found.append(value)
        return found

    def whole(self, what: str) -> int:
        """The next number, a whole one from 0."""
        (value,) = self.take(1, what)
        if not value.is_integer() or value < 0:
            raise ValueError(f"{self._path}: {what} is {value:g}, expected a whole number from 0")
        return int(value)

    def end(self) -> None:
        """Raises ValueError where something stands behind the last number that was expected."""
        if (word := next(self._words, None)) is not None:
            raise ValueError(f"{self._path}: holds more than it says, first {word[:60]!r}")
