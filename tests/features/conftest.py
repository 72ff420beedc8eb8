"""A folder of small photos."""

from pathlib import Path

import pytest
from PIL import Image

from tests.support.textures import NAMES, texture


@pytest.fixture
def photos(tmp_path) -> Path:
    """Four photos of 121 x 97 px, in two folders."""
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for i, name in enumerate(NAMES):
        Image.fromarray(texture(97, 121, seed=i)).save(folder / name)
    return folder
