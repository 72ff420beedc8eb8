"""Lists for the stage `xdesc localize` in the synthetic place."""

import pytest


@pytest.fixture
def queries(place, tmp_path):
    path = tmp_path / "queries.txt"
    path.write_text(place.query_list)
    return path


@pytest.fixture
def pairs(place, tmp_path):
    """Each query with all photos of the map."""
    path = tmp_path / "pairs.txt"
    path.write_text("".join(f"{q} {name}\n" for q in place.queries for name in place.names))
    return path


@pytest.fixture
def bare(place, tmp_path):
    """The queries by name alone."""
    path = tmp_path / "bare.txt"
    path.write_text("".join(f"{name}\n" for name in place.queries))
    return path
