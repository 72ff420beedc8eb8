"""HPatches sequences in the layout of the release, and feature files whose right answer is known."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from tests.support.place import WIDTH
from tests.support.textures import texture
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

NAMES = ("i_door", "v_roof", "v_talent")  # the last is one of the large ones
SIZE = (150, 120)
POINTS = 41


def homography(k: int) -> np.ndarray:
    """[3, 3] from photo 1 to photo k: shifted, and a little in perspective."""
    return np.array([[1, 0.01 * k, -3.0 * (k - 1)], [0, 1, 2.0 * (k - 1)], [1e-5 * (k - 1), 0, 1]])


def write_sequences(root: Path, names: tuple[str, ...] = NAMES) -> Path:
    """A texture, warped into five more photos by `homography`."""
    for seed, name in enumerate(names):
        (root / name).mkdir(parents=True)
        photo = texture(SIZE[1], SIZE[0], seed=seed)
        for k in range(1, 7):
            seen = photo if k == 1 else cv2.warpPerspective(photo, homography(k), SIZE, borderMode=cv2.BORDER_REFLECT)
            cv2.imwrite(str(root / name / f"{k}.ppm"), cv2.cvtColor(seen, cv2.COLOR_GRAY2BGR))
            if k > 1:
                np.savetxt(root / name / f"H_1_{k}", homography(k))
    return root


def positions(k: int, off_px: float = 0.0, seed: int = 0) -> np.ndarray:
    """[N, 2] true places in photo k, each so far off in some direction, more or less."""
    rng = np.random.default_rng([seed, k])
    xy = np.random.default_rng(seed).uniform(10, 100, (POINTS, 2))
    seen = np.concatenate([xy, np.ones((POINTS, 1))], axis=1) @ (np.eye(3) if k == 1 else homography(k)).T
    return (seen[:, :2] / seen[:, 2:] + off_px * (k > 1) * rng.normal(size=(POINTS, 2))).astype(np.float32)


def write_features(
    folder: Path, names: tuple[str, ...] = NAMES, *, off_px: float = 0.0, shuffled: bool = False
) -> Path:  # fmt: skip
    """`own-a.h5` and `own-b.h5` (its values in reverse), the same keypoints in both."""
    rows = unit_rows(np.random.default_rng(0).normal(size=(POINTS, WIDTH)))
    for name, step in (("own-a", 1), ("own-b", -1)):
        with StoreWriter(folder / f"{name}.h5", DescriptorSpec(name, WIDTH)) as writer:
            for seed, scene in enumerate(names):
                for k in range(1, 7):
                    order = np.random.default_rng(k).permutation(POINTS) if shuffled else np.arange(POINTS)
                    held = ImageFeatures(
                        positions(k, off_px, seed), rows[order, ::step], np.ones(POINTS, bool), SIZE
                    )  # fmt: skip
                    writer.write(f"{scene}/{k}.ppm", held)
    return folder
