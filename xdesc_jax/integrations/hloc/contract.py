"""hloc's contract: the class it derives models from, where it looks for them, and configurations in its form.

In: nothing, or names. Out: `BaseModel` of hloc, tensors of arrays, and after `register` the modules
`hloc.extractors.xdesc` and `hloc.matchers.xdesc`. hloc's loader imports `<root>.<name>` and takes the one class that is
defined there and derives from `BaseModel`; so it finds the same in `extractors` and `matchers` beside this module.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

NAME = "xdesc"
KINDS = ("extractors", "matchers")
NEEDS = "needs hloc and torch, which xdesc-jax does not install: see https://github.com/cvg/Hierarchical-Localization"

# In the form of hloc's own `confs`; a copy of one with other values of 'model' is a configuration, too.
extractor_confs: dict[str, dict[str, Any]] = {
    "xdesc-sift": {
        "output": "feats-xdesc-sift",
        "model": {"name": NAME, "descriptor": "colmap-sift", "keypoints": "colmap"},
        "preprocessing": {"grayscale": False, "resize_max": 1600},
    },
    "xdesc-hardnet": {
        "output": "feats-xdesc-hardnet",
        "model": {"name": NAME, "descriptor": "hardnet-xdesc", "keypoints": "colmap"},
        "preprocessing": {"grayscale": False, "resize_max": 1600},
    },
}
matcher_confs: dict[str, dict[str, Any]] = {
    "xdesc-native": {"output": "matches-xdesc", "model": {"name": NAME, "mode": "native"}},
    "xdesc-embed": {"output": "matches-xdesc-embed", "model": {"name": NAME, "mode": "embed"}},
}


def base_model() -> Any:
    """hloc's `BaseModel`.

    Raises:
        ModuleNotFoundError: no hloc, or something that it needs.
    """
    try:
        from hloc.utils.base_model import BaseModel
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"xdesc_jax.integrations.hloc {NEEDS} ({error})", name=error.name) from error
    return BaseModel


def tensors(arrays: Mapping[str, np.ndarray], device: Any) -> dict[str, Any]:
    """Arrays as torch's tensors on a device, each a batch of one."""
    import torch

    return {key: torch.from_numpy(np.ascontiguousarray(value))[None].to(device) for key, value in arrays.items()}


def arrays(data: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The first of a batch of tensors each, as arrays."""
    return {key: np.asarray(value[0].cpu().numpy()) for key, value in data.items()}


def register() -> None:
    """Puts the extractor and the matcher where hloc looks: their name is 'xdesc' in any configuration then.

    Raises:
        ModuleNotFoundError: as `base_model`.
    """
    base_model()
    for kind in KINDS:
        root = importlib.import_module(f"hloc.{kind}")
        name = f"{root.__name__}.{NAME}"
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / kind / f"{NAME}.py")
        assert spec is not None and spec.loader is not None
        # A module of hloc's by name, since the loader takes classes of the module that it named alone.
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
        setattr(root, NAME, module)
