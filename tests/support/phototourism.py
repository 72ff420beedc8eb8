"""Scenes in the layout of the Image Matching challenge, and feature files whose right answer is known."""

from __future__ import annotations

import itertools
from pathlib import Path

import cv2
import h5py
import numpy as np

from tests.support.place import WIDTH
from tests.support.textures import texture
from xdesc_jax.colmap.model import Pose
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

SIZE, POINTS, COUNT = (160, 120), 130, 6
F = 1.2 * SIZE[0]  # what COLMAP guesses, so that its models are exact
K = np.array([[F, 0, SIZE[0] / 2 - 0.5], [0, F, SIZE[1] / 2 - 0.5], [0, 0, 1]])
SCENES = ("reichstag", "sacre_coeur")
BAGS = {3: ((0, 1, 2), (1, 3, 5)), 5: ((0, 1, 2, 3, 4),)}
APART = (1, 3)  # share few points


def stem(photo: int) -> str:
    return f"{photo:08d}_34-5"  # a '-' within, too


def name(scene: str, photo: int) -> str:
    return f"{scene}/set_100/images/{stem(photo)}.jpg"


def pose(photo: int) -> Pose:
    """World to camera: around the points, turned and lifted."""
    a = np.deg2rad(9 * photo)
    return Pose.from_quaternion(np.array([np.cos(a / 2), 0.01 * photo, np.sin(a / 2), 0.02]), np.array([0.05, 0.1, 5]))


def write_scene(root: Path, scene: str) -> Path:
    """A scene's folder `set_100`."""
    folder = root / scene / "set_100"
    for part in ("images", "calibration", "visibility", "new-vis-pairs", "sub_set"):
        (folder / part).mkdir(parents=True)
    lists: dict[str, list[str]] = {"images": [], "calibration": [], "visibility": []}
    shared = np.full((COUNT, COUNT), 500.0)
    shared[APART] = shared[APART[::-1]] = 40
    for photo in range(COUNT):
        cv2.imwrite(str(root / name(scene, photo)), texture(SIZE[1], SIZE[0], seed=photo))
        lists["images"].append(f"images/{stem(photo)}.jpg")
        lists["calibration"].append(f"calibration/calibration_{stem(photo)}.h5")
        with h5py.File(folder / lists["calibration"][-1], "w") as file:
            file.update({"K": K, "R": pose(photo).rotation, "T": pose(photo).translation[:, None]})
            file["q"] = pose(photo).quaternion
        lists["visibility"].append(f"visibility/vis_{stem(photo)}.txt")
        np.savetxt(folder / lists["visibility"][-1], shared[photo])
    for what, lines in lists.items():
        (folder / f"{what}.txt").write_text("".join(f"{line}\n" for line in lines))
    keys = [f"{stem(j)}-{stem(i)}" for i, j in itertools.combinations(range(COUNT), 2)]
    np.save(folder / "new-vis-pairs/keys-th-0.1.npy", np.array(keys))
    for size, bags in BAGS.items():
        for number, bag in enumerate(bags):
            (folder / f"sub_set/{size}bag_{number:03d}.txt").write_text("".join(f"images/{stem(p)}.jpg\n" for p in bag))
    return folder


def write_features(folder: Path, shuffled: bool = False) -> Path:
    """`own-a.h5` and `own-b.h5`, with values in reverse, of the photos of all scenes."""
    points = np.random.default_rng(0).uniform(-1, 1, (POINTS, 3)) * (1.4, 1, 1)
    of_point = unit_rows(np.random.default_rng(1).normal(size=(POINTS, WIDTH)))
    for kind, step in (("own-a", 1), ("own-b", -1)):
        with StoreWriter(folder / f"{kind}.h5", DescriptorSpec(kind, WIDTH)) as writer:
            for number, (scene, photo) in enumerate(itertools.product(SCENES, range(COUNT))):
                seen = (points @ pose(photo).rotation.T + pose(photo).translation) @ K.T
                order = np.random.default_rng(number).permutation(POINTS)
                rows = of_point[np.random.default_rng([number, 9]).permutation(POINTS) if shuffled else order]
                xy = (seen[:, :2] / seen[:, 2:])[order].astype(np.float32)
                writer.write(name(scene, photo), ImageFeatures(xy, rows[:, ::step], np.ones(POINTS, bool), SIZE))
    return folder
