"""Which module may import what, so that each part runs where the others' packages are not installed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.root import ROOT

PACKAGE = ROOT / "xdesc_jax"
OWNERS = {
    "tensorflow": ("data/",),
    "tensorflow_datasets": ("data/",),
    "apache_beam": ("data/beam.py", "data/beam_steps.py"),
    "orbax": ("train/checkpoint.py",),
    "pycolmap": ("colmap/bindings/api.py",),
    "h5py": ("features/store.py", "matching/matches.py"),
    "safetensors": ("translation/bundle.py", "features/weights.py", "files/tensors.py"),
    "platformdirs": ("features/official.py",),
    "torch": ("files/pytorch.py",),
    "onnx": ("export/onnx_format.py",),
    "onnxruntime": ("export/onnx_format.py",),
    "tensorboardX": ("train/log.py",),
    "matplotlib": ("evaluate/drawing.py", "evaluate/map_drawing.py"),
    "pyarrow": ("sweep/results.py",),
    "plotly": ("sweep/drawing.py",),
}


def imports(path: Path) -> set[str]:
    """Top-level names of all packages that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", OWNERS)
def test_one_part_owns_a_package(package):
    users = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if package in imports(p)}
    assert users, f"nothing imports {package}"
    assert {user for user in users if not user.startswith(OWNERS[package])} == set()


def test_one_module_says_pmap_or_mesh():
    for path in PACKAGE.rglob("*.py"):
        names = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
        names |= {n.id for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Name)}
        assert path.match("train/parallel.py") or not names & {"pmap", "Mesh", "NamedSharding"}, path


def test_files_stay_short():
    lengths = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in PACKAGE.rglob("*.py")}
    assert {name: n for name, n in lengths.items() if n > 400} == {}
