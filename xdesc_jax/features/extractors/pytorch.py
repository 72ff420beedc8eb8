"""What the networks of torch share: weights from a file, photos to tensors and back.

In: a weight file and an architecture, or a photo. Out: the network on its device, or the photo's tensor. Imported in
the process that `serve` is, alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from xdesc_jax.features.weights import arrays_in, is_torch_file, read_arrays, select
from xdesc_jax.files import pytorch


def _read(path: Path) -> dict[str, np.ndarray]:
    """`weights.read_arrays`, which reads PyTorch files in a process of their own, where torch is here already."""
    return arrays_in(pytorch.load(path), path) if is_torch_file(path) else read_arrays(path)


def ready(
    network: torch.nn.Module,
    weights: Path,
    device: str,
    own: tuple[str, ...] = (),
    renamed: Callable[[str], str | None] = str,
) -> torch.nn.Module:
    """A network with weights from a file, in evaluation mode on its device.

    Args:
        network: of the architecture that the weights must have.
        weights: the file.
        device: where it goes.
        own: constants of the network that files do not hold.
        renamed: what a name of the file is in the network; None for what it does not have.

    Raises:
        ValueError: the file's arrays are not those of the network.
    """
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    shapes = {k: shape for k, shape in shapes.items() if k not in own and not k.endswith("num_batches_tracked")}
    held = {renamed(name): array for name, array in _read(weights).items()}
    arrays = select({name: array for name, array in held.items() if name is not None}, shapes, weights)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()}, strict=False)
    return network.to(device).eval()


def batch_of(photo: np.ndarray, device: str) -> torch.Tensor:
    """uint8 [H, W, 3] -> float32 [1, 3, H, W] in 0..1."""
    pixels = torch.from_numpy(np.ascontiguousarray(photo)).to(device)
    return (pixels.permute(2, 0, 1)[None].float() / 255).contiguous()


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """float32 on the host."""
    return np.asarray(tensor.detach().float().cpu().numpy())
