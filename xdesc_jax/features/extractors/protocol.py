"""What the two ends of a process of networks say to each other. Imports numpy alone, so that either end can.

In: nothing. Out: the types of requests, and the kinds of replies.
"""

from __future__ import annotations

import dataclasses

import numpy as np

# Kinds of replies: computed; not with these settings or files; the photo is too small; torch failed.
OK, REFUSED, SMALL, COMPUTE = "ok", "refused", "small", "compute"


@dataclasses.dataclass(frozen=True)
class Network:
    """A network to load: 'module:name' of its class (None: as it is registered there), and its weight file."""

    describe: str | None
    weights: str


@dataclasses.dataclass(frozen=True)
class Start:
    """The first request: networks by descriptor name, 'auto', 'cpu' or 'cuda', and threads (0: as torch decides)."""

    networks: dict[str, Network]
    device: str
    threads: int


@dataclasses.dataclass(frozen=True)
class Request:
    """A photo, uint8 [H, W, 3], for one network: to find keypoints, or to describe positions [N, 2] where given."""

    name: str
    photo: np.ndarray
    xy: np.ndarray | None
