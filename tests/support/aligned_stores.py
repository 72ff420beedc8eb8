"""Makes small aligned feature files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, get_spec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

Photo = tuple[Mapping[str, np.ndarray], np.ndarray, Mapping[str, np.ndarray]]
COUNTS = {"a.jpg": 5, "sub/b.jpg": 0, "été/日本.png": 17}


def random_rows(rng: np.random.Generator, count: int, spec: DescriptorSpec) -> np.ndarray:
    """Random descriptors in their stored form."""
    if spec.stored_dtype == np.uint8:
        return rng.integers(1, 60, (count, spec.stored_width)).astype(np.uint8)
    rows = unit_rows(rng.standard_normal((count, spec.width)))
    return rows * np.float32(spec.storage_scale)


def write_aligned(folder: Path, specs: dict[str, DescriptorSpec], photos: Iterable[Photo]) -> tuple[Path, ...]:
    """A feature file of each descriptor over the same keypoints, all valid, of photos of 64 x 64 px: 0.png, 1.png ...

    Args:
        folder: for the files, <descriptor>.h5.
        specs: the descriptors.
        photos: of each, its rows by descriptor, positions [N, 2], and scales and orientations by name.
    """
    paths, photos = tuple(folder / f"{name}.h5" for name in specs), list(photos)
    for path, (name, spec) in zip(paths, specs.items(), strict=True):
        with StoreWriter(path, spec) as store:
            for number, (rows, xy, shapes) in enumerate(photos):
                store.write(f"{number}.png", ImageFeatures(xy, rows[name], np.ones(len(xy), bool), (64, 64), **shapes))
    return paths


def write_store(
    path: Path, spec: DescriptorSpec | str, counts: dict[str, int] = COUNTS, shift: float = 0, seed: int = 0
) -> Path:
    """A feature file whose keypoints depend on `counts` alone; every fifth row is not valid."""
    spec = get_spec(spec) if isinstance(spec, str) else spec
    rng = np.random.default_rng(seed)
    with StoreWriter(path, spec) as store:
        for name, count in counts.items():
            xy = np.arange(2 * count, dtype=np.float32).reshape(-1, 2) + np.float32(shift)
            valid = np.arange(count) % 5 != 4
            descriptors = np.where(valid[:, None], random_rows(rng, count, spec), 0).astype(spec.stored_dtype)
            scales = np.arange(count, dtype=np.float32) + 1
            store.write(name, ImageFeatures(xy, descriptors, valid, (640, 480), scales, scales / 10))
    return path
