"""Which program a model is of, and its scene: the one place that knows all formats.

In: a path that somebody gave as a reference, a map or intrinsics. Out: the file of another program, or None where it is
none of them (a COLMAP model, a list, a database); and its `Scene`. A file is known by how it begins, a folder by a file
in it of the program's own name. Imports numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdesc_jax.colmap.foreign import bundler, nvm, openmvg, opensfm, transforms
from xdesc_jax.colmap.foreign.scene import Scene
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.colmap.model_files import PARTS
from xdesc_jax.files.whole import read_json

# In a folder; of several the first.
_IN_FOLDERS = ("transforms.json", "reconstruction.json", "sfm_data.json", "bundle.out", "*.nvm")
_COLMAP = ("images.bin", "images.txt")
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
KNOWN = "transforms.json, OpenSfM's reconstruction.json, OpenMVG's sfm_data.json, bundle.out or .nvm"


def find(path: Path | str) -> Path | None:
    """The file of another program at a path; None where there is none."""
    path = Path(path)
    if path.is_dir():
        if any((path / name).exists() for name in _COLMAP):
            return None
        found = (file for pattern in _IN_FOLDERS for file in sorted(path.glob(pattern)) if file.is_file())
        return next(found, None)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(256)
    for mark in _MARKS:
        start = start.removeprefix(mark)
    start = start.replace(b"\0", b"").lstrip()  # UTF-16, as Windows' editors write it
    texts = start.startswith((b"{", b"[", bundler.HEADER.encode(), b"NVM_V"))
    return path if texts else None


def read_scene(path: Path) -> Scene:
    """The scene of a file that `find` found.

    Raises:
        FileNotFoundError: a file beside it is missing that it needs.
        ValueError: cut short, of no program that is known, without a photo, or with a value that cannot be; names file
            and value.
    """
    first = _first(path)
    if first in ("{", "["):
        scene = _of_json(path, read_json(path))
    else:
        scene = bundler.read(path) if first == "#" else nvm.read(path)
    if not scene.photos:
        raise ValueError(f"{path}: holds no photo with a pose")
    return scene


def _of_json(path: Path, content: Any) -> Scene:
    if isinstance(content, list):
        return opensfm.read(path, content)
    if "frames" in content:
        return transforms.read(path, content)
    if "sfm_data_version" in content or "extrinsics" in content:
        return openmvg.read(path, content)
    keys = ", ".join(map(repr, list(content)[:5]))
    raise ValueError(f"{path}: is a JSON of {keys}, expected {KNOWN}")


def files_of(path: Path | str) -> list[Path]:
    """All files that a model consists of, sorted: those of COLMAP's folder, or what another program's is read of.

    Raises:
        FileNotFoundError: a file beside it is missing that it needs.
    """
    path = Path(path)
    if (file := find(path)) is None:
        return sorted(file for file in path.glob("*") if file.stem in PARTS and file.suffix in (".bin", ".txt"))
    if file.suffix == ".json":
        return [file, *(beside for beside in [file.with_name(opensfm.TRACKS)] if beside.is_file())]
    return [file, *([bundler.list_of(file)] if _first(file) == "#" else [])]


def _first(path: Path) -> str:
    """The first character of a text."""
    with path.open("rb") as file:
        start = file.read(256)
    for mark in _MARKS:
        start = start.removeprefix(mark)
    return start.replace(b"\0", b"").lstrip()[:1].decode("ascii", "replace")


def why_no_points(path: Path | str) -> str:
    """Why the model of another program has no points, in words; '' where it has, or is COLMAP's."""
    file = find(path)
    return read_scene(file).lacks if file is not None else ""


def poses(path: Path, known: Mapping[str, Any]) -> dict[str, Pose]:
    """Photo -> pose of a file that `find` found; `known` are names of photos, by which its own are called."""
    return read_scene(path).poses(known)


def cameras(path: Path, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Camera]:
    """Photo -> camera of a file that `find` found; of the photos of `sizes` where any are given."""
    return read_scene(path).cameras(sizes, all_photos=not sizes)
