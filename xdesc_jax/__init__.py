"""Translate local feature descriptors between types, for visual localisation and mapping.

Importing the package needs numpy alone; jax, flax, tensorflow, OpenCV and pycolmap are imported by the
modules that use them.
"""

from xdesc_jax.descriptors import DescriptorSpec, get_spec, register

__version__ = "0.1.0"
__all__ = ["DescriptorSpec", "__version__", "get_spec", "register"]
