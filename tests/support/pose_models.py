"""COLMAP models that hold poses alone, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.model import Pose


def write_model(folder: Path, poses: Mapping[str, Pose]) -> Path:
    """Writes a model of some poses; gives its folder."""
    model = pycolmap.Reconstruction()
    model.add_camera_with_trivial_rig(
        pycolmap.Camera(camera_id=1, model="SIMPLE_PINHOLE", width=8, height=6, params=[9, 4, 3])
    )
    for i, (name, pose) in enumerate(poses.items(), start=1):
        image = pycolmap.Image(name=name, camera_id=1, image_id=i)
        model.add_image_with_trivial_frame(
            image, pycolmap.Rigid3d(pycolmap.Rotation3d(pose.rotation), pose.translation)
        )
    folder.mkdir()
    model.write_text(folder)
    return folder
