"""A folder of posed pairs in the layout of ScanNet-1500's list, and feature files whose right answer is known."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from tests.support.place import WIDTH
from tests.support.textures import texture
from xdesc_jax.colmap.model import Pose
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

SIZE, POINTS = (160, 120), 60
K = np.array([[150.0, 0, 80.5], [0, 148, 59.5], [0, 0, 1]])
NAMES = ("hall/1.jpg", "hall/2.jpg", "hall/3.jpg", "hall/4.jpg")
PAIRS = ((0, 1), (0, 2), (1, 3), (2, 3), (3, 0))


def pose(photo: int) -> Pose:
    """World to camera."""
    return Pose.from_quaternion(np.array([1, 0.02 * photo, 0.05 * photo, -0.03]), np.array([0.3 * photo, 0.1, 4]))


def between(i: int, j: int) -> Pose:
    """Camera of photo i to that of photo j."""
    a, b = pose(i), pose(j)
    rotation = b.rotation @ a.rotation.T
    return Pose(rotation, b.translation - rotation @ a.translation)


def line(i: int, j: int) -> str:
    """38 fields."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = between(i, j).rotation, between(i, j).translation
    return " ".join(
        [NAMES[i], NAMES[j], "0", "0", *(repr(float(v)) for v in [*K.ravel(), *K.ravel(), *matrix.ravel()])]
    )


def write_pairs(root: Path) -> Path:
    """Photos of texture, which no test looks at but one, and the list."""
    for k, name in enumerate(NAMES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(root / name), texture(SIZE[1], SIZE[0], seed=k))
    (root / "pairs_with_gt.txt").write_text("".join(f"{line(i, j)}\n" for i, j in PAIRS))
    return root


def seen(photo: int, shuffle: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Positions [N, 2] of all points in a photo and which point each is, in an order of the detector's own."""
    points = np.random.default_rng(0).uniform(-1, 1, (POINTS, 3))
    order = np.random.default_rng([photo, shuffle]).permutation(POINTS)
    rays = (points @ pose(photo).rotation.T + pose(photo).translation) @ K.T
    return (rays[:, :2] / rays[:, 2:])[order].astype(np.float32), order


def write_features(folder: Path, shuffled: bool = False) -> Path:
    """`own-a.h5` and `own-b.h5`, with values in reverse and keypoints in another order: as of two detectors."""
    of_point = unit_rows(np.random.default_rng(1).normal(size=(POINTS, WIDTH)))
    for number, (name, step) in enumerate((("own-a", 1), ("own-b", -1))):
        with StoreWriter(folder / f"{name}.h5", DescriptorSpec(name, WIDTH)) as writer:
            for photo, called in enumerate(NAMES):
                xy, order = seen(photo, number)
                rows = of_point[np.random.default_rng([photo, 9]).permutation(POINTS) if shuffled else order]
                writer.write(called, ImageFeatures(xy, rows[:, ::step], np.ones(POINTS, bool), SIZE))
    return folder
