"""COLMAP's robust alignment of a model to known camera positions.

In: a model's folder and positions by photo. Out: a similarity.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.bindings.api import open_model, pycolmap

LEAST = 3  # positions that determine a similarity


def align(
    model: Path, positions: Mapping[str, np.ndarray], max_error: float, seed: int
) -> tuple[float, np.ndarray, np.ndarray] | None:
    """The similarity that takes most of a model's cameras to their positions.

    Args:
        model: its folder.
        positions: photo -> [3], photos of the model.
        max_error: distance up to which a camera supports it.
        seed: of RANSAC.

    Returns:
        (scale, rotation [3, 3], translation [3]): x_reference = scale * rotation @ x + translation; None
        where nothing fits.
    """
    options = pycolmap.RANSACOptions()
    options.max_error = max_error
    options.random_seed = seed
    reconstruction, targets = open_model(model), np.array(list(positions.values()))
    centers = [reconstruction.find_image_with_name(name).projection_center() for name in positions]
    before, after = _off_plane(np.array(centers)), _off_plane(targets)
    reconstruction.transform(pycolmap.Sim3d(1.0, pycolmap.Rotation3d(), before))
    found = pycolmap.align_reconstruction_to_locations(reconstruction, list(positions), targets + after, LEAST, options)
    if found is None:
        return None
    scale, rotation = float(found.scale), np.asarray(found.rotation.matrix())
    return scale, rotation, scale * rotation @ before + np.asarray(found.translation) - after


def _off_plane(x: np.ndarray) -> np.ndarray:
    """A shift [3] after which points [N, 3] do not lie on a plane through the origin.

    COLMAP 4.2 takes such points for degenerate, though a plane is enough, as all cameras at one height are.
    """
    centered = x - x.mean(axis=0)
    _, values, axes = np.linalg.svd(centered, full_matrices=True)
    return values[0] * axes[2] - x.mean(axis=0)
