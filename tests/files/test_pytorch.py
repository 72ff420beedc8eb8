"""PyTorch files pass through a process of their own, and torch never enters that of pycolmap."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xdesc_jax
from xdesc_jax.files import pytorch

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(xdesc_jax.__file__).parents[1])}
needs_torch = pytest.mark.skipif(not pytorch.installed(), reason="torch is not installed")
CONTENT = {
    "args": argparse.Namespace(lr=1e-3, features=["a", "b"], initial_checkpoint=None),
    "encoders": [("é", {"network.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(7)})],
    "state": {0: {"step": 3}, 1: (True, float("inf"))},
}

# Reads files in one process and prints what each holds or what is wrong with it.
LOAD = """
import json, sys
import numpy as np
from xdesc_jax.files.pytorch import load
found = {}
with np.printoptions(threshold=sys.maxsize):
    for path in sys.argv[1:]:
        try:
            found[path] = repr(load(path))
        except ValueError as error:
            found[path] = str(error)
print(json.dumps(found))
"""
REFUSED = {
    "class.pth": "holds Python objects besides arrays, which are not loaded: found fractions.Fraction, "
    "expected none but argparse.Namespace",
    "set.pth": "holds a set, expected arrays",
    "empty.pth": "not a readable PyTorch file, or cut short",
    "text.pth": "not a readable PyTorch file, or cut short",
    "cut200.pth": "not a readable PyTorch file, or cut short",
    "cut5000.pth": "not a readable PyTorch file, or cut short",
}
# Both libraries in one process: deflate, linear algebra and feature detection must survive each order.
BOTH = """
import importlib, io, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
import numpy as np, torch
from xdesc_jax.colmap.bindings.api import detect_sift
rng = np.random.default_rng(0)
a = rng.normal(size=(90, 90))
assert np.allclose(a @ np.linalg.inv(a), np.eye(90))
t = torch.from_numpy(a)
assert torch.allclose(t @ torch.linalg.inv(t), torch.eye(90, dtype=t.dtype))
np.savez_compressed(buffer := io.BytesIO(), a=a)
buffer.seek(0)
assert (np.load(buffer)["a"] == a).all()
torch.save(t, io.BytesIO())
detect_sift(rng.integers(0, 255, (60, 80, 3), dtype=np.uint8))
"""
# This package's way: the file is read beside pycolmap, and torch stays out of the process.
BESIDE = """
import io, sys
if sys.argv[1] == "pycolmap first":
    import xdesc_jax.colmap.bindings.api
from xdesc_jax.files import pytorch as torch_format
assert len(torch_format.read(sys.argv[2])) == 1
import xdesc_jax.colmap.bindings.api
import numpy as np
np.savez_compressed(io.BytesIO(), a=np.arange(1000) % 3)
np.linalg.svd(np.random.default_rng(0).normal(size=(50, 50)))
assert "torch" not in sys.modules
"""


def start(program, *words):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, f"status {process.returncode}: {errors}"
    return out


@pytest.fixture(scope="module")
def loaded(pytorch_files):
    names = [*REFUSED, "plain.pth", "old.pth", "numpy1.pth"]
    found = json.loads(finish(start(LOAD, *(pytorch_files / name for name in names))))
    return dict(zip(names, found.values(), strict=True))


def same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == expected


@needs_torch
def test_what_is_written_comes_back(tmp_path):
    path = pytorch.write(tmp_path / "x é.pth", CONTENT)
    same(pytorch.read(path), CONTENT)
    assert [p.name for p in tmp_path.iterdir()] == ["x é.pth"]


def test_both_layouts_and_floats_of_either_numpy_are_read(loaded):
    assert loaded["plain.pth"] == loaded["old.pth"] == loaded["numpy1.pth"]
    for part in ("Namespace(lr=0.001", "[0.75, 0.5]", "'betas': (0.9, 0.999)", "'network.0.weight': array("):
        assert part in loaded["plain.pth"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_read_is_refused_by_name(loaded, name):
    assert f"{name}: {REFUSED[name]}" in loaded[name] and "weights_only" not in loaded[name]


def test_a_refusal_passes_from_the_process_to_the_caller(pytorch_files):
    path = pytorch_files / "réf usée.pth"
    path.write_text("hello, world")
    with pytest.raises(ValueError, match=r"réf usée\.pth: not a readable PyTorch file"):
        pytorch.read(path)


def test_content_that_no_file_can_hold_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"x\.pth: holds a set"):
        pytorch.write(tmp_path / "x.pth", {"a": {1, 2}})
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.pth: no such PyTorch file"):
        pytorch.read(tmp_path / "absent.pth")


@pytest.mark.parametrize("action", ["read", "write"])
def test_without_torch_the_message_names_the_extra(tmp_path, monkeypatch, action):
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "x.pth"
    if action == "read":
        path.write_bytes(b"x")
    with pytest.raises(ValueError, match=r"x\.pth: .*'torch'.* pip install 'xdesc-jax\[torch\]'"):
        pytorch.read(path) if action == "read" else pytorch.write(path, CONTENT)


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("pycolmap") is None, reason="pycolmap is not installed")
def test_torch_and_pycolmap_live_in_one_process_and_side_by_side(pytorch_files):
    modules = ["torch", "xdesc_jax.colmap.bindings.api"]
    running = {"torch first": start(BOTH, *modules), "pycolmap first": start(BOTH, *modules[::-1])}
    for process in running.values():
        finish(process)
    beside = [start(BESIDE, order, pytorch_files / "list.pth") for order in running]
    for process in beside:
        finish(process)
