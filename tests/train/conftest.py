"""Records of three small descriptors of the same hidden patches, records of pairs of patches, and runs on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pair_records import pair_records

from xdesc_jax.config import ModelConfig, OptimizerConfig, TrainConfig
from xdesc_jax.data.mixture import Part
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.store import ImageFeatures, StoreWriter
from xdesc_jax.train.descriptor_config import DescriptorConfig
from xdesc_jax.train.descriptor_run import train_descriptor
from xdesc_jax.train.run import train

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


@pytest.fixture(scope="session")
def toy_records(tmp_path_factory) -> Path:
    """8 photos of 70 rows, split by photo, four batches an epoch."""
    folder = tmp_path_factory.mktemp("toy")
    for name, spec in TOY.items():
        with StoreWriter(folder / f"{name}.h5", spec) as store:
            for photo in range(8):
                xy = np.arange(140, dtype=np.float32).reshape(70, 2)
                store.write(f"{photo}.png", ImageFeatures(xy, toy_rows(70, photo)[name], np.ones(70, bool), (64, 64)))
    paths = tuple(folder / f"{name}.h5" for name in TOY)
    records(folder / "records", paired=paths, format="npy", validation_share=0.25, rows_per_shard=64)
    return folder / "records"


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def straight(toy_records, toy_config, tmp_path_factory) -> Path:
    """An uninterrupted run; do not write into it."""
    return train(toy_config, toy_records, tmp_path_factory.mktemp("runs") / "straight")


@pytest.fixture(scope="session")
def pair_parts(tmp_path_factory) -> list[Part]:
    """Two records folders of pairs, three parts of four of a batch from the larger."""
    base = tmp_path_factory.mktemp("pairs")
    return [Part(pair_records(base / "one", 6, 9, seed=1), 0.75), Part(pair_records(base / "two", 3, 6, seed=2), 0.25)]


@pytest.fixture(scope="session")
def descriptor_config() -> DescriptorConfig:
    """Two epochs of four steps, with checkpoints within them."""
    return DescriptorConfig(
        epochs=2,
        rows_per_epoch=32,
        batch_size=8,
        checkpoint_every=3,
        log_every=2,
        validation_rows=12,
        optimizer=OptimizerConfig(1e-3, "linear", 2),
    )


@pytest.fixture(scope="session")
def descriptor_run(pair_parts, descriptor_config, tmp_path_factory) -> Path:
    """An uninterrupted run of a descriptor; do not write into it."""
    return train_descriptor(descriptor_config, pair_parts, tmp_path_factory.mktemp("runs") / "descriptor")
