"""A scene of another program: what its reader gives, and what the rest of the package takes of it.

In: photos with poses and lenses, points with the keypoints that see them. Out: names, poses, cameras. Cameras and
positions have COLMAP's origin, the corner of the first pixel, and COLMAP's axes: x right, y down, z into the photo.
Some programs measure from the middle of a photo and do not say its size: it is asked of the features, or of the photo.
Imports numpy alone, Pillow where a photo has to tell its size.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.camera_models import check_camera
from xdesc_jax.colmap.model import Camera, Pose

FLIP = np.diag([1.0, -1.0, -1.0])  # between COLMAP's axes of a camera and those that look along -z with y upwards
MAX_ROW = 1 << 31  # of a keypoint, in any of these formats
_NO_LETTERS = ("Cc", "Cs")  # control characters and halves of surrogates; blanks of any kind may be part of a name
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Lens:
    """Intrinsics that may need the size of a photo.

    Attributes:
        size: (width, height) in px; None where the file does not say.
        camera: makes the camera of a size.
    """

    size: tuple[int, int] | None
    camera: Callable[[int, int], Camera]


def around_lens(size: tuple[int, int], where: str) -> Lens:
    """The lens of photos that show all directions, whose units are one turn a width in both axes.

    Raises:
        ValueError: photos that are not twice as wide as high, which COLMAP's camera scales otherwise.
    """
    if size[0] != 2 * size[1]:
        raise ValueError(f"{where}: a spherical photo of {size[0]} x {size[1]} px, expected twice as wide as high")
    return Lens(size, lambda w, h: Camera("EQUIRECTANGULAR", w, h, (float(w), float(h))))


def fixed_lens(model: str, size: tuple[int, int], params: Sequence[float]) -> Lens:
    """A lens of which all is known."""
    return Lens(size, lambda w, h: Camera(model, w, h, tuple(params)))


@dataclasses.dataclass(frozen=True)
class Photo:
    """A photo as the file calls it, where it was, and through what it looks."""

    path: str
    pose: Pose
    lens: Lens


@dataclasses.dataclass(frozen=True)
class Observations:
    """M keypoints that see points: [M] point, [M] view, [M] row of the keypoint in its photo, [M, 2] position in px."""

    point: np.ndarray
    view: np.ndarray
    keypoint: np.ndarray
    xy: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, float, float]]) -> Observations:
        """Of (point, view, keypoint, x, y) each."""
        table = np.array(rows, np.float64).reshape(-1, 5)
        ids = table[:, :3].astype(np.int64)
        return cls(ids[:, 0], ids[:, 1], ids[:, 2], table[:, 3:])

    def take(self, rows: np.ndarray) -> Observations:
        """Some of them, by index or mask."""
        return Observations(self.point[rows], self.view[rows], self.keypoint[rows], self.xy[rows])


@dataclasses.dataclass(frozen=True)
class Scene:
    """What a file of another program holds.

    Attributes:
        path: of the file.
        photos: those that have a pose.
        points: [P, 3], world coordinates.
        observations: of the points, by the photos.
        from_middle: whether their positions are measured from the middle of the photo.
        lacks: why there are no points, or none that a photo is known to see; '' where there are some.
        files: that were read.
    """

    path: Path
    photos: tuple[Photo, ...]
    points: np.ndarray
    observations: Observations
    from_middle: bool = False
    lacks: str = ""
    files: tuple[Path, ...] = ()

    def names(self, known: Collection[str] = ()) -> list[str]:
        """The name of each photo (see `photo_names`).

        Raises:
            ValueError: two photos have one name, or one that cannot be.
        """
        names = photo_names([photo.path for photo in self.photos], known)
        seen: dict[str, str] = {}
        for name, photo in zip(names, self.photos, strict=True):
            if not name or any(unicodedata.category(c) in _NO_LETTERS for c in name):
                raise ValueError(f"{self.path}: a photo is called {photo.path!r}, expected a name")
            if name in seen:
                raise ValueError(f"{self.path}: {seen[name]!r} and {photo.path!r} are both the photo {name!r}")
            seen[name] = photo.path
        return names

    def poses(self, known: Collection[str] = ()) -> dict[str, Pose]:
        """Photo -> pose."""
        return {name: photo.pose for name, photo in zip(self.names(known), self.photos, strict=True)}

    def cameras(self, sizes: Mapping[str, tuple[int, int]], all_photos: bool = True) -> dict[str, Camera]:
        """Photo -> camera.

        Args:
            sizes: photos -> (width, height) in px, (0, 0) where it is not known.
            all_photos: whether photos beyond those of `sizes` are wanted, too.

        Raises:
            ValueError: no camera that COLMAP knows, or nothing tells the size of a photo.
        """
        found, unsized = {}, []
        folders = dict.fromkeys(file.parent for file in (self.path, *self.files))
        for name, photo in zip(self.names(sizes), self.photos, strict=True):
            if not all_photos and name not in sizes:
                continue
            size = photo.lens.size or sizes.get(name, (0, 0))
            if min(size) <= 0:
                size = photo_size(folder / called for folder in folders for called in (photo.path, name)) or (0, 0)
            if min(size) <= 0:
                unsized.append(photo.path)
                continue
            found[name] = photo.lens.camera(*size)
            check_camera(found[name], f"{self.path}: camera of {photo.path!r}")
        if unsized:
            raise ValueError(
                f"{self.path}: does not say the size of its photos, which cameras need: neither the features nor a "
                f"photo beside it tell that of {unsized[0]!r} (first of {len(unsized)})"
            )
        return found


def photo_names(paths: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """What photos are called here, whose files another program names by their paths.

    Args:
        paths: with any separators, relative or not.
        known: names of photos: a path that ends with one, or with which one ends, is that photo.

    Returns:
        Of each path the known name, or else what stands behind the folder that all paths share.
    """
    parts = [_parts(path) for path in paths]
    shared = 0
    if parts:
        folders = [part[:-1] for part in parts]
        first, last = min(folders), max(folders)
        while shared < min(len(first), len(last)) and first[shared] == last[shared]:
            shared += 1
    by_file: dict[str, list[tuple[str, ...]]] = {}
    for name in known:
        if of := _parts(name):
            by_file.setdefault(of[-1], []).append(of)
    spelled = {_parts(name): name for name in known}
    names = []
    for part in parts:
        fits = [of for of in by_file.get(part[-1] if part else "", ()) if _ends(part, of)]
        best = [of for of in fits if len(of) == max(map(len, fits))]
        names.append(spelled[best[0]] if len(best) == 1 else "/".join(part[shared:]))
    return names


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in PurePosixPath(path.replace("\\", "/")).parts if part not in (".", "/"))


def _ends(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether the longer of two paths ends with the shorter one."""
    length = min(len(a), len(b))
    return a[-length:] == b[-length:]


def photo_size(places: Iterable[Path]) -> tuple[int, int] | None:
    """(width, height) in px of the first of some files that is there; None where none is."""
    for path in places:
        if not path.is_file():
            continue
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as photo:
                return photo.size
        except (OSError, UnidentifiedImageError, ValueError, SyntaxError) as error:
            raise ValueError(f"{path}: cannot be read as a photo ({error})") from error
    return None


def unique_observations(observations: Observations, where: str) -> Observations:
    """Observations of which each keypoint sees one point: of several the first, and a warning.

    Raises:
        ValueError: a row that no keypoint can have.
    """
    if len(bad := observations.keypoint[(observations.keypoint < 0) | (observations.keypoint >= MAX_ROW)]):
        raise ValueError(f"{where}: a point is seen by keypoint {bad[0]}, expected 0 to {MAX_ROW - 1}")
    keys = observations.view * MAX_ROW + observations.keypoint
    _, first = np.unique(keys, return_index=True)
    if len(first) < len(keys):
        told = console.counted(len(keys) - len(first), "keypoint sees", "keypoints see")
        console.warn(f"{where}: {told} several points; the first of each is taken")
    return observations.take(np.sort(first))
