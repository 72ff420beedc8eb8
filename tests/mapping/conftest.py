"""The reconstruction of a synthetic scene, made once; a translated map, and photos to take into it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pipelines.corner import save_photos
from tests.support.updated_map import SPEC
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.mapping.from_photos import ReconstructSettings, reconstruct

SETTINGS = ReconstructSettings(max_features=500, threads=1)


@pytest.fixture(scope="session")
def corner(tmp_path_factory) -> tuple[Path, list[str]]:
    """Folder and names of the photos."""
    folder = tmp_path_factory.mktemp("corner") / "photos"
    return folder, save_photos(folder)


@pytest.fixture(scope="session")
def settings() -> ReconstructSettings:
    return SETTINGS


@pytest.fixture(scope="session")
def reconstructed(corner, tmp_path_factory) -> tuple[Path, list[Path]]:
    """Work folder and models."""
    work = tmp_path_factory.mktemp("work")
    return work, reconstruct(*corner, work, SETTINGS)


@pytest.fixture
def translated(place, tmp_path):
    """The map's photos, translated from own-a with some noise; the queries are not among them."""
    out = tmp_path / "translated.h5"
    rng = np.random.default_rng(0)
    with FeatureStore(place.features["own-b"]) as store, StoreWriter(out, SPEC, {"translated_from": "own-a"}) as writer:
        for name in place.names:
            photo = store.read(name)
            noisy = unit_rows(photo.descriptors + 0.05 * rng.normal(size=photo.descriptors.shape))
            writer.write(name, dataclasses.replace(photo, descriptors=noisy))
    return out


@pytest.fixture
def new(place, tmp_path):
    """List of both new photos."""
    path = tmp_path / "new.txt"
    path.write_text(place.query_list)
    return path
