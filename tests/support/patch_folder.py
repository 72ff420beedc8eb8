"""HPatches patches in the layout of the release, made of numbers."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from tests.support.textures import texture
from xdesc_jax.evaluate.benchmarks.patch_strips import STRIPS

COUNTS = {"i_door": 7, "i_wall": 5, "v_roof": 9}


def write_patches(root: Path, counts: dict[str, int] = COUNTS, *, noise: float = 0.0) -> Path:
    """Each place has a texture of its own; all strips show it, with so many gray levels of noise."""
    rng = np.random.default_rng(0)
    for seed, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        places = np.stack([texture(65, 65, seed=100 * seed + k) for k in range(count)]).astype(np.float64)
        for strip in STRIPS:
            seen = places + noise * rng.standard_normal(places.shape) * (strip != "ref")
            pixels = np.clip(np.rint(seen), 0, 255).astype(np.uint8).reshape(-1, 65)
            cv2.imwrite(str(root / name / f"{strip}.png"), pixels)
    return root


def write_lists(folder: Path, split: str) -> Path:
    """Task lists in the layout of hpatches-benchmark, for `COUNTS`."""
    folder.mkdir(parents=True)
    head = "s1,t1,idx1,s2,t2,idx2"
    lists = {
        "verif_pos": [head, *(f"i_door,{k % 5},{k},i_door,{(k + 1) % 5},{k}" for k in range(5))],
        "verif_neg_intra": [head, *(f"i_door,{k % 5},{k},i_door,{(k + 1) % 5},{k + 1}" for k in range(5))],
        "verif_neg_inter": [head, *(f"i_door,{k % 5},{k},v_roof,{(k + 1) % 5},{k + 3}" for k in range(5))],
        "retr_queries": ["s,idx", "i_door,6", "v_roof,0"],
        "retr_distractors": ["s,idx", "i_wall,4", "v_roof,8", "i_door,1", "i_wall,0"],
    }
    for name, lines in lists.items():
        (folder / f"{name}_split-{split}.csv").write_text("\n".join(lines) + "\n")
    return folder
