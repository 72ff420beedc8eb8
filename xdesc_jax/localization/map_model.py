"""The sparse model that a map is made of: COLMAP's, or one of another program.

In: its path, and the features that it was made from. Out: the model as arrays, whose photos are called as those of the
features are.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.foreign.read import why_no_points
from xdesc_jax.colmap.model import Model
from xdesc_jax.matching.feature_set import FeatureSet


def read_map(path: Path, features: FeatureSet) -> Model:
    """Reads a model to localise in.

    Args:
        path: folder of a COLMAP model, or a file of another program (`colmap.foreign`).
        features: what it was made from.

    Raises:
        FileNotFoundError: there is no model.
        ValueError: as `read_model`, or it has no points that its photos see.
    """
    model = read_model(path, {name: features.image_size(name) for name in features.names})
    if not len(model.points) or not len(model.point):
        why = f" ({lacks})" if (lacks := why_no_points(path)) else ""
        raise ValueError(f"{path}: holds no 3D points, so nothing can be localised in it{why}")
    return model
