"""Bytecode of a test run, where Python is told to write none beside the sources.

In: what was compiled as Python and its packages were installed. Out: a folder for `sys.pycache_prefix` that knows it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def link_installed(folder: Path) -> None:
    """Makes links in an empty `folder` to the bytecode beside the sources of the standard library and all packages.

    With a prefix, Python looks there alone, and would compile jax and TensorFlow anew. It never writes into a file that
    is there, but puts another in its place, so what is linked stays as it is.
    """
    ending = f".{sys.implementation.cache_tag}.pyc"
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for root in {sysconfig.get_path("stdlib")} | packages:
        for here, folders, names in os.walk(root):
            if root not in packages and "site-packages" in folders:
                folders.remove("site-packages")  # of the Python that a virtual environment was made with
            if os.path.basename(here) != "__pycache__":
                continue
            there = os.path.join(folder, os.path.dirname(here).lstrip(os.sep))
            os.makedirs(there, exist_ok=True)
            for name in names:
                if name.endswith(ending):
                    os.symlink(os.path.join(here, name), os.path.join(there, name))
