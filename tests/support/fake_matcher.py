"""A matcher without torch, whose matches a test can find without it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from tests.support.network_calls import CALLS

DIES, FAILS, REPEATS, OUTSIDE = 1.0, 2.0, 3.0, 4.0  # x of the first keypoint that makes it go wrong


def in_its_place(monkeypatch, folder: Path, limit: float = 9.0) -> str:
    """Puts the fake in the place of the network, with no weights installed; the option with weights of its own."""
    from xdesc_jax.matching import learned

    monkeypatch.setattr(learned, "_CLASS", f"{Fake.__module__}:Fake")
    monkeypatch.setattr(learned, "require_kornia", lambda what: None)
    monkeypatch.setenv("XDESC_DATA", str(folder / "data"))
    np.savez(folder / "lightglue-aliked.npz", limit=limit)
    return f"--weights=lightglue-aliked={folder / 'lightglue-aliked.npz'}"


class Fake:
    """Rows match that point the same way, at places that are as far across their photos."""

    def __init__(self, name: str, weights: Path, device: str):
        self.limit = float(np.load(weights)["limit"])
        if self.limit <= 0:
            raise ValueError(f"{weights}: limit is {self.limit}, expected more than 0")

    def match(self, first, second):
        print("what a library prints is no reply")
        if CALLS in os.environ:
            with open(os.environ[CALLS], "a") as file:
                file.write(f"{len(first.rows)} {first.size} {len(second.rows)} {second.size}\n")
        assert "pycolmap" not in sys.modules
        match float(first.xy[0, 0]):
            case 1.0:
                os._exit(3)
            case 2.0:
                raise RuntimeError("not enough memory")
            case 3.0:
                return np.zeros((2, 2), int), np.ones(2)
            case 4.0:
                return np.array([[0, len(second.rows)]]), np.ones(1)
        similar = first.rows @ second.rows.T
        places = [side.xy / np.array(side.size) for side in (first, second)]
        apart = np.abs(places[0][:, None] - places[1]).max(axis=2)
        i, j = np.nonzero((similar > 0.9) & (apart < self.limit))
        return np.stack([i, j], axis=1)[::-1], similar[i, j][::-1]
