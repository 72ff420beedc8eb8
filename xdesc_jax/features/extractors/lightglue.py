"""LightGlue: matches of two photos by attention over their keypoints and rows, within and between them.

In: keypoints, rows and sizes of two photos. Out: matches and scores. The network is kornia's, with its own thresholds;
Lindenberger et al., "LightGlue: local feature matching at light speed", 2023.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from kornia.feature import LightGlue as Network

from xdesc_jax.features.extractors.protocol import Side
from xdesc_jax.features.extractors.pytorch import ready, to_numpy

_PREFIX = "lightglue-"


class LightGlue:
    """See `protocol.Matcher`: 'lightglue-aliked' or 'lightglue-disk', each for rows of 128 values."""

    def __init__(self, name: str, weights: Path, device: str):
        self._device = device
        settings = dict(Network.features[name.removeprefix(_PREFIX)])
        del settings["weights"]  # kornia would fetch them
        self._network = ready(Network(None, **settings), weights, device, ("confidence_thresholds",), _renamed)

    def match(self, first: Side, second: Side) -> tuple[np.ndarray, np.ndarray]:
        """See `protocol.Matcher`: matches of score above 0.1."""
        found = self._network({"image0": self._batch(first), "image1": self._batch(second)})
        return found["matches"][0].cpu().numpy(), to_numpy(found["scores"][0])

    def _batch(self, side: Side) -> dict[str, torch.Tensor]:
        arrays = {"keypoints": side.xy, "descriptors": side.rows, "image_size": np.array(side.size, np.float32)}
        return {name: torch.from_numpy(array)[None].to(self._device) for name, array in arrays.items()}


def _renamed(name: str) -> str | None:
    """Older files count layers by kind, and hold a constant that nothing reads."""
    if re.fullmatch(r"log_assignment\.\d+\.r", name):
        return None
    return re.sub(r"^((?:self|cross)_attn)\.(\d+)\.", r"transformers.\2.\1.", name)
