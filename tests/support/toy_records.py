"""Records of three small descriptors of the same hidden patches, and a configuration that trains on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xdesc_jax.config import ModelConfig, OptimizerConfig, TrainConfig
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

TOY = {
    "toy-bits": binary_spec("toy-bits", 21, hidden=(24,)),
    "toy-plain": DescriptorSpec("toy-plain", 9, normalized=False, hidden=(24,)),
    "toy-unit": DescriptorSpec("toy-unit", 12, hidden=(24,)),
}


def toy_rows(count: int, seed: int) -> dict[str, np.ndarray]:
    """Three views of the same six hidden numbers, in stored form."""
    hidden = np.random.default_rng(seed).normal(size=(count, 6))
    views = {n: hidden @ np.random.default_rng(i).normal(size=(6, s.width)) for i, (n, s) in enumerate(TOY.items())}
    return {
        "toy-bits": stored(views["toy-bits"] > 0, TOY["toy-bits"]),
        "toy-plain": (3 * views["toy-plain"]).astype(np.float32),
        "toy-unit": unit_rows(views["toy-unit"]),
    }


def toy_records(folder: Path) -> Path:
    """8 photos of 70 rows, split by photo, four batches an epoch."""
    for name, spec in TOY.items():
        with StoreWriter(folder / f"{name}.h5", spec) as store:
            for photo in range(8):
                xy = np.arange(140, dtype=np.float32).reshape(70, 2)
                store.write(f"{photo}.png", ImageFeatures(xy, toy_rows(70, photo)[name], np.ones(70, bool), (64, 64)))
    paths = tuple(folder / f"{name}.h5" for name in TOY)
    records(folder / "records", paired=paths, format="npy", validation_share=0.25, rows_per_shard=64)
    return folder / "records"


def toy_config() -> TrainConfig:
    """Checkpoints in the middle of epochs, log lines between them."""
    return TrainConfig(
        epochs=12,
        batch_size=64,
        checkpoint_every=3,
        log_every=2,
        validation_rows=128,
        model=ModelConfig(embedding_width=8),
        optimizer=OptimizerConfig(2e-2, "cosine", 3),
    )
