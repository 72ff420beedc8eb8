"""A map as strangers have them: names beyond ASCII, with blanks and in folders, and a photo of a blank wall."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from tests.support.exact_scene import CAMERA, SIZE, Scene, make_scene
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

WIDTH = 24
# The third and the fourth look the same: one letter, and a letter with an accent behind it.
SEEN = ("a b.jpg", "日本/1.jpg", "\u00e9.jpg", "e\u0301.jpg", "d.jpg", "sub dir/z PINHOLE 2.jpg", "q 7.jpg")
BLANK, QUERY = "blank wall.jpg", SEEN[-1]


@dataclasses.dataclass(frozen=True)
class AwkwardMap:
    """Files of a scene; all photos but the blank one see all points.

    Attributes:
        scene: poses and points.
        features: feature file of all photos, `BLANK` without rows.
        intrinsics: list of all photos; `queries` of `QUERY` and `BLANK`.
        mapped: list of the names of all photos but `QUERY`.
        model: the true model, of the photos in SEEN.
    """

    scene: Scene
    features: Path
    intrinsics: Path
    queries: Path
    mapped: Path
    model: Path


def make_awkward_map(folder: Path) -> AwkwardMap:
    """Writes it."""
    scene = make_scene(SEEN, points=150)
    of_point = unit_rows(np.random.default_rng(0).normal(size=(1000, WIDTH)).astype(np.float32))
    with StoreWriter(folder / "features.h5", DescriptorSpec("own", WIDTH)) as writer:
        for seed, name in enumerate(SEEN):
            other = np.random.default_rng(seed + 1).normal(size=(len(scene.xy[name]), WIDTH))
            point = scene.point[name]
            rows = np.where((point >= 0)[:, None], of_point[np.maximum(point, 0)], unit_rows(other))
            xy = (scene.xy[name] - 0.5).astype(np.float32)
            writer.write(name, ImageFeatures(xy, rows.astype(np.float32), np.ones(len(xy), bool), SIZE))
        none = np.zeros((0, 2), np.float32)
        writer.write(BLANK, ImageFeatures(none, np.zeros((0, WIDTH), np.float32), np.zeros(0, bool), SIZE))
    lines = {name: f"{name} {CAMERA}\n" for name in (*SEEN, BLANK)}
    (folder / "intrinsics.txt").write_text("".join(lines.values()), encoding="utf-8")
    (folder / "queries.txt").write_text(lines[QUERY] + lines[BLANK], encoding="utf-8")
    (folder / "mapped.txt").write_text("".join(f"{name}\n" for name in lines if name != QUERY), encoding="utf-8")
    model = scene.write_model(folder / "true")
    return AwkwardMap(
        scene, folder / "features.h5", folder / "intrinsics.txt", folder / "queries.txt", folder / "mapped.txt", model
    )
