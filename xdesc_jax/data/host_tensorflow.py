"""TensorFlow for reading and writing records, kept off the accelerators that jax will use.

Out: `tf` and `tfds`, with GPUs and TPUs hidden before their first use; TensorFlow would otherwise take all of
their memory. Nothing else imports either package.
"""

from __future__ import annotations

import os

from xdesc_jax import console

# No notes about its build and its kernels (none of which is used here); read once, at import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

with console.status("starting TensorFlow"):
    import tensorflow as tf
    import tensorflow_datasets as tfds

for _kind in ("GPU", "TPU"):
    if tf.config.get_visible_devices(_kind):
        tf.config.set_visible_devices([], _kind)

__all__ = ["tf", "tfds"]
