"""OpenMVG's `sfm_data.json`.

In: the JSON. Out: a `Scene`. A pose is a rotation, world to camera with COLMAP's axes, and the camera's position in the
world. OpenMVG counts pixels from the centre of the first one (its photos are sampled at whole numbers), so half a pixel
is added to principal points and positions; not of spherical photos, whose middle has no parameter in COLMAP. Distortion
acts on the ideal position, as in OpenCV and COLMAP.

Source: OpenMVG, `sfm_data_io_cereal` and the cameras of `openMVG/cameras`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.foreign.fields import Fields, rotation
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

PIXEL_CENTRE = 0.5
_NAMED = 1 << 31  # a bit of cereal's number of a type, where the type's name stands beside it
SPHERICAL = "spherical"
# Type -> COLMAP's model, how OpenMVG calls its distortion, and where in COLMAP's each of its values stands.
_TYPES: dict[str, tuple[str, tuple[str, ...], tuple[int, ...]]] = {
    "pinhole": ("SIMPLE_PINHOLE", (), ()),
    "pinhole_radial_k1": ("SIMPLE_RADIAL", ("disto_k1",), (0,)),
    "pinhole_radial_k3": ("FULL_OPENCV", ("disto_k3",), (0, 1, 4)),
    "pinhole_brown_t2": ("FULL_OPENCV", ("disto_t2",), (0, 1, 4, 2, 3)),
    "fisheye": ("OPENCV_FISHEYE", ("fisheye", "disto_fisheye"), (0, 1, 2, 3)),
}
_DISTORTION = {"SIMPLE_PINHOLE": 0, "SIMPLE_RADIAL": 1, "FULL_OPENCV": 8, "OPENCV_FISHEYE": 4}  # values of it
_TWO_FOCALS = ("FULL_OPENCV", "OPENCV_FISHEYE")


def read(path: Path, content: Any) -> Scene:
    """The scene of a JSON.

    Raises:
        ValueError: a field that is missing or cannot be, a camera type that COLMAP has not; names file and value.
    """
    top = Fields(content, str(path))
    lenses = _lenses(top)
    poses = {key: _pose(value) for key, value in _entries(top, "extrinsics")}
    photos: list[Photo] = []
    views: dict[int, tuple[int, float]] = {}  # key -> row, and what is added to positions
    for key, entry in _entries(top, "views"):
        view = entry.fields("ptr_wrapper").fields("data")
        pose, intrinsic = view.whole("id_pose"), view.whole("id_intrinsic")
        if pose not in poses:
            continue  # not reconstructed
        if intrinsic not in lenses:
            raise ValueError(f"{view.where}: 'id_intrinsic' is {intrinsic}, which 'intrinsics' does not hold")
        lens, shift = lenses[intrinsic]
        views[key] = (len(photos), shift)
        folder = view.text("local_path") if view.value.get("local_path") else ""
        photos.append(Photo(f"{folder}/{view.text('filename')}".lstrip("/"), poses[pose], lens))
    points, seen = _structure(top, views) if "structure" in top else ([], [])
    observations = unique_observations(Observations.of(seen), str(path))
    lacks = "" if seen else "its 'structure' holds no point that a photo with a pose sees"
    return Scene(path, tuple(photos), np.array(points).reshape(-1, 3), observations, lacks=lacks, files=(path,))


def _entries(top: Fields, key: str) -> Iterator[tuple[int, Fields]]:
    """Key and value of each entry of a map, as cereal writes it."""
    for entry in top.list(key):
        yield entry.whole("key"), entry.fields("value")


def _pose(value: Fields) -> Pose:
    turned = rotation(value.numbers("rotation", 3, 3), f"{value.where}: 'rotation'")
    return Pose(turned, -turned @ value.numbers("center", 3))


def _lenses(top: Fields) -> dict[int, tuple[Lens, float]]:
    """Intrinsics, and what is added to positions in photos of them. cereal names a type where it first stands."""
    names: dict[int, str] = {}
    found = {}
    for key, entry in _entries(top, "intrinsics"):
        number = entry.whole("polymorphic_id")
        if "polymorphic_name" in entry:
            names[number & ~_NAMED] = entry.text("polymorphic_name")
        kind = names.get(number & ~_NAMED)
        if kind != SPHERICAL and kind not in _TYPES:
            known = ", ".join((*_TYPES, SPHERICAL))
            raise ValueError(f"{entry.where}: the type of the camera is {kind!r}, expected one of {known}")
        found[key] = _lens(entry.fields("ptr_wrapper").fields("data"), kind)
    return found


def _lens(data: Fields, kind: str) -> tuple[Lens, float]:
    if "value0" in data:  # what older versions, and spherical cameras, keep of the class below
        data = Fields({**data.fields("value0").value, **data.value}, data.where)
    size = (data.whole("width"), data.whole("height"))
    if kind == SPHERICAL:
        return around_lens(size, data.where), 0.0
    model, keys, places = _TYPES[kind]
    distortion = np.zeros(_DISTORTION[model])
    if keys:
        key = next((key for key in keys if key in data), keys[0])
        distortion[list(places)] = data.numbers(key, len(places))
    focal = data.number("focal_length")
    centre = data.numbers("principal_point", 2) + PIXEL_CENTRE
    params = (*[focal] * (1 + (model in _TWO_FOCALS)), *centre.tolist(), *distortion.tolist())
    return fixed_lens(model, size, params), PIXEL_CENTRE


def _structure(
    top: Fields, views: dict[int, tuple[int, float]]
) -> tuple[list[np.ndarray], list[tuple[int, int, int, float, float]]]:
    """Points that a photo with a pose sees, and (point, view, keypoint, x, y) of each time."""
    points: list[np.ndarray] = []
    seen: list[tuple[int, int, int, float, float]] = []
    for _, landmark in _entries(top, "structure"):
        rows = []
        for observation in landmark.list("observations"):
            key = observation.whole("key")
            if key in views:
                view, shift = views[key]
                value = observation.fields("value")
                x, y = (value.numbers("x", 2) + shift).tolist()
                rows.append((len(points), view, value.whole("id_feat"), x, y))
        if rows:
            points.append(landmark.numbers("X", 3))
            seen += rows
    return points, seen
