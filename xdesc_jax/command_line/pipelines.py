"""The stage `xdesc pipeline`: experiments that ship with the package, each with a command line of its own.

In: the name of a file in `pipelines/` that can be run, and its words. Out: its function, or the list of all. The folder
lies in the package where it was installed, and beside it in a checkout.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.console.words import did_you_mean


def pipeline() -> None:
    """Lists the experiments that ship. `xdesc pipeline NAME ...` runs one, with `--help` of its own."""
    for known, path in shipped().items():
        summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]
        console.out.print(f"{known}\n    {summary}", markup=False, soft_wrap=True)


def shipped() -> dict[str, Path]:
    """The pipelines that can be run, by name."""
    found = sorted(_folder().glob("*.py"))
    return {path.stem: path for path in found if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")}


def load(name: str) -> Callable[..., Any]:
    """The function of a pipeline: of its own name, or `main`.

    Raises:
        ValueError: none of that name.
        ModuleNotFoundError: a package that the pipeline needs.
    """
    if name not in shipped():
        near = did_you_mean(name, shipped())
        raise ValueError(f"no pipeline is called {name!r}{near} (there are {', '.join(shipped())})")
    folder = _folder()
    if folder.parent.name == "xdesc_jax":
        module = importlib.import_module(f"xdesc_jax.pipelines.{name}")
    else:
        if str(folder.parent) not in sys.path:
            sys.path.insert(0, str(folder.parent))
        module = importlib.import_module(f"pipelines.{name}")
    return getattr(module, name, None) or module.main


def _folder() -> Path:
    package = Path(__file__).parents[1]
    installed = package / "pipelines"
    return installed if installed.is_dir() else package.parent / "pipelines"
