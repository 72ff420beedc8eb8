"""The matcher as hloc calls it: a thin shell around `pair_matching`.

In: what a pair of photos has in two feature files, `descriptors0` [1, D, N] and so on. Out: `matches0` and
`matching_scores0`, [1, N], as tensors.
"""

from __future__ import annotations

from typing import Any

from xdesc_jax.integrations.hloc import contract
from xdesc_jax.integrations.hloc.pair_matching import DEFAULTS, PairMatching


class Xdesc(contract.base_model()):  # type: ignore[misc]
    """Mutual nearest neighbours of two descriptors, native or through a translator."""

    default_conf = {"name": contract.NAME, **DEFAULTS}
    required_inputs = ["keypoints0", "descriptors0", "keypoints1", "descriptors1"]

    def _init(self, conf: dict[str, Any]) -> None:
        self._match = PairMatching.of(conf)

    def _forward(self, data: dict[str, Any]) -> dict[str, Any]:
        photos = {key: value for key, value in data.items() if not key.startswith("image")}
        return contract.tensors(self._match(contract.arrays(photos)), data["descriptors0"].device)
