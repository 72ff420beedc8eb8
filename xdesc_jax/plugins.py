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

PLUGINS = "XDESC_PLUGINS"


@functools.cache
def load_plugins() -> None:
    """Imports what registers descriptors of users, once: installed packages with an entry point in the group
    'xdesc_jax.descriptors', and the modules or .py files in the environment variable XDESC_PLUGINS, separated
    as in PATH. Worker processes inherit the variable.

    Raises:
        ValueError: a file or module that cannot be imported.
    """
    for point in importlib.metadata.entry_points(group="xdesc_jax.descriptors"):
        point.load()
    for plugin in filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)):
        try:
            if plugin.endswith(".py"):
                runpy.run_path(plugin)
            else:
                importlib.import_module(plugin)
        except (ImportError, OSError) as error:
            raise ValueError(f"plugin {plugin}: cannot be imported ({error})") from error
