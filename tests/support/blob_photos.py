"""Photos of blobs, which every detector finds, and blank ones."""

from pathlib import Path

import cv2
import numpy as np


def write_blobs(root: Path, names: list[str]) -> Path:
    """Gray photos of 151 x 120 px under these names, sub-folders too; `blank.png` is white."""
    rng = np.random.default_rng(0)
    for name in names:
        noise = rng.integers(0, 256, (12, 15)).astype(np.uint8)
        gray = cv2.resize(noise, (151, 120), interpolation=cv2.INTER_CUBIC)
        if name == "blank.png":
            gray = np.full((120, 151), 255, np.uint8)
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(cv2.imencode(".png", gray)[1].tobytes())
    return root
