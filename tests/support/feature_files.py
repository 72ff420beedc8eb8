"""Small feature files for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.store import ImageFeatures, StoreWriter


def write_store(folder: Path, descriptor: str, names: Sequence[str], rows: int = 3) -> Path:
    """`<descriptor>.h5` with random unit rows of each photo."""
    rng = np.random.default_rng(len(names))
    with StoreWriter(folder / f"{descriptor}.h5", get_spec(descriptor)) as store:
        for name in names:
            x = rng.standard_normal((rows, 128)).astype(np.float32)
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            store.write(
                name, ImageFeatures(rng.uniform(0, 99, (rows, 2)).astype(np.float32), x, np.ones(rows, bool), (99, 99))
            )
    return folder / f"{descriptor}.h5"
