"""TensorFlow for reading and writing records, kept off the accelerators that jax will use.

Out: `tf` and `tfds`, with GPUs and TPUs hidden before their first use; TensorFlow would otherwise take all of
their memory. Nothing else imports either package.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # no notes about its build; read once, at import

import tensorflow as tf
import tensorflow_datasets as tfds

for _kind in ("GPU", "TPU"):
    if tf.config.get_visible_devices(_kind):
        tf.config.set_visible_devices([], _kind)

__all__ = ["tf", "tfds"]
