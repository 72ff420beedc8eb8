"""Which camera each photo was taken with.

In: cameras of the command line, of a list, model or database, of the photos' EXIF. Out: one camera per photo,
with the source that decided it, in this order: command line, file, database, EXIF, and the guess of a focal
length of 1.2 max(width, height), whose `known` is False.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from xdesc_jax import console
from xdesc_jax.colmap.bindings.database import exif_camera
from xdesc_jax.colmap.camera_models import FOCAL_GUESS, check_camera, focals
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.foreign.read import cameras as foreign_cameras
from xdesc_jax.colmap.foreign.read import find
from xdesc_jax.colmap.lists import EXPECTED, read_queries
from xdesc_jax.colmap.model import Camera

Source = Literal["command line", "file", "database", "exif", "guess"]
Sharing = Literal["photo", "folder", "size"]

_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Intrinsics:
    """The camera of a photo and where it comes from."""

    camera: Camera
    source: Source

    @property
    def measured(self) -> bool:
        """Whether mapping should keep it: a guess has to be refined, and so has EXIF's rounded focal length.

        A database does not say where its cameras come from; one with the principal point in the middle and no
        distortion is what COLMAP makes of EXIF.
        """
        if self.source == "database":
            return self.camera.known and not is_plain(self.camera)
        return self.source in ("command line", "file")


def read_intrinsics(path: Path | str, known: Mapping[str, tuple[int, int]] | None = None) -> dict[str, Camera]:
    """Cameras by photo name, of a list in hloc's form, a COLMAP model or one of another program, or a COLMAP database.

    Args:
        path: a list has a line `name MODEL width height params...` for each photo; names may hold blanks.
        known: photos that are at hand and their (width, height) in px, (0, 0) where it is not known: a list's names are
            told apart by them (see `read_queries`), and other programs' files are read with them (`foreign`).

    Raises:
        FileNotFoundError: nothing there.
        ValueError: not readable, a line of another form, or a photo listed twice.
    """
    path, known = Path(path), known or {}
    if (foreign := find(path)) is not None:
        return foreign_cameras(foreign, known)
    if path.is_dir():
        from xdesc_jax.colmap.bindings.api import read_model

        model = read_model(path)
        return dict(zip(model.names, model.cameras, strict=True))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such list of intrinsics, model or database")
    with path.open("rb") as file:
        if file.read(7) == b"SQLite ":
            return database_cameras(path)
    cameras = read_queries(path, known)
    if bare := [name for name, camera in cameras.items() if camera is None]:
        raise ValueError(f"{path}: {EXPECTED}, but {bare[0]!r} (first of {len(bare)}) has no intrinsics")
    return {name: camera for name, camera in cameras.items() if camera is not None}


def database_cameras(path: Path | str) -> dict[str, Camera]:
    """Cameras by photo name of a COLMAP database, which is not changed; `known` as its prior flag says."""
    with DatabaseReader(path) as reader:
        found = {name: reader.camera(name) for name in reader.names}
    return {name: camera for name, camera in found.items() if camera is not None}


def guessed_camera(width: int, height: int) -> Camera:
    """The camera to start from where nothing is known: one coefficient of distortion, to be refined."""
    params = (FOCAL_GUESS * max(width, height), width / 2, height / 2, 0.0)
    return Camera("SIMPLE_RADIAL", width, height, params, known=False)


def is_plain(camera: Camera) -> bool:
    """Whether the principal point is in the middle of the photo and there is no distortion."""
    first = focals(camera.model)  # behind the focal lengths come the principal point and then the distortion
    centre, distortion = camera.params[first : first + 2], camera.params[first + 2 :]
    return centre == (camera.width / 2, camera.height / 2) and not any(distortion)


def choose_intrinsics(
    sizes: Mapping[str, tuple[int, int]],
    *,
    given: Camera | None = None,
    listed: Mapping[str, Camera] | None = None,
    own: Mapping[str, Camera] | None = None,
    photos: Path | None = None,
) -> dict[str, Intrinsics]:
    """The camera of each photo, from the first source that knows it.

    Args:
        sizes: photo name -> (width, height) in px as its features say; (0, 0) where they do not.
        given: for all photos (command line).
        listed: by photo name (`read_intrinsics`).
        own: of the databases that the features come from (`database_cameras`). Of one whose `known` is False
            the focal length is a guess, before which EXIF goes.
        photos: folder of the photos, for their EXIF.

    Returns:
        Photo name -> camera and source.

    Raises:
        FileNotFoundError: no such folder of photos.
        ValueError: a camera that cannot be (`check_camera`) or is of another size than its photo, a list or a folder
            that has no photo of these, a photo that cannot be read, or of whose size nothing is known.
    """
    listed, own = listed or {}, own or {}
    _check_listed(sizes, listed)
    if photos is not None:
        _check_photos(photos, sizes)
    chosen: dict[str, Intrinsics] = {}
    unsized: list[str] = []
    for name, size in sizes.items():
        source, camera = _first(name, given, listed, own, photos)
        if camera is None and size == (0, 0):
            unsized.append(name)
            continue
        camera = camera or guessed_camera(*size)
        check_camera(camera, f"camera of {name!r} ({source})")
        if size not in ((0, 0), (camera.width, camera.height)):
            raise ValueError(
                f"camera of {name!r} ({source}) is for {camera.width} x {camera.height} px, "
                f"but the photo has {size[0]} x {size[1]}"
            )
        chosen[name] = Intrinsics(camera, source)
    absent = [name for name, i in chosen.items() if photos and not i.camera.known and not (photos / name).is_file()]
    if absent:
        console.warn(f"{photos}: holds no photo {absent[:_SHOWN]} (first of {len(absent)}), whose EXIF is not known")
    if unsized:
        raise ValueError(
            f"{console.counted(len(unsized), 'photo has', 'photos have')} neither intrinsics nor a size "
            f"in a feature file, first {unsized[:_SHOWN]}; give their intrinsics or the folder of the photos"
        )
    return chosen


def _first(
    name: str, given: Camera | None, listed: Mapping[str, Camera], own: Mapping[str, Camera], photos: Path | None
) -> tuple[Source, Camera | None]:
    if given is not None:
        return "command line", given
    if name in listed:
        return "file", listed[name]
    if name in own and own[name].known:
        return "database", own[name]
    read = exif_camera(photos / name) if photos is not None and (photos / name).is_file() else None
    if read is not None and read.known:
        return "exif", read
    return ("database", own[name]) if name in own else ("guess", read)


def _check_photos(photos: Path, names: Collection[str]) -> None:
    """Raises where a folder is none, or holds no photo at all of these: a folder that was mistyped."""
    if not photos.is_dir():
        raise FileNotFoundError(f"{photos}: no such folder of photos")
    if names and not any((photos / name).is_file() for name in names):
        raise ValueError(f"{photos}: holds none of the {len(names)} photos, first {sorted(names)[:_SHOWN]}")


def _check_listed(sizes: Mapping[str, tuple[int, int]], listed: Mapping[str, Camera]) -> None:
    missing = [name for name in sizes if name not in listed]
    if not listed or not missing:
        return
    reason = (
        f"intrinsics of {len(missing)} of {len(sizes)} photos are not in the list, first {missing[:_SHOWN]}; "
        f"it has {len(listed)}, first {sorted(listed)[:_SHOWN]}"
    )
    if len(missing) == len(sizes):
        raise ValueError(reason)
    console.warn(reason)


def share_cameras(chosen: Mapping[str, Intrinsics], per: Sharing = "photo") -> dict[str, list[str]]:
    """Which photos share a camera.

    Args:
        chosen: the camera of each photo.
        per: 'photo' for one each, 'folder' for one per folder of the names, 'size' for one per photo size.

    Returns:
        Key -> photos of one camera.

    Raises:
        ValueError: photos of one camera differ in size or intrinsics.
    """
    groups: dict[str, list[str]] = {}
    for name, intrinsics in chosen.items():
        size = f"{intrinsics.camera.width} x {intrinsics.camera.height}"
        key = {"photo": name, "folder": str(PurePosixPath(name).parent), "size": size}[per]
        groups.setdefault(key, []).append(name)
    for key, names in groups.items():
        check_shared(chosen, names, f"per {per}: {key!r}")
    return groups


def check_shared(chosen: Mapping[str, Intrinsics], names: Sequence[str], which: str) -> None:
    """Raises ValueError where photos that share a camera differ in size or intrinsics; `which` names it."""
    first = chosen[names[0]].camera
    for name in names[1:]:
        if chosen[name].camera != first:
            raise ValueError(
                f"{names[0]!r} and {name!r} cannot share a camera ({which}): {names[0]!r} has {_shown(first)}, "
                f"{name!r} {_shown(chosen[name].camera)}"
            )


def _shown(camera: Camera) -> str:
    return f"{camera.model} {camera.width} x {camera.height} px {list(camera.params)}"
