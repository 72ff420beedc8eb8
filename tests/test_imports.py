"""What the light modules may not import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Each module is the first of the package that its process imports. The processes are forks of one that holds what the
# base install brings, of which none is ever blocked.
PROGRAM = """
import importlib, json, os, sys, traceback
import h5py, numpy, rich.console, scipy.spatial

class Blocked:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ImportError(f"{name} is blocked")

def errors_of(blocked, module):
    assert not {name.split(".")[0] for name in sys.modules} & {*blocked, "xdesc_jax"}
    read, write = os.pipe()
    if not os.fork():
        os.dup2(write, 2)
        sys.meta_path.insert(0, Blocked(blocked))
        try:
            importlib.import_module(module)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with open(read) as told:
        text = told.read()
    return os.waitstatus_to_exitcode(os.wait()[1]), text

print(json.dumps([errors_of(*case) for case in json.loads(sys.argv[1])]))
"""
TENSORFLOW = ("tensorflow", "tensorflow_datasets")
FRAMEWORKS = ("jax", "jaxlib", "flax", "optax", "orbax", *TENSORFLOW)
LIGHT = [
    "translation",
    "translation.translator",
    "translation.translate",
    "translation.database",
    "matching",
    "matching.match",
    "matching.nearest",
    "matching.retrieval",
    "localization",
    "localization.localizer",
    "mapping",
    "mapping.build",
    "colmap",
    "colmap.database",
    "evaluate",
    "evaluate.benchmarks.registry",
    "evaluate.benchmarks.stages",
    "features.store",
    "descriptors",
    "export.quantization",
    "export.translation_graph",
    "inspection.inspect",
    "reports.page",
    "reports.parts",
    "inspection.show",
    "pretrained.listing",
]
PAGES = ["reports.page", "reports.parts", "reports.settings"]
WITHOUT_TENSORFLOW = ["train.translators.step", "train.descriptors.step", "data.resident", "export.export"]
WITHOUT_TORCH = [
    "export.export",
    "export.pytorch_translator",
    "features.weights",
    "features.extractors.process",
    "features.extractors.serve",
]
ONNX = ("onnx", "onnxruntime")
DRAWING = ("jinja2", "matplotlib", "plotly", "PIL", *FRAMEWORKS)
TORCH = ("torch", "kornia", *FRAMEWORKS)
CASES = [
    *((FRAMEWORKS, module) for module in LIGHT),
    (ONNX, "export.export"),
    *((DRAWING, module) for module in PAGES),
    *((TENSORFLOW, module) for module in WITHOUT_TENSORFLOW),
    *((TORCH, module) for module in WITHOUT_TORCH),
    (("jax",), "networks.mlp"),
]


@pytest.fixture(scope="module")
def imported() -> dict[tuple[tuple[str, ...], str], tuple[int, str]]:
    """(what is blocked, module) -> status and errors of a process that imports it."""
    cases = json.dumps([(blocked, f"xdesc_jax.{module}") for blocked, module in CASES])
    done = subprocess.run([sys.executable, "-c", PROGRAM, cases], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, map(tuple, json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize("module", LIGHT)
def test_imports_without_any_framework(module, imported):
    status, errors = imported[FRAMEWORKS, module]
    assert status == 0, errors


def test_export_imports_without_onnx(imported):
    status, errors = imported[ONNX, "export.export"]
    assert status == 0, errors


@pytest.mark.parametrize("module", PAGES)
def test_pages_import_without_what_draws_or_renders(module, imported):
    status, errors = imported[DRAWING, module]
    assert status == 0, errors


@pytest.mark.parametrize("module", WITHOUT_TENSORFLOW)
def test_imports_without_tensorflow(module, imported):
    status, errors = imported[TENSORFLOW, module]
    assert status == 0, errors


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_imports_without_torch_or_jax(module, imported):
    status, errors = imported[TORCH, module]
    assert status == 0, errors


def test_a_blocked_import_is_seen(imported):
    status, errors = imported[("jax",), "networks.mlp"]
    assert status == 1 and "jax is blocked" in errors
