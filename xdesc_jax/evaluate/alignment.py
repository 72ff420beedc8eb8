"""A model in the frame of a reference: robust alignment to its camera positions.

In: a model and reference poses. Out: the model in the reference's frame, or why it cannot be aligned; a model
that is not aligned is never compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.model import Model, Pose

# Ratio of the second to the first singular value of centred positions below which they lie on a line; the turn
# about it would be chance.
LINE = 1e-3
LEAST = 3


class NotAlignable(ValueError):
    """Why a model has no place in the reference's frame."""


@dataclasses.dataclass(frozen=True)
class Similarity:
    """x_reference = scale * rotation @ x + translation."""

    scale: float
    rotation: np.ndarray
    translation: np.ndarray

    def points(self, x: np.ndarray) -> np.ndarray:
        """[N, 3] points in the reference's frame."""
        return self.scale * np.asarray(x) @ self.rotation.T + self.translation

    def pose(self, pose: Pose) -> Pose:
        """A camera in the reference's frame, its translation in the reference's units."""
        rotation = pose.rotation @ self.rotation.T
        return Pose(rotation, -rotation @ self.points(pose.center))


def align(path: Path, model: Model, reference: Mapping[str, Pose], max_error: float, seed: int = 0) -> Similarity:
    """Aligns a model to the reference's camera positions, robustly (COLMAP's RANSAC).

    Args:
        path: the model's folder.
        model: the same as arrays.
        reference: photo -> true pose; photos that the model lacks are ignored.
        max_error: distance up to which a camera supports the alignment, in the reference's units.
        seed: of RANSAC.

    Raises:
        NotAlignable: with the reason.
    """
    from xdesc_jax.colmap.bindings import alignment

    poses = model.poses
    common = [name for name in model.names if name in reference]
    check(np.array([poses[name].center for name in common]), np.array([reference[name].center for name in common]))
    found = alignment.align(path, {name: reference[name].center for name in common}, max_error, seed)
    if found is None:
        raise NotAlignable(
            f"no similarity brings {LEAST} of {len(common)} photos within {max_error:g} of the reference"
        )
    similarity = Similarity(*found)
    if not (np.isfinite(similarity.scale) and similarity.scale > 0):
        raise NotAlignable(f"the alignment has scale {similarity.scale}, expected a number above 0")
    moved = similarity.points(np.array([poses[name].center for name in common]))
    distance = np.linalg.norm(moved - [reference[name].center for name in common], axis=1)
    support = int(np.sum(distance <= max_error))
    if support < LEAST:
        raise NotAlignable(
            f"{support} of {len(common)} photos lie within {max_error:g} of the reference after alignment"
        )
    return similarity


def check(centers: np.ndarray, reference: np.ndarray) -> None:
    """Raises NotAlignable where positions [N, 3] do not determine a similarity."""
    if len(centers) < LEAST:
        raise NotAlignable(f"{len(centers)} registered photos are in the reference, expected at least {LEAST}")
    for what, x in (("registered photos", centers), ("the reference's photos", reference)):
        if not np.isfinite(x).all():
            raise NotAlignable(f"positions of {what} are not finite")
        values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
        if values[0] <= 1e-12 * max(1.0, float(np.abs(x).max())):
            raise NotAlignable(f"all {len(x)} positions of {what} are equal")
        if values[1] <= LINE * values[0]:
            raise NotAlignable(f"all {len(x)} positions of {what} lie on one line")
