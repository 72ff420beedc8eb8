"""DISK: keypoints by maxima of a heat map at whole pixels, each with the pixel's own row.

In: photos, or photos and positions. Out: keypoints and rows of 128 values. The network is kornia's; Tyszkiewicz et al.,
"DISK: learning local features with policy gradient", 2020.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from kornia.feature import DISK

from xdesc_jax.features.extractors.protocol import Detected
from xdesc_jax.features.extractors.pytorch import batch_of, ready, to_numpy

_STRIDE_PX = 16


class Disk:
    """See `protocol.Extractor`; photos are padded to whole strides at the right and below, with zeros."""

    least_px = 2 * _STRIDE_PX

    def __init__(self, name: str, weights: Path, device: str):
        self._device = device
        self._network = ready(DISK(), weights, device)

    def detect(self, photo: np.ndarray) -> Detected:
        """See `protocol.Extractor`: maxima of 5 x 5 px above 0; scores are the network's logits."""
        (found,) = self._network(batch_of(photo, self._device), pad_if_not_divisible=True)
        return Detected(to_numpy(found.keypoints), to_numpy(found.detection_scores), to_numpy(found.descriptors))

    def describe(self, photo: np.ndarray, xy: np.ndarray) -> np.ndarray:
        """See `protocol.Extractor`: the four nearest pixels' rows, weighted bilinearly."""
        height, width = photo.shape[:2]
        padded = F.pad(batch_of(photo, self._device), (0, -width % _STRIDE_PX, 0, -height % _STRIDE_PX))
        _, dense = self._network.heatmap_and_dense_descriptors(padded)
        last = np.array([padded.shape[3] - 1, padded.shape[2] - 1])
        places = torch.from_numpy((xy / last * 2 - 1).astype(np.float32)).to(self._device)
        rows = F.grid_sample(dense, places[None, :, None], mode="bilinear", align_corners=True)[0, :, :, 0].T
        return to_numpy(F.normalize(rows, dim=-1))
