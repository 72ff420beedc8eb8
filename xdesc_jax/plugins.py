"""What users add to the package: modules that register descriptors of their own.

In: entry points of installed packages, and the environment. Out: nothing but that they are imported. Imports the
standard library alone.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import runpy
from collections.abc import Callable
from typing import Any

PLUGINS = "XDESC_PLUGINS"
_GROUP = "xdesc_jax.descriptors"


@functools.cache
def load_plugins() -> None:
    """Imports what registers descriptors of users, once: installed packages with an entry point in the group
    'xdesc_jax.descriptors', and the modules or .py files in the environment variable XDESC_PLUGINS, separated
    as in PATH. Worker processes inherit the variable.

    Raises:
        ValueError: a file or module that cannot be imported, or one that fails as it is; names it.
    """
    for point in importlib.metadata.entry_points(group=_GROUP):
        package = f" of the package {point.dist.name}" if point.dist is not None else ""
        _load(f"{point.value}{package}", point.load)
    for plugin in filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)):
        _load(plugin, functools.partial(runpy.run_path if plugin.endswith(".py") else importlib.import_module, plugin))


def _load(plugin: str, load: Callable[[], Any]) -> None:
    try:
        load()
    except Exception as error:  # it may do anything
        raise ValueError(f"plugin {plugin}: cannot be imported ({type(error).__name__}: {error})") from error
