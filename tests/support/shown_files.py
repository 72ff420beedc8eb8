"""Features, photos and matches for `xdesc show`."""

from __future__ import annotations

import numpy as np
from PIL import Image

from xdesc_jax.cli import main
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.matching.matches import MatchWriter

SIZE = (64, 48)
A, B, C = "a b.png", "sub/é.png", "c.png"
OWN, BITS = DescriptorSpec("own", 16), binary_spec("bits", 40)


def write_features(path, names, spec=OWN, rows=30, seed=0, size=SIZE):
    """Rows of the photos resemble each other, so that many match."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 16))
    with StoreWriter(path, spec) as writer:
        for name in names:
            if spec.binary:
                x = rng.integers(0, 256, (rows, spec.stored_width), dtype=np.uint8) | 1
            else:
                x = unit_rows(common + 0.5 * rng.normal(size=common.shape)).astype(np.float32)
            xy = rng.uniform(1, 46, (rows, 2)).astype(np.float32)
            writer.write(name, ImageFeatures(xy, x, np.ones(rows, bool), size))
    return path


def write_photos(folder, names, size=SIZE):
    """Photos of smooth colours."""
    rng = np.random.default_rng(7)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(folder / name)
    return folder


def write_matches(path, pairs, rows=30, **attributes):
    """Matches with falling scores; `pairs`: names of two photos -> rows of both."""
    with MatchWriter(path, attributes) as writer:
        for (a, b), indices in pairs.items():
            indices = np.array(indices, np.int32).reshape(-1, 2)
            writer.write(a, b, rows, indices, np.linspace(0.9, 0.5, len(indices)).astype(np.float32))
    return path


def run(*words):
    """The exit status of the command."""
    return main(["show", *map(str, words)])
