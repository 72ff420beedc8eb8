"""Weights of learned descriptors and matchers for tests, which otherwise find none that are installed.

XDESC_TEST_WEIGHTS names a data folder (XDESC_DATA) into which `xdesc weights install` has put them.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

VARIABLE = "XDESC_TEST_WEIGHTS"
FOLDER = Path(os.environ.get(VARIABLE, "no-weights"))


def authors_weights(name: str) -> Path:
    """The installed weights of a name."""
    return FOLDER / "weights" / f"{name}.safetensors"


def lacking(*names: str) -> list[str]:
    """What tests of networks with these weights need and do not find."""
    packages = [name for name in ("torch", "kornia", "skimage") if importlib.util.find_spec(name) is None]
    return packages + [f"{VARIABLE}: {name}" for name in names if not authors_weights(name).is_file()]
