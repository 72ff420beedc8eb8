"""Frames as networks take them: which networks do, and the form in which angle and scale go in.

In: frames [N, 2] of keypoints: sigma in px and orientation in radians, from x towards y, in the photo as it lies in its
file. Out: what is appended to a network's input. Numpy and jax.numpy compute the same; imports numpy alone.

Rows of frame 'keypoint' (SIFT, ORB, HardNet, ...) were made of a patch turned and scaled with its keypoint; rows of
frame 'image' (ALIKED, DISK, XFeat, ...) of the photo as it lies. A joint space has one of the two. In one of frame
'image' an embedding stands for what an upright network sees, so the encoder of a 'keypoint' descriptor is told how its
patch lay in the photo, and the decoder to one how it would. From rows without frames none of frame 'keypoint' can be
made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec

KEYPOINT, IMAGE = "keypoint", "image"
COLUMNS = 2  # of a frame: sigma, orientation
HARMONICS = 4
MIDDLE, SPREAD = 1.5, 2.0  # bring log2 of the sigmas of SIFT keypoints, .8 to 15 px, to about -1 to 1
MOST_TURN = 2 * np.pi + 0.01  # what an orientation in radians may reach


def width(harmonics: int) -> int:
    """Values that `encode` gives for a frame."""
    return 2 * harmonics + 1


def encode(frames: Any, harmonics: int, xp: ModuleType = np) -> Any:
    """Frames [..., 2] -> float32 [..., 2 H + 1]: cos and sin of 1 to H times the orientation, and log2 of sigma.

    Args:
        frames: sigma px and orientation.
        harmonics: H.
        xp: numpy, or jax.numpy.
    """
    turns = frames[..., 1:] * xp.arange(1, harmonics + 1, dtype=frames.dtype)
    size = (xp.log2(frames[..., :1]) - MIDDLE) / SPREAD
    return xp.concatenate([xp.cos(turns), xp.sin(turns), size], axis=-1).astype(np.float32)


def behind(x: Any, frames: Any, harmonics: int, xp: ModuleType = np) -> Any:
    """Rows [..., D] with what `encode` makes of their keypoints' frames [..., 2] behind them, [..., D + 2 H + 1]."""
    return xp.concatenate([x, encode(frames, harmonics, xp)], axis=-1)


def mean_log2_sigma(frames: np.ndarray) -> float:
    """Mean of log2 of the sigmas of frames [N, 2]."""
    return float(np.log2(frames[:, 0], dtype=np.float64).mean())


def takes_frames(network: str, specs: Mapping[str, DescriptorSpec], space: str) -> bool:
    """Whether a network is told the keypoints' frames.

    Args:
        network: 'encoder/<name>', 'decoder/<name>' or 'pair/<source>/<target>'.
        specs: descriptors by name.
        space: frame of the joint space, or of the model of pairs.
    """
    ends = {specs[name].frame for name in network.split("/")[1:]}
    return space == IMAGE and (len(ends) > 1 if network.startswith("pair/") else KEYPOINT in ends)


def space_of(specs: Mapping[str, DescriptorSpec], asked: str = "auto") -> str:
    """The frame of a model of these descriptors: 'image' where one of them has it, unless another is asked for.

    Raises:
        ValueError: descriptors of frame 'image' in a space of frame 'keypoint'.
    """
    upright = [name for name, spec in specs.items() if spec.frame == IMAGE]
    if asked == KEYPOINT and upright:
        raise ValueError(
            f"{upright[0]!r} sees photos as they lie (frame 'image'), and the joint space is of frame 'keypoint', "
            "where patches are turned and scaled with their keypoints: only a model of frame 'image' can take it"
        )
    return (IMAGE if upright else KEYPOINT) if asked == "auto" else asked


def check(frames: np.ndarray, rows: int, where: str = "") -> np.ndarray:
    """The frames of `rows` keypoints as float32 [N, 2].

    Raises:
        ValueError: another shape, a sigma that is not above 0, an orientation in degrees, or a value that is not
            finite; says `where`.
    """
    at = f"{where}: " if where else ""
    found = np.asarray(frames, np.float32)
    if found.shape != (rows, COLUMNS):
        raise ValueError(f"{at}frames have shape {found.shape}, expected ({rows}, 2): sigma px, orientation in radians")
    bad = ~np.isfinite(found).all(axis=1) | ~(found[:, 0] > 0)
    if bad.any():
        row = int(np.argmax(bad))
        told = found[row].tolist()
        raise ValueError(f"{at}the frame of keypoint {row} is {told}, expected a sigma over 0 and an angle")
    if (far := np.abs(found[:, 1]) > MOST_TURN).any():
        row = int(np.argmax(far))
        angle = found[row, 1]
        raise ValueError(f"{at}the orientation of keypoint {row} is {angle:g}, expected radians: are they degrees?")
    return found
