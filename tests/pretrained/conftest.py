"""A folder of small shipped files, in place of the package's own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xdesc_jax import pretrained
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.translation.bundle import Bundle

CARD = {
    "kind": "translator",
    "descriptors": ["ones", "twos"],
    "keypoints": "colmap",
    "data": "train/photos",
    "rows": 1000,
    "steps": 70,
    "hardware": "2 CPU cores",
    "date": "2026-01-31",
    "config_hash": "0123456789ab",
    "command": "xdesc train ...",
    "figures": {
        "dev/homography": {
            "native": {"ones": 0.25, "twos": 0.75},
            "translation": {"ones->twos": 0.375, "twos->ones": 0.125},
            "joint": {"ones|ones": 0.5, "ones|twos": 0.6},
        }
    },
}
WEIGHTS_CARD = {
    **{k: v for k, v in CARD.items() if k != "rows"},
    "kind": "weights",
    "descriptors": ["hardnet-xdesc"],
    "pairs": 99,
    "figures": {"dev/homography": {"native": {"hardnet-xdesc": 0.5, "sift": 0.4}}},
}


def make_bundle() -> Bundle:
    """`twos` are `ones` backwards."""
    straight, zeros = np.eye(5, dtype=np.float32), np.zeros(5, np.float32)
    kernels = {"ones": straight, "twos": straight[::-1].copy()}
    networks = {f"{part}/{n}": [(k, zeros)] for part in ("encoder", "decoder") for n, k in kernels.items()}
    return Bundle("encoder_decoder", {n: DescriptorSpec(n, 5) for n in kernels}, 5, networks)


def write_card(folder, name, card):
    (folder / f"{name}.json").write_text(json.dumps({"name": name, **card}))


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty folder."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    return folder


@pytest.fixture
def shipped(empty):
    """Translators `colmap` and `opencv`, and weights `hardnet-xdesc`."""
    for name in ("colmap", "opencv"):
        make_bundle().save(empty / f"{name}.safetensors")
        write_card(empty, name, {**CARD, "keypoints": name})
    (empty / "hardnet-xdesc.safetensors").write_bytes(b"weights")
    write_card(empty, "hardnet-xdesc", WEIGHTS_CARD)
    return empty
