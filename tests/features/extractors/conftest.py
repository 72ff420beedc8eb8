"""Networks that need no torch, their weights, and what they are called for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.spotted_photos import FACTOR
from xdesc_jax import descriptors
from xdesc_jax.descriptors import DescriptorSpec, register


@pytest.fixture
def names(monkeypatch):
    """Two networks of one family."""
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    for name in ("fake", "fake-b"):
        register(DescriptorSpec(name, 2), "tests.support.fake_extractor:Fake", source="network")


@pytest.fixture
def weights(tmp_path):
    """A weight file for each network, as the stage takes them."""
    files = {"fake": tmp_path / "fake.npz", "fake-b": tmp_path / "fake-b.npz"}
    for file, factor in zip(files.values(), (FACTOR, 2 * FACTOR), strict=True):
        np.savez(file, factor=factor)
    return tuple(f"{name}={file}" for name, file in files.items())
