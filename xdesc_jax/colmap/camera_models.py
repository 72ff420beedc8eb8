"""COLMAP's camera models: their parameters, cameras from words and matrices, and what none of them can be.

In: `MODEL width height params...`, a matrix of intrinsics, or the size of a photo to guess a camera for. Out: a
checked `Camera`.
"""

from __future__ import annotations

import math

import numpy as np

from xdesc_jax.colmap.model import Camera
from xdesc_jax.console.words import counted

# COLMAP's camera models in the order of their numbers, and how many parameters each has.
PARAMETERS = {
    "SIMPLE_PINHOLE": 3, "PINHOLE": 4, "SIMPLE_RADIAL": 4, "RADIAL": 5, "OPENCV": 8, "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12, "FOV": 5, "SIMPLE_RADIAL_FISHEYE": 4, "RADIAL_FISHEYE": 5, "THIN_PRISM_FISHEYE": 12,
    "RAD_TAN_THIN_PRISM_FISHEYE": 16, "SIMPLE_DIVISION": 4, "DIVISION": 5, "SIMPLE_FISHEYE": 3, "FISHEYE": 4,
    "EUCM": 6, "EQUIRECTANGULAR": 2,
}  # fmt: skip
CAMERA_MODELS = tuple(PARAMETERS)  # by number, as databases and binary models hold it
# Those whose first two parameters are focal lengths; of the others the first is, but for EQUIRECTANGULAR.
TWO_FOCALS = {
    "PINHOLE", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV", "THIN_PRISM_FISHEYE", "RAD_TAN_THIN_PRISM_FISHEYE",
    "DIVISION", "FISHEYE", "EUCM",
}  # fmt: skip
FOCAL_GUESS = 1.2  # times the longer side, as COLMAP guesses
# What no lens has, and COLMAP's solvers never end with: focal lengths beyond these times the longer side (0.01 is a
# view of 177.7 degrees, 1000 one of 3 minutes of arc; focal lengths in mm, or in widths of the photo, are mostly
# below), a principal point further away, other parameters beyond.
FOCAL_RANGE, CENTRE_LIMIT, PARAMETER_LIMIT = (1e-2, 1e3), 100.0, 1e6
SIZE_LIMIT = 1 << 20  # px


def check_camera(camera: Camera, where: str) -> None:
    """Raises ValueError where a camera is none of COLMAP's, or none at all: its model, size or parameters.

    Every camera passes here before COLMAP sees it, whether of a list, database, model or photo.
    """
    if camera.model not in PARAMETERS:
        raise ValueError(f"{where}: camera model is {camera.model!r}, expected one of {', '.join(PARAMETERS)}")
    expected = PARAMETERS[camera.model]
    if len(camera.params) != expected:
        raise ValueError(f"{where}: {counted(len(camera.params), 'parameter')}, but {camera.model} has {expected}")
    longer = max(camera.width, camera.height)
    if min(camera.width, camera.height) <= 0 or longer > SIZE_LIMIT:
        limits = "above 0" if longer <= SIZE_LIMIT else f"at most {SIZE_LIMIT}"
        raise ValueError(f"{where}: photo size is {camera.width} x {camera.height} px, expected {limits}")
    if not all(map(math.isfinite, camera.params)):
        raise ValueError(f"{where}: parameters are {list(camera.params)}, expected finite ones")
    first = focals(camera.model)
    lengths, centre, rest = camera.params[:first], camera.params[first : first + 2], camera.params[first + 2 :]
    if bad := [focal for focal in lengths if focal <= 0]:
        raise ValueError(f"{where}: focal length is {bad[0]:g} px, expected above 0")
    low, high = (limit * longer for limit in FOCAL_RANGE)
    if bad := [focal for focal in lengths if not low <= focal <= high]:
        unit = ", in px, neither in mm nor as a share of the width" if bad[0] < low else ""
        raise ValueError(f"{where}: focal length is {bad[0]:g} px, expected {low:g} to {high:g} for {longer} px{unit}")
    if bad := [value for value in centre if abs(value) > CENTRE_LIMIT * longer]:
        raise ValueError(f"{where}: principal point is at {bad[0]:g} px, expected within {CENTRE_LIMIT * longer:g}")
    if bad := [value for value in rest if abs(value) > PARAMETER_LIMIT]:
        raise ValueError(f"{where}: a parameter is {bad[0]:g}, expected within {PARAMETER_LIMIT:g}")


def focals(model: str) -> int:
    """How many of a camera model's first parameters are focal lengths."""
    return 0 if model == "EQUIRECTANGULAR" else 1 + (model in TWO_FOCALS)


def pinhole(k: np.ndarray) -> Camera:
    """The camera of intrinsics [3, 3] without skew, in px; of a photo with the principal point in its middle."""
    width, height = (max(1, math.ceil(2 * k[axis, 2])) for axis in (0, 1))
    return Camera("PINHOLE", width, height, tuple(float(value) for value in (k[0, 0], k[1, 1], k[0, 2], k[1, 2])))


def parse_camera(text: str, where: str) -> Camera:
    """A camera of the words 'MODEL width height params...'.

    Raises:
        ValueError: an unknown model, a wrong number of parameters, or values that cannot be; says `where`.
    """
    model, *words = text.split() or [""]
    if model not in PARAMETERS:
        raise ValueError(f"{where}: camera model is {model!r}, expected one of {', '.join(PARAMETERS)}")
    values = [number(word) for word in words]
    if len(values) < 2 or not all(math.isfinite(v) for v in values):
        raise ValueError(f"{where}: expected 'MODEL width height params...' with finite numbers: {text!r}")
    if not all(v.is_integer() for v in values[:2]):
        raise ValueError(f"{where}: photo size is {values[0]:g} x {values[1]:g} px, expected whole numbers")
    camera = Camera(model, int(values[0]), int(values[1]), tuple(values[2:]))
    check_camera(camera, where)
    return camera


def camera_option(text: str | None) -> Camera | None:
    """The camera that `--camera` names; None where it is not given.

    Raises:
        ValueError: as `parse_camera`.
    """
    return parse_camera(text, "--camera") if text is not None else None


def guessed_pinhole(width: int, height: int) -> Camera:
    """The camera to localise a photo with of which nothing but its size (px) is known: without distortion, since a pose
    refines the focal length alone; `known` is False."""
    params = (FOCAL_GUESS * max(width, height), width / 2, height / 2)
    return Camera("SIMPLE_PINHOLE", width, height, params, known=False)


def number(word: str) -> float:
    """The word's value; NaN where it is no number."""
    try:
        return float(word)
    except ValueError:
        return math.nan
