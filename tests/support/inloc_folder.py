"""A box-shaped room in the layout of InLoc, with feature files whose right answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.io import savemat

from tests.support.place import WIDTH
from xdesc_jax.colmap.model import Pose
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

SIZE, POINTS = (96, 72), 70
FOCAL = 28 / 36 * SIZE[0]  # the phone's, and here of the scans' photos, too
SCANS = ("DUC1/000/DUC_cutout_000_0_0.jpg", "DUC1/001/DUC_cutout_001_30_0.jpg", "DUC2/007/DUC_cutout_007_0_-30.jpg")
PHOTOS = tuple(f"database/cutouts/{name}" for name in SCANS)
QUERIES = ("query/iphone7/IMG_0731.JPG", "query/iphone7/IMG_0840.JPG")
WALLS = np.array([3.0, 2.0, 6.0])  # half the width and height of the room, and its far end
_AWAY = {PHOTOS[0]: 0, PHOTOS[1]: 1, PHOTOS[2]: 2, QUERIES[0]: 3, QUERIES[1]: 4}


def pose(name: str) -> Pose:
    """World to camera, all looking at the far end."""
    k = _AWAY[name]
    turned = Pose.from_quaternion(np.array([1, 0.01 * k, -0.02 * k, 0.03 * k]), np.zeros(3)).rotation
    return Pose(turned, -turned @ np.array([0.2 * k - 0.4, 0.1 * (k % 2), 0.3 * k]))


def hits(name: str, xy: np.ndarray) -> np.ndarray:
    """Where rays through positions [N, 2] (origin: centre of the first pixel) meet the walls, [N, 3]."""
    rays = np.column_stack([(xy + 0.5 - np.array(SIZE) / 2) / FOCAL, np.ones(len(xy))]) @ pose(name).rotation
    center = pose(name).center
    with np.errstate(divide="ignore"):
        reach = (np.copysign(WALLS, rays) - center) / rays
    return center + rays * np.where(reach > 0, reach, np.inf).min(axis=1)[:, None]


def seen(name: str, points: np.ndarray) -> np.ndarray:
    """Positions of points in a photo, [N, 2], origin: centre of the first pixel."""
    rays = points @ pose(name).rotation.T + pose(name).translation
    return rays[:, :2] / rays[:, 2:] * FOCAL + np.array(SIZE) / 2 - 0.5


def points() -> np.ndarray:
    """Places on the walls that all photos see well inside."""
    rng = np.random.default_rng(0)
    found = hits(PHOTOS[0], rng.uniform(0, SIZE, (2000, 2)))
    for name in _AWAY:
        found = found[((seen(name, found) > 2) & (seen(name, found) < np.array(SIZE) - 3)).all(axis=1)]
    return found[:POINTS]


def alignment(scan: str) -> np.ndarray:
    """Scan to building."""
    k = int(scan)
    matrix = np.eye(4)
    matrix[:3, :3] = Pose.from_quaternion(np.array([1, 0.3 * k, 0.1, -0.2 * k]), np.zeros(3)).rotation
    matrix[:3, 3] = [2 * k, -k, 0.5]
    return matrix


def write_folder(root: Path, holes: bool = False) -> Path:
    """Photos (which no test decodes), scans, alignments and queries; with holes every third pixel has no point."""
    for name in (*PHOTOS, *QUERIES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    for name in PHOTOS:
        floor, scan, _ = name.split("/")[2:]
        grid = np.stack(np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1])), axis=-1).reshape(-1, 2)
        matrix = alignment(scan)
        cloud = (hits(name, grid) - matrix[:3, 3]) @ matrix[:3, :3]
        if holes:
            cloud[::3] = np.nan
        savemat(root / f"{name}.mat", {"XYZcut": cloud.reshape(SIZE[1], SIZE[0], 3), "RGBcut": np.zeros((2, 2, 3))})
        rows = ["P_before_GICP", *_rows(np.eye(4)), "", "P_after_GICP", *_rows(matrix)]
        path = root / f"database/alignments/{floor}/transformations/DUC_trans_{scan}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{row}\n" for row in rows))
    return root


def _rows(matrix: np.ndarray) -> list[str]:
    return [" ".join(repr(float(v)) for v in row) for row in matrix]


def write_features(folder: Path, shuffled: bool = False) -> Path:
    """`own-a.h5`, and `own-b.h5` with values in reverse; the first scan's photo shares half of the queries' rows."""
    cloud = points()
    of_point = unit_rows(np.random.default_rng(1).normal(size=(POINTS, WIDTH)))
    for descriptor, step in (("own-a", 1), ("own-b", -1)):
        with StoreWriter(folder / f"{descriptor}.h5", DescriptorSpec(descriptor, WIDTH)) as writer:
            for k, name in enumerate((*PHOTOS, *QUERIES)):
                rows = of_point.copy()
                rng = np.random.default_rng(k)
                if k == 0:
                    rows[: POINTS // 2] = unit_rows(rng.normal(size=(POINTS // 2, WIDTH)))
                if shuffled and name in QUERIES:
                    rows = rows[rng.permutation(POINTS)]
                xy = seen(name, cloud).astype(np.float32)
                writer.write(name, ImageFeatures(xy, rows[:, ::step], np.ones(POINTS, bool), SIZE))
    return folder


def write_pairs(path: Path) -> Path:
    path.write_text("".join(f"{query} {photo}\n" for query in QUERIES for photo in PHOTOS))
    return path
