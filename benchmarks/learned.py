"""The networks of learned descriptors against kornia's own pipeline with the same weights, photo by photo.

    python -m benchmarks.learned PHOTOS [--most 20] [--side 640] [--names aliked-n16rot disk xfeat]

Needs the extra 'learned' and installed weights (`xdesc weights install`). Prints the largest differences of positions
(px), scores and rows, those of rows that are described at the keypoints found, and the networks' time as a ratio to
kornia's: by one process that is fed over a connection, and by a call in this one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.kornia_pipeline import pipeline
from xdesc_jax import console
from xdesc_jax.features.extractors.process import Extractors
from xdesc_jax.features.images import list_photos
from xdesc_jax.features.official import installed_path

NAMES = ("aliked-n16rot", "aliked-n16", "aliked-n32", "aliked-t16", "disk", "xfeat")


def scaled(path: Path, side: int) -> np.ndarray:
    """A photo of at most `side` px."""
    photo = Image.open(path).convert("RGB")
    photo.thumbnail((side, side))
    return np.asarray(photo)


def compare(name: str, photos: list[np.ndarray], extractors: Extractors) -> tuple[object, ...]:
    """A row of the table."""
    kornias = pipeline(name, installed_path(name))
    differences, keypoints, ours, theirs = [], 0, 0.0, 0.0
    for photo in photos:
        start = time.perf_counter()
        xy, scores, rows = kornias(photo)
        middle = time.perf_counter()
        found = extractors.detect(name, photo, name)
        ours, theirs = ours + time.perf_counter() - middle, theirs + middle - start
        assert len(found.xy) == len(xy), f"{len(found.xy)} keypoints, kornia finds {len(xy)}"
        at, valid = extractors.describe(name, photo, found.xy, name)
        pairs = (found.xy, xy), (found.scores, scores), (found.rows, rows), (at[valid], rows[valid])
        differences.append([np.abs(a - b).max(initial=0) for a, b in pairs])
        keypoints += len(xy)
    return name, len(photos), keypoints, *(f"{d:.1e}" for d in np.max(differences, axis=0)), ours / theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--most", type=int, default=20, help="photos, evenly over the folder")
    parser.add_argument("--side", type=int, default=640, help="the longer side that they are scaled to, in px")
    parser.add_argument("--names", nargs="+", default=NAMES, choices=NAMES)
    settings = parser.parse_args()
    names = list_photos(settings.photos)
    chosen = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, settings.most).astype(int))]
    photos = [scaled(settings.photos / name, settings.side) for name in chosen]
    with Extractors(settings.names, {name: installed_path(name) for name in settings.names}, "cpu") as extractors:
        extractors.start()
        rows = [compare(name, photos, extractors) for name in settings.names]
    columns = ("network", "photos", "keypoints", "position", "score", "row", "row at given", "time")
    console.table(f"largest differences from kornia, photos of {settings.side} px", columns, rows)


if __name__ == "__main__":
    main()
