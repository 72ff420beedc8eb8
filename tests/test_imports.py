"""What the light modules may not import."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError(f"{{name}} is blocked")

sys.meta_path.insert(0, Blocked())
import {module}
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


WITHOUT_TORCH = [
    "export.export",
    "export.pytorch_translator",
    "features.weights",
    "features.extractors.process",
    "features.extractors.serve",
]


def import_without(blocked, module):
    program = BLOCK.format(blocked=set(blocked), module=module)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("module", LIGHT)
def test_imports_without_any_framework(module):
    done = import_without(FRAMEWORKS, f"xdesc_jax.{module}")
    assert done.returncode == 0, done.stderr


def test_export_imports_without_onnx():
    done = import_without(("onnx", "onnxruntime"), "xdesc_jax.export.export")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["reports.page", "reports.parts", "reports.settings"])
def test_pages_import_without_what_draws_or_renders(module):
    done = import_without(("jinja2", "matplotlib", "plotly", "PIL", *FRAMEWORKS), f"xdesc_jax.{module}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "module", ["train.translators.step", "train.descriptors.step", "data.resident", "export.export"]
)
def test_imports_without_tensorflow(module):
    done = import_without(TENSORFLOW, f"xdesc_jax.{module}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "export.export",
        "export.pytorch_translator",
        "features.weights",
        "features.extractors.process",
        "features.extractors.serve",
    ],
)
def test_imports_without_torch_or_jax(module):
    done = import_without(("torch", "kornia", *FRAMEWORKS), f"xdesc_jax.{module}")
    assert done.returncode == 0, done.stderr


def test_a_blocked_import_is_seen():
    assert "jax is blocked" in import_without(["jax"], "xdesc_jax.networks.mlp").stderr
