"""Feature files and records folders to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.aligned_stores import write_store
from xdesc_jax.data.records import records


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
