"""The camera of each query.

In: the query list, and where it does not say them, one camera for all, a list, model or database of intrinsics, the
database that the queries' features come from, or the photos' EXIF: the order of `colmap.cameras`, as `xdesc
reconstruct` has it. Out: a camera a query, guessed where nothing knows it and that is allowed.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax import console
from xdesc_jax.colmap.camera_models import guessed_pinhole
from xdesc_jax.colmap.cameras import Intrinsics, choose_intrinsics, database_cameras, read_intrinsics
from xdesc_jax.colmap.database import is_database
from xdesc_jax.colmap.lists import read_queries
from xdesc_jax.colmap.model import Camera
from xdesc_jax.matching.feature_set import FeatureSet

SHOWN = 5


def query_cameras(
    queries: Path | None,
    asked: FeatureSet,
    assume_focal: bool,
    intrinsics: Path | None = None,
    photos: Path | None = None,
    camera: Camera | None = None,
) -> dict[str, Camera]:
    """The camera of each query, in the order of the list.

    Args:
        queries: the query list, with intrinsics or names alone; None where all photos of `asked` are queries.
        asked: the features of the queries.
        assume_focal: guess what nothing knows; `known` is False then.
        intrinsics: list, COLMAP model or database, of queries that are listed without.
        photos: folder of the queries' photos, for their EXIF.
        camera: of all queries that are listed without (command line).

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: queries that the features lack, without intrinsics, or of another size than their photo; `camera`
            and `intrinsics` at once.
    """
    if camera is not None and intrinsics is not None:
        raise ValueError(f"{intrinsics}: --intrinsics and --camera both say cameras of the same queries; give one")
    listed = read_queries(queries, asked.names) if queries is not None else dict.fromkeys(asked.names)
    asked.check_names(list(listed), f"query list {queries}")
    where = queries if queries is not None else ", ".join(map(str, asked.paths))
    given = {name: camera for name, camera in listed.items() if camera is not None}
    sizes = {name: asked.image_size(name) for name in listed}
    for name, own in given.items():
        if min(sizes[name]) > 0 and (own.width, own.height) != sizes[name]:
            raise ValueError(
                f"{queries}: the camera of {name!r} has {own.width} x {own.height} px, but its features in "
                f"{asked.path(name)} are of a photo of {sizes[name][0]} x {sizes[name][1]} px"
            )
    bare = {name: size for name, size in sizes.items() if name not in given}
    if camera is not None and not bare:
        console.warn(f"{queries}: says the cameras of all {len(listed)} queries, so none takes that of --camera")
    found = _found(bare, asked, intrinsics, photos, assume_focal, camera) if bare else {}
    unknown = [name for name in bare if name not in found or not found[name].camera.known]
    if unknown and not assume_focal:
        exif = "EXIF of --photos does not say them" if photos is not None else "EXIF of --photos may say them"
        raise ValueError(
            f"{where}: {console.counted(len(unknown), 'query has', 'queries have')} no intrinsics ('name MODEL width "
            f"height params...'), first {unknown[:SHOWN]}; {exif}, --camera and --intrinsics do, --assume-focal guesses"
        )
    for name in unknown:
        size = sizes[name] if name not in found else (found[name].camera.width, found[name].camera.height)
        if min(size) <= 0:
            raise ValueError(f"{asked.path(name)}: does not say the size of {name!r}, so no camera can be guessed")
        given[name] = guessed_pinhole(*size)
    return {name: given[name] if name in given else found[name].camera for name in listed}


def _found(
    sizes: dict[str, tuple[int, int]],
    asked: FeatureSet,
    intrinsics: Path | None,
    photos: Path | None,
    guess: bool,
    camera: Camera | None,
) -> dict[str, Intrinsics]:
    """Intrinsics of queries whose size or camera anything tells."""
    listed = read_intrinsics(intrinsics, sizes) if intrinsics is not None else {}
    if listed and not listed.keys() & sizes.keys():
        lacks = f"{intrinsics}: holds cameras of {sorted(listed)[:SHOWN]}, but of none of the {len(sizes)} queries"
        if not guess:
            raise ValueError(
                f"{lacks}, first {sorted(sizes)[:SHOWN]}; --camera says it of all, --assume-focal guesses them"
            )
        console.warn(lacks)
        listed = {}
    own: dict[str, Camera] = {}
    for path in asked.paths:
        if is_database(path):
            own |= database_cameras(path)
    any_size = camera is not None or photos is not None
    told = {n: size for n, size in sizes.items() if min(size) > 0 or n in listed or n in own or any_size}
    return choose_intrinsics(told, given=camera, listed=listed, own=own, photos=photos)
