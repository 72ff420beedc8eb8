"""Translate local feature descriptors between types, for visual localisation and mapping.

The public names stand in `__init__.pyi`, each once, and are imported when they are first used: importing the package
loads nothing but the standard library, and what a name needs (numpy, pycolmap, jax) only with that name.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
