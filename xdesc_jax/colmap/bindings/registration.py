"""New photos in a COLMAP model.

In: a model's folder, and photos with cameras, poses and the points that their keypoints observe. Out: a model with
them; everything that was there stays as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.bindings.api import open_model, pycolmap, write_model
from xdesc_jax.colmap.model import Camera, Pose


@dataclasses.dataclass(frozen=True)
class NewPhoto:
    """A photo to add.

    Attributes:
        name: not in the model yet.
        camera, pose: its own.
        xy: [N, 2] px, with COLMAP's origin at the corner of the first pixel.
        point: [N] int, which point a keypoint observes, counted as `read_model` does; -1 for none.
    """

    name: str
    camera: Camera
    pose: Pose
    xy: np.ndarray
    point: np.ndarray


def add_photos(model: Path, out: Path, photos: Sequence[NewPhoto]) -> None:
    """Writes a copy of a model with further photos, each with a camera, a rig and a frame of its own.

    Args:
        model: folder of the model.
        out: folder to write into; it exists.
        photos: to add.
    """
    reconstruction = open_model(model)
    point_ids = np.array(sorted(reconstruction.points3D))
    # A trivial rig has its camera's id, and a trivial frame its image's.
    taken = (reconstruction.cameras, reconstruction.rigs, reconstruction.images, reconstruction.frames)
    last = max((max(ids) for ids in taken if ids), default=0)
    for image_id, photo in enumerate(photos, start=last + 1):
        reconstruction.add_camera_with_trivial_rig(_camera(photo.camera, image_id))
        xy = np.ascontiguousarray(photo.xy, np.float64)
        image = pycolmap.Image(name=photo.name, keypoints=xy, camera_id=image_id, image_id=image_id)
        rigid = pycolmap.Rigid3d(pycolmap.Rotation3d(photo.pose.rotation), photo.pose.translation)
        reconstruction.add_image_with_trivial_frame(image, rigid)
        for row in np.flatnonzero(photo.point >= 0).tolist():
            point_id = int(point_ids[photo.point[row]])
            reconstruction.add_observation(point_id, pycolmap.TrackElement(image_id, row))
    write_model(reconstruction, out)


def _camera(camera: Camera, camera_id: int = 1) -> pycolmap.Camera:
    found = pycolmap.Camera(
        camera_id=camera_id, model=camera.model, width=camera.width, height=camera.height, params=list(camera.params)
    )
    found.has_prior_focal_length = camera.known
    return found
