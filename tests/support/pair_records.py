"""Small records of pairs: the same random texture seen twice, the second time with noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xdesc_jax.data.build import build
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.schema import KEYPOINT, PAIR, PATCH, POINT


class TexturePairs:
    """Random smooth patches of numbered points, every second photo repeating the points of the one before."""

    has_patches = has_pairs = True
    has_points = False
    unit = "photos"
    action = "drawing"

    def __init__(self, photos: int, rows: int, seed: int):
        self.specs: dict = {}
        self.names = [f"{seed}-{i:02d}.jpg" for i in range(photos)]
        self.config = {"photos": photos, "rows": rows, "seed": seed}

    def rows(self) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        count = self.config["rows"]
        for index, name in enumerate(self.names):
            rng = np.random.default_rng([self.config["seed"], index])
            coarse = rng.random((count, 8, 8)).repeat(4, axis=1).repeat(4, axis=2)
            views = [coarse + 0.05 * rng.normal(size=coarse.shape) for _ in range(2)]
            patch, pair = (np.uint8(255 * np.clip(view, 0, 1)) for view in views)
            point = index * count + np.arange(count, dtype=np.int32)
            yield name, {KEYPOINT: np.zeros((count, 4), np.float32), PATCH: patch, PAIR: pair, POINT: point}


def pair_records(out: Path, photos: int = 6, rows: int = 12, seed: int = 0, rows_per_shard: int = 16) -> Path:
    """An npy records folder with a train and a validation split."""
    source = TexturePairs(photos, rows, seed)
    settings = RecordSettings("npy", 0.3, seed, None, rows_per_shard)
    build(out, source, out.with_name(f".{out.name}.work"), settings, source.config)
    return out
