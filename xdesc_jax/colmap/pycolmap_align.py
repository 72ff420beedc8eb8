"""COLMAP's robust alignment of a model to known camera positions.

In: a model's folder and positions by photo. Out: a similarity.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.pycolmap_api import pycolmap

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
    found = pycolmap.align_reconstruction_to_locations(
        pycolmap.Reconstruction(model), list(positions), np.array(list(positions.values())), LEAST, options
    )
    if found is None:
        return None
    return float(found.scale), np.asarray(found.rotation.matrix()), np.asarray(found.translation)
