"""True poses of photos, of whatever holds them.

In: a COLMAP model or one of another program, and the photos whose poses are asked. Out: poses by the photos' names. No
camera is needed, so a file that does not say the sizes of its photos serves, too.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from xdesc_jax.colmap.foreign.read import find, read_scene
from xdesc_jax.colmap.model import Pose


def reference_poses(path: Path, photos: Collection[str] = ()) -> dict[str, Pose]:
    """Photo -> pose.

    Args:
        path: folder of a COLMAP model, or file of another program (`foreign`).
        photos: names that are asked for; photos of other programs are called by them.

    Raises:
        FileNotFoundError: there is no model.
        ValueError: its files cannot be read.
    """
    if (file := find(path)) is not None:
        return read_scene(file).poses(photos)
    from xdesc_jax.colmap.bindings.api import read_model

    return read_model(path).poses
