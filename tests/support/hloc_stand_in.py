"""hloc's loader contract, and as much of torch as it needs, for machines that have neither.

In: a folder, and pytest's monkeypatch. Out: packages `hloc` and `torch` that can be imported: `hloc.utils.base_model`
with `BaseModel` and `dynamic_load`, empty `hloc.extractors` and `hloc.matchers`; of torch, tensors that are numpy's
arrays. Where torch is installed, only hloc is made.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import numpy as np

BASE_MODEL = """
import inspect
from torch import nn


class BaseModel(nn.Module):
    default_conf = {}
    required_inputs = []

    def __init__(self, conf):
        super().__init__()
        self.conf = conf = {**self.default_conf, **conf}
        self.required_inputs = list(self.required_inputs)
        self._init(conf)

    def forward(self, data):
        for key in self.required_inputs:
            assert key in data, key
        return self._forward(data)


def dynamic_load(root, model):
    path = f"{root.__name__}.{model}"
    module = __import__(path, fromlist=[""])
    found = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == path]
    found = [c for c in found if issubclass(c, BaseModel)]
    assert len(found) == 1, found
    return found[0]
"""


class Tensor(np.ndarray):
    """An array with what models call of a tensor."""

    device = "cpu"

    def cpu(self) -> Tensor:
        return self

    def to(self, device: object) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return np.asarray(self)


class Module:
    """`torch.nn.Module`, as far as a model without weights goes."""

    def __call__(self, data: dict) -> dict:
        return self.forward(data)  # type: ignore[attr-defined]


def forget(monkeypatch) -> None:
    """Takes out what was imported of hloc."""
    for name in [n for n in sys.modules if n.split(".")[0] == "hloc"]:
        monkeypatch.delitem(sys.modules, name)


def install(folder: Path, monkeypatch) -> None:
    """Makes `hloc` importable, and `torch` where there is none."""
    for package in ("hloc", "hloc/utils", "hloc/extractors", "hloc/matchers"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    (folder / "hloc" / "utils" / "base_model.py").write_text(BASE_MODEL)
    monkeypatch.syspath_prepend(str(folder))
    forget(monkeypatch)
    if importlib.util.find_spec("torch") is None:
        torch = types.ModuleType("torch")
        torch.nn = types.ModuleType("torch.nn")  # type: ignore[attr-defined]
        torch.nn.Module = Module  # type: ignore[attr-defined]
        torch.from_numpy = lambda x: x.view(Tensor)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "torch.nn", torch.nn)
