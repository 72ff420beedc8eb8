"""Photos with known spots for the extractor that needs no torch, and keypoints to describe."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tests.support.textures import NAMES
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.store import ImageFeatures, StoreWriter

FACTOR = 0.37
SIZE = (121, 97)


def spots(folder, found: dict[str, list[tuple[int, int, int]]]):
    """Photos of gray 100 with keypoints (x, y, score) for the extractor; gives their folder."""
    for name, points in found.items():
        photo = np.full(SIZE[::-1], 100, np.uint8)
        for x, y, score in points:
            photo[y, x : x + 2] = 255, score
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo).save(folder / name)
    return folder


def given(path, xy, scales=None, photos=NAMES):
    """A file of the same keypoints for all photos."""
    with StoreWriter(path, get_spec("brief")) as writer:
        for name in photos:
            rows, valid = np.zeros((len(xy), 64), np.uint8), np.ones(len(xy), bool)
            oris = None if scales is None else np.zeros(len(xy))
            writer.write(name, ImageFeatures(np.array(xy), rows, valid, SIZE, scales, oris))
    return str(path)
