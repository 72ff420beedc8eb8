"""OpenSfM's `reconstruction.json`, and `tracks.csv` beside it.

In: the JSON. Out: a `Scene` of its largest reconstruction. A shot's `rotation` is an axis times an angle and, with
`translation`, takes the world into a camera with COLMAP's axes. Lengths in photos are in units of the longer side: a
position is (x - width / 2) / longer side with the origin of x at the corner of the first pixel. Points have their
observations in `tracks.csv`; without it there is no map.

Sources: OpenSfM, "Geometric models" and "Reconstruction file format"; `tracks_manager.cc` for the tracks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.camera_models import number
from xdesc_jax.colmap.foreign.fields import Fields, from_axis_angle, shown
from xdesc_jax.colmap.foreign.scene import (
    Lens,
    Observations,
    Photo,
    Scene,
    around_lens,
    fixed_lens,
    unique_observations,
)
from xdesc_jax.colmap.model import Pose
from xdesc_jax.files.text_list import numbered_lines

TRACKS = "tracks.csv"
HEADER = "OPENSFM_TRACKS_VERSION_v"
COLUMNS = {0: 8, 1: 9, 2: 11}  # by version
# Projection -> COLMAP's model, and its parameters behind focal lengths and principal point.
_TWO_FOCALS = {
    "brown": ("FULL_OPENCV", ("k1", "k2", "p1", "p2", "k3", "", "", "")),
    "fisheye_opencv": ("OPENCV_FISHEYE", ("k1", "k2", "k3", "k4")),
    "radial": ("OPENCV", ("k1", "k2", "", "")),
    "simple_radial": ("OPENCV", ("k1", "", "", "")),
}
_ONE_FOCAL = {"perspective": "RADIAL", "fisheye": "RADIAL_FISHEYE"}
_SPHERICAL = ("spherical", "equirectangular")


def read(path: Path, content: Any) -> Scene:
    """The scene of a JSON.

    Raises:
        ValueError: a field that is missing or cannot be, a projection that COLMAP has not, or tracks of another form;
            names file and value.
    """
    if not isinstance(content, list) or not content:
        raise ValueError(f"{path}: is {shown(content)}, expected a list of reconstructions")
    parts = [Fields(part, f"{path}: reconstruction {number}") for number, part in enumerate(content)]
    shots = [len(part.fields("shots").value) for part in parts]
    best = int(np.argmax(shots))
    if len(parts) > 1:
        console.warn(f"{path}: of its {len(parts)} reconstructions the largest is taken, {shots[best]} photos")
    part = parts[best]
    lenses = {name: _lens(camera) for name, camera in part.objects("cameras")}
    photos = []
    for name, shot in part.objects("shots"):
        camera = shot.text("camera")
        if camera not in lenses:
            raise ValueError(f"{shot.where}: its camera is {camera!r}, which 'cameras' does not hold")
        turned = from_axis_angle(shot.numbers("rotation", 3), f"{shot.where}: 'rotation'")
        pose = Pose(turned, shot.numbers("translation", 3))
        photos.append(Photo(name, pose, lenses[camera]))
    held = list(part.objects("points")) if "points" in part else []
    points = np.array([point.numbers("coordinates", 3) for _, point in held]).reshape(-1, 3)
    tracks = path.with_name(TRACKS)
    if not held or not tracks.is_file():
        lacks = f"its {TRACKS} is not beside it, which says what sees its points" if held else "it holds no points"
        return Scene(path, tuple(photos), np.zeros((0, 3)), Observations.of([]), lacks=lacks, files=(path,))
    ids = {name: row for row, (name, _) in enumerate(held)}
    seen = list(_observed(tracks, ids, {photo.path: (view, photo.lens) for view, photo in enumerate(photos)}))
    observations = unique_observations(Observations.of(seen), str(tracks))
    lacks = "" if seen else f"no track of {tracks} is a point of it, seen by a photo of it"
    return Scene(path, tuple(photos), points, observations, lacks=lacks, files=(path, tracks))


def _lens(camera: Fields) -> Lens:
    size = (camera.whole("width"), camera.whole("height"))
    if min(size) < 1:
        raise ValueError(f"{camera.where}: is of {size[0]} x {size[1]} px, expected at least 1")
    projection = camera.text("projection_type") if "projection_type" in camera else "perspective"
    longer = max(size)
    middle = (size[0] / 2, size[1] / 2)
    if projection in _SPHERICAL:
        return around_lens(size, camera.where)
    if projection in _ONE_FOCAL:
        params = (camera.number("focal") * longer, *middle, camera.number("k1", 0.0), camera.number("k2", 0.0))
        return fixed_lens(_ONE_FOCAL[projection], size, params)
    if projection not in _TWO_FOCALS:
        known = ", ".join((*_ONE_FOCAL, *_TWO_FOCALS, *_SPHERICAL))
        raise ValueError(f"{camera.where}: projection is {projection!r}, expected one of {known}")
    model, keys = _TWO_FOCALS[projection]
    focals = [camera.number(f"focal_{axis}") * longer for axis in "xy"]
    centre = [camera.number(f"c_{axis}", 0.0) * longer + half for axis, half in zip("xy", middle, strict=True)]
    distortion = tuple(camera.number(key, 0.0) if key else 0.0 for key in keys)
    return fixed_lens(model, size, (*focals, *centre, *distortion))


def _observed(
    path: Path, ids: dict[str, int], views: dict[str, tuple[int, Lens]]
) -> Iterator[tuple[int, int, int, float, float]]:
    """(point, view, keypoint, x, y) of each line of the tracks that is of a point and a photo at hand."""
    columns, first = COLUMNS[0], True
    for line_number, line in numbered_lines(path, "list of tracks"):
        where = f"{path}:{line_number}"
        if first and line.startswith(HEADER):
            version = line.removeprefix(HEADER).strip()
            if version not in map(str, COLUMNS):
                raise ValueError(f"{where}: tracks have version {version!r}, expected one of {list(COLUMNS)}")
            columns, first = COLUMNS[int(version)], False
            continue
        first = False
        words = line.split("\t")
        if len(words) != columns:
            raise ValueError(f"{where}: {len(words)} values, expected {columns} with tabs between: {line[:60]!r}")
        if words[1] not in ids or words[0] not in views:
            continue
        row, x, y = (number(word) for word in words[2:5])
        if not (np.isfinite((row, x, y)).all() and row.is_integer() and row >= 0):
            raise ValueError(f"{where}: feature and position are {words[2:5]}, expected a whole number and two others")
        view, lens = views[words[0]]
        assert lens.size is not None
        longer = max(lens.size)
        yield ids[words[1]], view, int(row), x * longer + lens.size[0] / 2, y * longer + lens.size[1] / 2
