"""What `import xdesc_jax` offers."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys

import xdesc_jax
from tests.support.root import ROOT


def test_every_public_name_is_the_object_that_its_module_defines():
    stub = ast.parse((ROOT / "xdesc_jax" / "__init__.pyi").read_text())
    listed = [
        (node.module, alias.name) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(name for _, name in listed) == xdesc_jax.__all__
    for module, name in listed:
        found = getattr(xdesc_jax, name)
        assert found is getattr(importlib.import_module(f"xdesc_jax.{module}"), name)
        assert found.__module__ == f"xdesc_jax.{module}", f"{name} is listed where it is not defined"


def test_importing_the_package_loads_nothing_of_others():
    program = "import sys, xdesc_jax; print(*{name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"xdesc_jax", "lazy_loader"} <= loaded
    assert not loaded & {"numpy", "h5py", "jax", "tensorflow", "pycolmap", "cv2", "rich"}


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "xdesc_jax", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["xdesc", xdesc_jax.__version__]
