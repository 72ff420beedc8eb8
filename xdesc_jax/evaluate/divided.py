"""Photos that hold different descriptors: random parts of equal size, and their feature files.

In: names of photos, and a feature file of all of them for each descriptor. Out: which photo holds what, and a feature
file of each part; lists of photos and pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.files.whole import atomic, config_hash, input_hash


def split(names: Sequence[str], descriptors: Sequence[str], seed: int) -> dict[str, str]:
    """Photo -> descriptor: random parts of equal size (up to one photo)."""
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[photo]: descriptors[i % len(descriptors)] for i, photo in enumerate(order)}


def write_split(stores: Mapping[str, Path], kind_of: Mapping[str, str], out: Path) -> list[Path]:
    """Writes a feature file of each descriptor with the photos that hold it; those that are there are kept.

    They lie in a folder of `out` that is named by the split and by what it is of: of another one, none is there.
    """
    files, descriptors = [], list(dict.fromkeys(kind_of.values()))
    made_of = config_hash([dict(kind_of), {name: input_hash(stores[name]) for name in descriptors}])
    for descriptor in descriptors:
        path = out / made_of / f"{descriptor}.h5"
        if not path.exists():
            with FeatureStore(stores[descriptor]) as store, StoreWriter(path, store.spec) as writer:
                for name in sorted(name for name, kind in kind_of.items() if kind == descriptor):
                    writer.write(name, store.read(name))
        files.append(path)
    return files


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    """Writes a list of photos or pairs."""
    with atomic(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
