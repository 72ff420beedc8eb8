"""XFeat: keypoints by maxima of a heat map, rows read from a map of an eighth of the photo's size.

In: photos, or photos and positions. Out: keypoints and rows of 64 values. The network is kornia's; Potje et al.,
"XFeat: accelerated features for lightweight image matching", 2024.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from kornia.feature import XFeat as Network

from xdesc_jax.features.extractors.protocol import Detected
from xdesc_jax.features.extractors.pytorch import batch_of, ready, to_numpy

_STRIDE_PX = 32
_ALL = 1 << 30  # more keypoints than any photo has


class XFeat:
    """See `protocol.Extractor`; photos are scaled down to whole strides of 32 px.

    Where a side is no multiple of 32, positions are by up to (side / scaled side - 1) / 2 px off, as the authors'
    code gives them: it scales by corners there and by centres here. `describe` takes them in the same way.
    """

    least_px = _STRIDE_PX

    def __init__(self, name: str, weights: Path, device: str):
        self._device = device
        self._network = Network().eval()
        ready(self._network.net, weights, device)

    def detect(self, photo: np.ndarray) -> Detected:
        """See `protocol.Extractor`: maxima of 5 x 5 px above 0.05; scores are weighted by the network's reliability."""
        (found,) = self._network.detectAndCompute(batch_of(photo, self._device), top_k=_ALL)
        return Detected(to_numpy(found["keypoints"]), to_numpy(found["scores"]), to_numpy(found["descriptors"]))

    def describe(self, photo: np.ndarray, xy: np.ndarray) -> np.ndarray:
        """See `protocol.Extractor`."""
        size = [max(_STRIDE_PX, side // _STRIDE_PX * _STRIDE_PX) for side in photo.shape[:2]]
        scaled = F.interpolate(batch_of(photo, self._device), size, mode="bilinear", align_corners=False)
        features, _, _ = self._network.net(scaled)
        on_scaled = xy * (np.array(size[::-1]) / photo.shape[1::-1])
        places = torch.from_numpy(on_scaled.astype(np.float32)).to(self._device)
        rows = self._network.interpolator(F.normalize(features, dim=1), places[None], *size)[0]
        return to_numpy(F.normalize(rows, dim=-1))
