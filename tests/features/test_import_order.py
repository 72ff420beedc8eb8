"""Order of imports: pycolmap brings its own zlib, which must not become the process's."""

import os
import subprocess
import sys
from pathlib import Path

import xdesc_jax

PUBLIC = [
    "features.images", "features.keypoints", "features.response", "features.patches", "features.opencv_descriptors",
    "features.extract", "colmap.database", "colmap.bindings.api", "mapping.reconstruct",
    "localization.localizer", "localization.localize",
]  # fmt: skip
DEFLATE = """
import importlib, sys
importlib.import_module("xdesc_jax." + sys.argv[1])
import numpy as np
from PIL import Image
Image.fromarray(np.arange(600, dtype=np.uint8).reshape(20, 30) % 7).save(sys.argv[2] + ".png")
np.savez_compressed(sys.argv[2] + ".npz", a=np.arange(1000) % 3)
if sys.argv[1].startswith("colmap.database"):
    assert not {"jax", "flax", "tensorflow", "pycolmap"} & set(sys.modules)
"""


def test_after_importing_any_module_alone_files_can_be_compressed(tmp_path):
    root = Path(xdesc_jax.__file__).parents[1]
    running = {
        module: subprocess.Popen(
            [sys.executable, "-c", DEFLATE, module, str(tmp_path / module)],
            env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.PIPE,
        )
        for module in PUBLIC
    }  # fmt: skip
    for module, process in running.items():
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, f"{module}: {errors.decode()}"
