"""Records of small descriptors, records of pairs of patches, and runs on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support import toy_records as toy
from tests.support.pair_records import pair_records
from tests.support.thin_network import thin
from xdesc_jax.config import OptimizerConfig, TrainConfig
from xdesc_jax.data.mixture import Part
from xdesc_jax.data.records import records
from xdesc_jax.train.descriptors.config import DescriptorConfig
from xdesc_jax.train.descriptors.run import train_descriptor
from xdesc_jax.train.translators.run import train


@pytest.fixture(scope="session")
def toy_records(tmp_path_factory) -> Path:
    return toy.toy_records(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def toy_config() -> TrainConfig:
    return toy.toy_config()


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
        optimizer=OptimizerConfig(1e-2, "linear", 2),
    )


@pytest.fixture(scope="module")
def thin_network() -> Iterator[None]:
    with thin():
        yield


@pytest.fixture(scope="session")
def descriptor_run(pair_parts, descriptor_config, tmp_path_factory) -> Path:
    """An uninterrupted run of a thin descriptor; do not write into it."""
    with thin():
        return train_descriptor(descriptor_config, pair_parts, tmp_path_factory.mktemp("runs") / "descriptor")


@pytest.fixture(scope="session")
def patch_records(tmp_path_factory) -> Path:
    """Records with patches, of photos of blobs."""
    cv2 = pytest.importorskip("cv2", reason="needs the features extra")
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for i in range(4):
        noise = rng.integers(0, 256, (24, 30)).astype(np.uint8)
        cv2.imwrite(str(root / f"{i}.png"), cv2.resize(noise, (300, 240), interpolation=cv2.INTER_CUBIC))
    out = tmp_path_factory.mktemp("records") / "out"
    records(out, photos=root, keypoints="opencv", format="npy", validation_share=0.3)
    return out
