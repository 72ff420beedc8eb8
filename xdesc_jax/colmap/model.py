"""A sparse model as arrays: what `pycolmap_api.read_model` gives and the users of models take."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Model:
    """A sparse model of V registered photos and P points with M observations, as arrays.

    Attributes:
        names: the photos.
        rotations: [V, 3, 3] and
        translations: [V, 3] take a world point into a photo's camera: R X + t.
        focals_px: [V].
        points: [P, 3], world coordinates.
        point: [M] int, which point an observation is of; ascending.
        view: [M] int, index into `names`.
        keypoint: [M] int, row of the keypoint in the database.
        residual_px: [M], distance of the projected point from the keypoint.
    """

    names: tuple[str, ...]
    rotations: np.ndarray
    translations: np.ndarray
    focals_px: np.ndarray
    points: np.ndarray
    point: np.ndarray
    view: np.ndarray
    keypoint: np.ndarray
    residual_px: np.ndarray
