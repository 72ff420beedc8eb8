"""Records of three small descriptors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import toy_records as toy


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory) -> Path:
    return toy.toy_records(tmp_path_factory.mktemp("toy"))
