"""A scene of another program as the files of a COLMAP model, which COLMAP's own code reads.

In: a `Scene` and its cameras. Out: cameras.bin, images.bin and points3D.bin in a folder. A photo has the keypoints that
see a point alone; which rows they are in the program's own files is told apart. Imports numpy alone.

Source: COLMAP, "Output format".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.camera_models import CAMERA_MODELS
from xdesc_jax.colmap.foreign.scene import Scene
from xdesc_jax.colmap.model import Camera

_KEYPOINT = np.dtype([("xy", "<f8", 2), ("point_id", "<i8")])
_ELEMENT = np.dtype([("image", "<u4"), ("row", "<u4")])


def write(scene: Scene, names: list[str], cameras: Mapping[str, Camera], folder: Path) -> list[np.ndarray]:
    """Writes a scene; photo i has the ids i + 1 of image and camera, point i the id i + 1.

    Args:
        scene: what is written.
        names: of its photos.
        cameras: of all of them.
        folder: an existing one.

    Returns:
        Of each photo, the rows of the keypoints that are written, [N] int64.
    """
    seen = scene.observations
    order = np.lexsort((seen.keypoint, seen.view))
    seen = seen.take(order)
    middles = np.array([(cameras[name].width / 2, cameras[name].height / 2) for name in names])
    xy = seen.xy + (middles[seen.view] if scene.from_middle else 0)
    bounds = np.searchsorted(seen.view, np.arange(len(names) + 1))
    row = np.arange(len(seen.view)) - bounds[seen.view]
    with (folder / "cameras.bin").open("wb") as file:
        file.write(struct.pack("<Q", len(names)))
        for i, camera in enumerate(cameras[name] for name in names):
            head = (i + 1, CAMERA_MODELS.index(camera.model), camera.width, camera.height)
            file.write(struct.pack(f"<IiQQ{len(camera.params)}d", *head, *camera.params))
    with (folder / "images.bin").open("wb") as file:
        file.write(struct.pack("<Q", len(names)))
        for i, (name, photo) in enumerate(zip(names, scene.photos, strict=True)):
            own = slice(bounds[i], bounds[i + 1])
            pose = (*photo.pose.quaternion.tolist(), *photo.pose.translation.tolist())
            keypoints = np.empty(bounds[i + 1] - bounds[i], _KEYPOINT)
            keypoints["xy"], keypoints["point_id"] = xy[own], seen.point[own] + 1
            file.write(struct.pack("<I7dI", i + 1, *pose, i + 1) + name.encode() + b"\0")
            file.write(struct.pack("<Q", len(keypoints)) + keypoints.tobytes())
    by_point = np.lexsort((seen.view, seen.point))
    starts = np.searchsorted(seen.point[by_point], np.arange(len(scene.points) + 1))
    track = np.empty(len(by_point), _ELEMENT)
    track["image"], track["row"] = seen.view[by_point] + 1, row[by_point]
    held = np.flatnonzero(np.diff(starts))
    with (folder / "points3D.bin").open("wb") as file:
        file.write(struct.pack("<Q", len(held)))
        for i in held.tolist():
            elements = track[starts[i] : starts[i + 1]]
            file.write(struct.pack("<Q3d3Bd", i + 1, *scene.points[i].tolist(), 0, 0, 0, 0.0))
            file.write(struct.pack("<Q", len(elements)) + elements.tobytes())
    return [seen.keypoint[bounds[i] : bounds[i + 1]] for i in range(len(names))]
