"""The extractor as hloc calls it: a thin shell around `extraction`.

In: `data["image"]`, [1, C, H, W] in 0..1. Out: keypoints, descriptors and what `extraction` gives besides, as tensors.
"""

from __future__ import annotations

from typing import Any

from xdesc_jax.integrations.hloc import contract
from xdesc_jax.integrations.hloc.extraction import DEFAULTS, PhotoExtractor


class Xdesc(contract.base_model()):  # type: ignore[misc]
    """Keypoints and descriptors of the package, translated where the configuration names a target."""

    default_conf = {"name": contract.NAME, **DEFAULTS}
    required_inputs = ["image"]
    detection_noise = 1.0

    def _init(self, conf: dict[str, Any]) -> None:
        self._extract = PhotoExtractor.of(conf)

    def _forward(self, data: dict[str, Any]) -> dict[str, Any]:
        image = data["image"]
        return contract.tensors(self._extract(contract.arrays({"image": image})["image"]), image.device)
