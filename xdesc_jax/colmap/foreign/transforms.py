"""`transforms.json`: poses and intrinsics as NeRF, instant-ngp and nerfstudio write them.

In: the JSON. Out: a `Scene` without points. A photo's `transform_matrix` takes the camera, whose axes are OpenGL's (x
right, y up, z backwards), into the world. Intrinsics stand at the top, in a frame, or in both, where the frame's count.
The principal point has its origin at the corner of the first pixel, as COLMAP's.

Sources: nerfstudio, "Data conventions"; instant-ngp, docs/nerf_dataset_tips.md and `read_lens`.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.foreign.fields import Fields, rotation, shown
from xdesc_jax.colmap.foreign.scene import FLIP, Lens, Observations, Photo, Scene
from xdesc_jax.colmap.model import Camera, Pose

LACKS = "it holds poses and intrinsics alone, no points"
PERSPECTIVE = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "PERSPECTIVE")
FISHEYE = ("OPENCV_FISHEYE", "FISHEYE")
_DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".JPG", ".PNG", ".bmp", ".webp", ".tif", ".tiff")


def read(path: Path, content: Any) -> Scene:
    """The scene of a JSON.

    Raises:
        ValueError: a field that is missing or cannot be, a camera model that COLMAP has not; names file and value.
    """
    top = Fields(content, str(path))
    photos = []
    for frame in top.list("frames"):
        merged = Fields({**{k: v for k, v in top.value.items() if k != "frames"}, **frame.value}, frame.where)
        matrix = frame.get("transform_matrix")
        rows = 3 if isinstance(matrix, list) and len(matrix) == 3 else 4
        to_world = frame.numbers("transform_matrix", rows, 4)
        turned = rotation(to_world[:3, :3], f"{frame.where}: 'transform_matrix'")
        from_world = (turned @ FLIP).T
        photos.append(
            Photo(_file(path, frame.text("file_path")), Pose(from_world, -from_world @ to_world[:3, 3]), _lens(merged))
        )
    return Scene(path, tuple(photos), np.zeros((0, 3)), Observations.of([]), lacks=LACKS, files=(path,))


def _file(path: Path, name: str) -> str:
    """A photo's path; without a suffix, as NeRF's synthetic scenes have it, that of the file there, or .png."""
    name = name.replace("\\", "/")
    if Path(name).suffix.lower() in {suffix.lower() for suffix in _SUFFIXES} or (path.parent / name).is_file():
        return name
    if Path(name).suffix:
        return name
    return next((name + suffix for suffix in _SUFFIXES if (path.parent / (name + suffix)).is_file()), name + ".png")


def _lens(fields: Fields) -> Lens:
    size = (fields.whole("w"), fields.whole("h")) if "w" in fields or "h" in fields else None
    model = str(fields.value.get("camera_model") or _model_of_flags(fields)).upper()
    if model == "EQUIRECTANGULAR":
        return Lens(size, lambda w, h: Camera(model, w, h, (float(w), float(h))))
    if model not in (*PERSPECTIVE, *FISHEYE):
        known = ", ".join((*PERSPECTIVE, *FISHEYE, "EQUIRECTANGULAR"))
        raise ValueError(f"{fields.where}: camera model is {model!r}, expected one of {known}")
    k1, k2, k3, k4, p1, p2 = _distortion(fields)
    name = "PINHOLE"
    distortion: tuple[float, ...] = ()
    if model in FISHEYE:
        if p1 or p2:
            raise ValueError(f"{fields.where}: 'p1' and 'p2' are {p1}, {p2}, which a fisheye lens of OpenCV has not")
        name, distortion = "OPENCV_FISHEYE", (k1, k2, k3, k4)
    elif k4:
        raise ValueError(f"{fields.where}: 'k4' is {k4}, a term of r^8, which no camera model of COLMAP has")
    elif k3:
        name, distortion = "FULL_OPENCV", (k1, k2, p1, p2, k3, 0.0, 0.0, 0.0)
    elif any((k1, k2, p1, p2)):
        name, distortion = "OPENCV", (k1, k2, p1, p2)
    _focals(fields, 1, 1)  # says what is missing while the file is read
    return Lens(size, functools.partial(_camera, fields, name, distortion))


def _camera(fields: Fields, model: str, distortion: tuple[float, ...], width: int, height: int) -> Camera:
    centre = fields.number("cx", width / 2), fields.number("cy", height / 2)
    return Camera(model, width, height, (*_focals(fields, width, height), *centre, *distortion))


def _focals(fields: Fields, width: int, height: int) -> tuple[float, float]:
    """Focal lengths in px; a missing one is as the other."""
    x, y = _focal(fields, "x", width), _focal(fields, "y", height)
    if x is None and y is None:
        raise ValueError(
            f"{fields.where}: says no focal length, expected 'fl_x' in px, 'camera_angle_x' in radians or 'x_fov' in "
            "degrees, there or at the top"
        )
    return (x or y or 0.0), (y or x or 0.0)


def _focal(fields: Fields, axis: str, length: int) -> float | None:
    if f"fl_{axis}" in fields:
        return fields.number(f"fl_{axis}")
    if f"camera_angle_{axis}" in fields:
        angle = fields.number(f"camera_angle_{axis}")
    elif f"{axis}_fov" in fields:
        angle = math.radians(fields.number(f"{axis}_fov"))
    else:
        return None
    if not 0 < angle < math.pi:
        raise ValueError(f"{fields.where}: the field of view along {axis} is {angle:g} rad, expected 0 to pi")
    return length / 2 / math.tan(angle / 2)


def _model_of_flags(fields: Fields) -> str:
    """What instant-ngp says by flags."""
    for flag, model in (("ftheta_p0", "FTHETA"), ("latlong", "LATLONG"), ("equirectangular", "EQUIRECTANGULAR")):
        if fields.value.get(flag):
            return model
    return "OPENCV_FISHEYE" if fields.value.get("is_fisheye") else "OPENCV"


def _distortion(fields: Fields) -> tuple[float, ...]:
    """k1, k2, k3, k4, p1, p2."""
    if "distortion_params" in fields:
        given = fields.get("distortion_params")
        if not isinstance(given, list) or len(given) != len(_DISTORTION):
            told = ", ".join(_DISTORTION)
            raise ValueError(f"{fields.where}: 'distortion_params' is {shown(given)}, expected {told}")
        return tuple(fields.numbers("distortion_params", len(_DISTORTION)).tolist())
    return tuple(fields.number(key, 0.0) for key in _DISTORTION)
