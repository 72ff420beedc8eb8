"""Feature files and records folders to read: three photos of 5, 0 and 17 keypoints, some rows not valid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xdesc_jax.data.records import records
from xdesc_jax.descriptors import DescriptorSpec, get_spec, unit_rows
from xdesc_jax.store import ImageFeatures, StoreWriter

COUNTS = {"a.jpg": 5, "sub/b.jpg": 0, "été/日本.png": 17}


def random_rows(rng: np.random.Generator, count: int, spec: DescriptorSpec) -> np.ndarray:
    """Random descriptors in their stored form."""
    if spec.stored_dtype == np.uint8:
        return rng.integers(1, 60, (count, spec.stored_width)).astype(np.uint8)
    rows = unit_rows(rng.standard_normal((count, spec.width)))
    return rows * np.float32(spec.storage_scale)


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


@pytest.fixture(scope="session")
def stores(tmp_path_factory) -> list[Path]:
    """Aligned feature files of a binary, a float and a uint8 descriptor."""
    folder = tmp_path_factory.mktemp("stores")
    names = ("brief", "tfeat", "colmap-sift")
    return [write_store(folder / f"{name}.h5", name, seed=i) for i, name in enumerate(names)]


@pytest.fixture(scope="session", params=["tfds", "npy"])
def folder(request, tmp_path_factory) -> Path:
    """A records folder in each format: 23 photos of 11 rows (9 valid), in shards of 10 rows at most."""
    base = tmp_path_factory.mktemp("records")
    counts = {f"{i:02d}.jpg": 11 for i in range(23)}
    paths = [write_store(base / f"{name}.h5", name, counts) for name in ("brief", "sift")]
    records(base / "out", paired=tuple(paths), format=request.param, rows_per_shard=10, seed=3)
    return base / "out"
