"""COLMAP databases, and a model that translates what they hold."""

from __future__ import annotations

import pytest

from tests.support.databases import make_3, make_4, make_model

MAKERS = {"3": make_3, "4": make_4}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model file."""
    return make_model(tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(params=MAKERS)
def database(request, tmp_path):
    """A database of COLMAP 3, and of COLMAP 4; alone in its folder."""
    (tmp_path / "in").mkdir()
    return MAKERS[request.param](tmp_path / "in" / "map.db")


@pytest.fixture
def database_3(tmp_path):
    """A database of COLMAP 3, alone in its folder."""
    (tmp_path / "in").mkdir()
    return make_3(tmp_path / "in" / "map.db")
