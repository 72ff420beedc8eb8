"""The reconstruction of a synthetic scene, made once."""

from pathlib import Path

import pytest

from pipelines.corner import save_photos
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
