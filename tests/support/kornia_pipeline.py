"""What kornia's own pipeline finds in a photo: the oracle of learned descriptors. Imports torch when it is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from xdesc_jax.features.weights import read_arrays


def pipeline(name: str, weights: Path) -> Callable[[np.ndarray], tuple[np.ndarray, ...]]:
    """A function from a photo, uint8 [H, W, 3], to keypoints [N, 2], scores [N] and rows [N, D], by kornia's defaults.

    Args:
        name: of the descriptor.
        weights: installed weights of it.
    """
    import torch
    from kornia.feature import DISK, XFeat
    from kornia.feature.aliked import ALIKED

    network = DISK() if name == "disk" else XFeat(top_k=1 << 20) if name == "xfeat" else ALIKED(name)
    state = {key: torch.from_numpy(array) for key, array in read_arrays(weights).items()}
    (network.net if name == "xfeat" else network).load_state_dict(state, strict=False)
    network.eval()

    def run(photo: np.ndarray) -> tuple[np.ndarray, ...]:
        pixels = torch.from_numpy(photo.copy()).permute(2, 0, 1)[None] / 255
        with torch.inference_mode():
            if name == "xfeat":
                (found,) = network.detectAndCompute(pixels)
                return tuple(found[key].numpy() for key in ("keypoints", "scores", "descriptors"))
            (found,) = network(pixels, pad_if_not_divisible=True) if name == "disk" else network(pixels)
            scores = found.detection_scores if name == "disk" else found.keypoint_scores
            return tuple(value.numpy() for value in (found.keypoints, scores, found.descriptors))

    return run
