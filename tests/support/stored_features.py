"""Features of a photo made up of random numbers, and files of them."""

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, binary_spec
from xdesc_jax.features.store import ImageFeatures, StoreWriter

BITS = binary_spec("bits13", 13)


def features(n: int = 3, spec: DescriptorSpec = BITS, **changes) -> ImageFeatures:
    """Features of `n` keypoints, with `changes` of their fields."""
    rng = np.random.default_rng(n)
    rows = rng.integers(1, 200, (n, spec.stored_width)).astype(spec.stored_dtype)
    fields = {
        "keypoints": rng.uniform(0, 99, (n, 2)).astype(np.float32),
        "descriptors": rows,
        "valid": np.ones(n, bool),
        "image_size": (121, 97),
        "scales": rng.uniform(1, 9, n).astype(np.float32),
        "oris": rng.uniform(-3, 3, n).astype(np.float32),
    }
    return ImageFeatures(**(fields | changes))


def write(path, images: dict[str, ImageFeatures], spec: DescriptorSpec = BITS, **attributes):
    """A feature file of these photos."""
    with StoreWriter(path, spec, attributes) as writer:
        for name, image in images.items():
            writer.write(name, image)
    return path
