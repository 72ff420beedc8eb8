"""A place whose translator asks for frames and positions of all keypoints, and is exact whatever they are."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.support.place import WIDTH, exact_translator, rewrite
from xdesc_jax.config import ContextConfig
from xdesc_jax.networks import context
from xdesc_jax.networks.frames import width

CONTEXT = ContextConfig(of="keypoint", nearest=2, larger=1, width=4, heads=1)


def asking(bundle, config=CONTEXT):
    """The model with encoders that look at a photo's other rows and networks that take frames, at weights of zero."""
    frame, told = width(bundle.harmonics), context.output_width(config.width, config.heads)
    networks, rng = {}, np.random.default_rng(7)
    for name, ((kernel, bias), *others) in bundle.networks.items():
        more = frame + told * name.startswith("encoder/")
        networks[name] = [(np.concatenate([kernel, np.zeros((more, kernel.shape[1]), "f4")]), bias), *others]
    shapes = context.shapes(WIDTH + frame, config.width, config.heads)
    layers = [(rng.normal(size=s).astype(np.float32), rng.normal(size=s[1]).astype(np.float32)) for s in shapes]
    return dataclasses.replace(
        bundle, networks=networks, frame="image", contexts=dict.fromkeys(bundle.specs, layers), context=config,
        space_id=None,
    )  # fmt: skip


def context_place(place, folder):
    """`place` with scales and orientations in its feature files, and the translator that asks for all."""

    def framed(_, photo):
        rng = np.random.default_rng(len(photo))
        oris = rng.uniform(-3, 3, len(photo)).astype(np.float32)
        return dataclasses.replace(photo, scales=np.exp(rng.uniform(0, 3, len(photo))).astype(np.float32), oris=oris)

    features = {name: rewrite(path, folder / f"{name}.h5", framed) for name, path in place.features.items()}
    return dataclasses.replace(
        place, features=features, translator=asking(exact_translator()).save(folder / "asking.safetensors")
    )  # fmt: skip
