"""Photos of the corner of a room with textured walls, of known cameras and surfaces: a scene to try things on.

In: nothing. Out: a scene (see `map_scene`): rendered photos, and the true model of their cameras.
"""

from __future__ import annotations

import functools
from pathlib import Path

import cv2
import numpy as np

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.features.keypoints import COLMAP_CENTER
from xdesc_jax.files.whole import atomic

WIDTH, HEIGHT, FOCAL = 320, 240, 300.0
WALL_PX, PX_PER_UNIT = 480, 96.0
DEPTH, SLANT = 5.0, 0.6  # walls at z = DEPTH - SLANT |x|
# Positions of the cameras; all look at the corner, and the last is turned by 30 degrees and further away.
POSITIONS = [(-1.2, 0.0, 0.2), (-0.6, 0.3, 0.0), (0.0, -0.2, 0.1), (0.6, 0.2, 0.3), (1.2, 0.0, -0.2), (0.3, 0.1, -1.0)]
TURNS_DEG = [0, 0, 0, 0, 0, 30]
K = np.array([[FOCAL, 0, (WIDTH - 1) / 2], [0, FOCAL, (HEIGHT - 1) / 2], [0, 0, 1]])  # origin: centre of a pixel


def camera(view: int) -> tuple[np.ndarray, np.ndarray]:
    """Rotation [3, 3] and translation [3] from the world to a camera."""
    centre = np.array(POSITIONS[view])
    z = np.array([0, 0, DEPTH]) - centre
    z /= np.linalg.norm(z)
    x = np.cross([0.0, 1.0, 0.0], z)
    x /= np.linalg.norm(x)
    turn = np.deg2rad(TURNS_DEG[view])
    roll = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    rotation = roll @ np.stack([x, np.cross(z, x), z])
    return rotation, -rotation @ centre


@functools.cache
def wall(seed: int) -> np.ndarray:
    """Random texture with detail at several scales, gray uint8 [WALL_PX, WALL_PX]."""
    rng = np.random.default_rng(seed)
    total = np.zeros((WALL_PX, WALL_PX), np.float32)
    for sigma in (2.0, 5.0, 12.0):
        noise = cv2.GaussianBlur(rng.standard_normal(total.shape).astype(np.float32), (0, 0), sigma)
        total += noise / noise.std()
    return np.clip(128 + 40 * total, 1, 255).astype(np.uint8)


def photo(view: int, seed: int = 0) -> np.ndarray:
    """What a camera sees, gray uint8 [HEIGHT, WIDTH]."""
    rotation, translation = camera(view)
    shown = np.zeros((HEIGHT, WIDTH), np.uint8)
    for side in (-1, 1):
        # A texture's pixel (column u, row v) is the world's origin + u along + v down.
        along = np.array([side, 0, -SLANT]) / np.hypot(1, SLANT) / PX_PER_UNIT
        down = np.array([0, 1, 0]) / PX_PER_UNIT
        origin = np.array([0, 0, DEPTH]) - down * WALL_PX / 2
        to_photo = K @ np.stack([rotation @ along, rotation @ down, rotation @ origin + translation], axis=1)
        warped = cv2.warpPerspective(wall(2 * seed + (side > 0)), to_photo, (WIDTH, HEIGHT))
        shown = np.where(warped > 0, warped, shown)
    return shown


def save_photos(folder: Path, seed: int = 0) -> list[str]:
    """Writes a photo of each camera; their names, sorted."""
    folder.mkdir(parents=True)
    names = [f"{view}.png" for view in range(len(POSITIONS))]
    for view, name in enumerate(names):
        cv2.imwrite(str(folder / name), photo(view, seed))
    return names


def save_scene(folder: Path, seed: int = 0) -> Path:
    """Writes a scene where there is none yet; gives its folder.

    Besides `images/` and `reference/`, the true model without points: `queries.txt`, the list of every third photo
    with its intrinsics, and `map.txt`, the names of the others.
    """
    if folder.exists():
        return folder
    with atomic(folder) as temporary:
        names = save_photos(temporary / "images", seed)
        model = pycolmap.Reconstruction()
        params = [FOCAL, FOCAL, *(K[:2, 2] + COLMAP_CENTER).tolist()]
        pinhole = pycolmap.Camera(camera_id=1, model="PINHOLE", width=WIDTH, height=HEIGHT, params=params)
        model.add_camera_with_trivial_rig(pinhole)
        for view, name in enumerate(names):
            rotation, translation = camera(view)
            image = pycolmap.Image(name=name, camera_id=1, image_id=view + 1)
            pose = pycolmap.Rigid3d(pycolmap.Rotation3d(rotation), translation)
            model.add_image_with_trivial_frame(image, pose)
        queries = names[2::3]
        intrinsics = " ".join(map(str, ["PINHOLE", WIDTH, HEIGHT, *params]))
        (temporary / "queries.txt").write_text("".join(f"{name} {intrinsics}\n" for name in queries))
        (temporary / "map.txt").write_text("".join(f"{name}\n" for name in names if name not in queries))
        (temporary / "reference").mkdir()
        model.write_text(temporary / "reference")
    return folder
