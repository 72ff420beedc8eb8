"""A synthetic photo collection in the layout of the Local Feature Evaluation, and features with a known answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.place import Place, make_place
from xdesc_jax.evaluate.benchmarks.places.maps import write_posed

SCENE = "Madrid_Metropolis"


def write_folder(base: Path, known: int = 8) -> tuple[Path, Path, Place]:
    """The benchmark's folder, the folder of features, and the place; the truth is of the first photos, or of none."""
    features = base / "features" / SCENE
    (base / "place").mkdir(parents=True)
    place = make_place(base / "place")
    features.mkdir(parents=True)
    for name, path in place.features.items():
        path.rename(features / f"{name}.h5")
    images = base / "data" / SCENE / "images"
    images.mkdir(parents=True)
    for name, camera in place.cameras.items():  # black, since but their EXIF is read, which says nothing
        Image.fromarray(np.zeros((camera.height, camera.width), np.uint8)).save(images / name)
    if known:
        poses = {name: place.poses[name] for name in sorted(place.poses)[:known]}
        write_posed(base / "data" / SCENE / "sparse-reference/filtered-metric", poses, place.cameras)
    return base / "data", base / "features", place
