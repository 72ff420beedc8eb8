"""What an extractor and a matcher are, and what the two ends of their process say to each other.

In: nothing. Out: types. An extractor is a network that finds keypoints in a photo and describes these, or any others;
it is registered under a name (`features.registered`, or a user's own plugin) and runs in the process that `serve` is.
So does a matcher, which finds the matches of two photos by their keypoints and rows. Imports numpy alone, so that
either end can.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

# Kinds of replies: computed; not with these settings or files; the photo is too small; the network failed.
OK, REFUSED, SMALL, FAILED = "ok", "refused", "small", "failed"


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
        device: 'cpu' or 'cuda'.

    Attributes:
        least_px: the shorter side that a photo must have.

    Raises:
        ValueError: the weights are of another network.
    """

    least_px: int

    def __init__(self, name: str, weights: Path, device: str): ...

    def detect(self, photo: np.ndarray) -> Detected:
        """All keypoints of a photo, uint8 [H, W, 3], at the network's own threshold."""
        ...

    def describe(self, photo: np.ndarray, xy: np.ndarray) -> np.ndarray:
        """Rows [N, D] float32 of unit length at given positions, float32 [N, 2]; N is at least 1.

        Positions have the origin at the centre of the first pixel and lie `process.BORDER_PX` inside the photo.
        """
        ...


class Side(NamedTuple):
    """One photo of a pair.

    Attributes:
        xy: [N, 2] float32 in px, origin at the centre of the first pixel, from 0 to the photo's width and height.
        rows: [N, D] float32 of unit length; N is at least 1.
        size: (width, height) in px.
    """

    xy: np.ndarray
    rows: np.ndarray
    size: tuple[int, int]


class Matcher(Protocol):
    """A network with its weights on a device.

    Args:
        name: of its weights: a family may have several.
        weights: the weight file.
        device: 'cpu' or 'cuda'.

    Raises:
        ValueError: the weights are of another network.
    """

    def __init__(self, name: str, weights: Path, device: str): ...

    def match(self, first: Side, second: Side) -> tuple[np.ndarray, np.ndarray]:
        """Matches of two photos: rows of the first and of the second, int [M, 2], and scores [M], larger is better."""
        ...


@dataclasses.dataclass(frozen=True)
class Network:
    """A network to load: 'module:name' of its class (None: as it is registered there), and its weight file."""

    describe: str | None
    weights: str


@dataclasses.dataclass(frozen=True)
class Start:
    """The first request: networks by name, 'auto', 'cpu' or 'cuda', and the threads of a CPU."""

    networks: dict[str, Network]
    device: str
    threads: int


@dataclasses.dataclass(frozen=True)
class Request:
    """A photo, uint8 [H, W, 3], for one network: to find keypoints, or to describe positions [N, 2] where given."""

    name: str
    photo: np.ndarray
    xy: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class PairRequest:
    """Two photos for one matcher."""

    name: str
    first: Side
    second: Side
