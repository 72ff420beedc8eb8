"""What an extractor is: a network that finds keypoints in a photo and describes these, or any others.

In: a weight file, photos, positions. Out: keypoints, scores and rows. Runs in the process that `serve` starts, which
has torch; the modules beside this one hold one family of networks each, the names of which `features.registered`
lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch

from xdesc_jax.features.weights import arrays_in, is_torch_file, read_arrays, select
from xdesc_jax.files import pytorch


class Detected(NamedTuple):
    """The keypoints that a network finds.

    Attributes:
        xy: [N, 2] float32, x right and y down in px of the photo, origin at the centre of the first pixel.
        scores: [N] float32, larger is better.
        rows: [N, D] float32 of unit length.
    """

    xy: np.ndarray
    scores: np.ndarray
    rows: np.ndarray


class Extractor(Protocol):
    """A network with its weights on a device.

    Args:
        name: of the descriptor: a family may have several.
        weights: its weight file.
        device: where it computes.

    Attributes:
        least_px: the shorter side that a photo must have.

    Raises:
        ValueError: the weights are of another network.
    """

    least_px: int

    def __init__(self, name: str, weights: Path, device: torch.device): ...

    def detect(self, photo: np.ndarray) -> Detected:
        """All keypoints of a photo, uint8 [H, W, 3], at the network's own threshold."""
        ...

    def describe(self, photo: np.ndarray, xy: np.ndarray) -> np.ndarray:
        """Rows [N, D] float32 of unit length at given positions, float32 [N, 2]; N is at least 1.

        Positions have the origin at the centre of the first pixel and lie `process.BORDER_PX` inside the photo.
        """
        ...


def _read(path: Path) -> dict[str, np.ndarray]:
    """`weights.read_arrays`, which reads PyTorch files in a process of their own, where torch is here already."""
    return arrays_in(pytorch.load(path), path) if is_torch_file(path) else read_arrays(path)


def ready(network: torch.nn.Module, weights: Path, device: torch.device, own: tuple[str, ...] = ()) -> torch.nn.Module:
    """A network with weights from a file, in evaluation mode on its device.

    Args:
        network: of the architecture that the weights must have.
        weights: the file.
        device: where it goes.
        own: constants of the network that files do not hold.

    Raises:
        ValueError: the file's arrays are not those of the network.
    """
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    shapes = {k: shape for k, shape in shapes.items() if k not in own and not k.endswith("num_batches_tracked")}
    arrays = select(_read(weights), shapes, weights)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()}, strict=False)
    return network.to(device).eval()


def batch_of(photo: np.ndarray, device: torch.device) -> torch.Tensor:
    """uint8 [H, W, 3] -> float32 [1, 3, H, W] in 0..1."""
    pixels = torch.from_numpy(np.ascontiguousarray(photo)).to(device)
    return (pixels.permute(2, 0, 1)[None].float() / 255).contiguous()


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """float32 on the host."""
    return np.asarray(tensor.detach().float().cpu().numpy())
