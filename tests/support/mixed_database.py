"""A COLMAP 4 database in which some photos hold SIFT and some ALIKED, and a translator of both, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.exact_scene import Scene
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.features.keypoints import Keypoints, to_colmap
from xdesc_jax.translation.bundle import Bundle

WIDTH, HARMONICS = 32, 2
TURNED = 0.45  # how far a value of a SIFT row follows its keypoint's orientation
SPECS = {name: get_spec(name) for name in ("colmap-sift", "aliked-n16rot")}


def codes(points: int) -> np.ndarray:
    """What both descriptors tell of a point, unit rows [P, WIDTH]."""
    return unit_rows(np.random.default_rng(5).normal(size=(points, WIDTH)))


def aliked_rows(code: np.ndarray) -> np.ndarray:
    """float32 [N, 128]: the code, and zeros."""
    return np.pad(code, ((0, 0), (0, 128 - WIDTH))).astype(np.float32)


def sift_rows(code: np.ndarray, oris: np.ndarray) -> np.ndarray:
    """uint8 [N, 128]: the code's positive and negative parts, and a value that turns with the keypoint."""
    turn = TURNED * (1 + np.cos(oris)) / 2
    rest = np.sqrt(1 - turn**2)[:, None] * np.hstack([np.maximum(code, 0), np.maximum(-code, 0)])
    rows = np.pad(np.hstack([rest, turn[:, None]]), ((0, 0), (0, 127 - 2 * WIDTH)))
    return np.rint(512 * rows).clip(0, 255).astype(np.uint8)


def translator(path: Path) -> Path:
    """A model whose space of frame 'image' has a code in its first values, and 0 in the last one.

    The encoder of SIFT takes out what turns with the keypoint, so it gives codes only where it is told the frames.
    """
    extra = 2 * HARMONICS + 1
    sift, aliked = np.zeros((128 + extra, WIDTH + 1), np.float32), np.zeros((128, WIDTH + 1), np.float32)
    for i in range(WIDTH):
        sift[i, i], sift[WIDTH + i, i], aliked[i, i] = 1, -1, 1
    sift[2 * WIDTH, WIDTH], sift[128, WIDTH] = 1, -TURNED / 2  # 128 is the cosine of the orientation
    lift = np.zeros(WIDTH + 1, np.float32)
    lift[WIDTH] = -TURNED / 2
    out = np.zeros((WIDTH + 1, 128), np.float32)
    out[:WIDTH, :WIDTH] = np.eye(WIDTH)
    networks = {
        "encoder/colmap-sift": [(sift, lift)],
        "encoder/aliked-n16rot": [(aliked, np.zeros(WIDTH + 1, np.float32))],
        "decoder/aliked-n16rot": [(out, np.zeros(128, np.float32))],
    }
    bundle = Bundle("encoder_decoder", SPECS, WIDTH + 1, networks, frame="image", harmonics=HARMONICS)
    return bundle.save(path)


def write_mixed(path: Path, scene: Scene, camera: pycolmap.Camera, sift: tuple[str, ...]) -> Path:
    """A scene's photos in a database as COLMAP 4 makes it: those of `sift` with SIFT, the others with ALIKED.

    Keypoints of SIFT lie anyhow turned; those of ALIKED have 6 columns that say nothing of it, as COLMAP's have.
    """
    types = pycolmap.FeatureExtractorType
    told = codes(1 + max(int(point.max()) for point in scene.point.values()))
    rng = np.random.default_rng(9)
    with pycolmap.Database.open(path) as db:
        camera_id = db.write_camera(camera)
        for name in scene.names:
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera_id))
            point, n = scene.point[name], len(scene.xy[name])
            alone = unit_rows(rng.normal(size=(n, WIDTH)))  # of keypoints that are of no point
            code = np.where(point[:, None] >= 0, told[point], alone)
            oris, scales = (
                (rng.uniform(-3, 3, n), rng.uniform(1.5, 9, n)) if name in sift else (np.zeros(n), np.ones(n))
            )
            db.write_keypoints(image, to_colmap(Keypoints((scene.xy[name] - 0.5).astype(np.float32), scales, oris)))
            if name in sift:
                rows = pycolmap.FeatureDescriptors(type=types.SIFT, data=sift_rows(code, oris))
            else:
                floats = pycolmap.FeatureDescriptorsFloat(type=types.ALIKED_N16ROT, data=aliked_rows(code))
                rows = floats.to_bytes()
            db.write_descriptors(image, rows)
    return path
