"""Patches per second, ours against the PyPI package extract-patches, on the same keypoints in one process.

    python benchmarks/patches.py [PHOTO ...]

Without photos, on those that the scikit-image wheel ships. Prints one ratio a photo, of medians over
interleaved runs, and the largest difference between the two; once with one thread and once with all, as this
package cuts the patches of a photo in several threads. extract-patches needs `pip install --no-deps`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import cv2
import numpy as np

from xdesc_jax import console
from xdesc_jax.features.images import read_gray
from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.patches import extract_patches

TARGET = 3.0
RUNS = 9
PHOTOS = ("camera.png", "coffee.png", "motorcycle_left.png", "retina.jpg")


def shipped_photos() -> list[Path]:
    """Photos of the scikit-image wheel."""
    import skimage

    return [Path(skimage.__file__).parent / "data" / name for name in PHOTOS]


def compare(gray: np.ndarray) -> tuple[int, float, float, int, float]:
    """Keypoints, patches/s of ours and theirs, largest difference, and percent of values that differ."""
    from extract_patches.core import extract_patches as reference

    found = cv2.SIFT.create().detect(gray, None)
    values = np.array([(*k.pt, k.size / 2, np.deg2rad(k.angle)) for k in found])
    keypoints = Keypoints(values[:, :2], values[:, 2], values[:, 3])
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(RUNS):
        start = time.perf_counter()
        patches, _ = extract_patches(gray, keypoints)
        middle = time.perf_counter()
        expected = reference(found, gray, 32, 6.0, "cv2")
        seconds["ours"].append(middle - start)
        seconds["theirs"].append(time.perf_counter() - middle)
    difference = np.abs(patches.astype(int) - np.stack(expected))
    ours, theirs = (len(found) / statistics.median(seconds[name]) for name in ("ours", "theirs"))
    return len(found), ours, theirs, int(difference.max()), 100 * float((difference > 0).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="*", metavar="PHOTO")
    photos = parser.parse_args().photos or shipped_photos()
    everything = cv2.getNumThreads()
    for threads in sorted({1, everything}):
        cv2.setNumThreads(threads)
        rows = []
        for path in photos:
            n, ours, theirs, largest, percent = compare(read_gray(path))
            rows.append((path.name, n, f"{ours:,.0f}", f"{theirs:,.0f}", ours / theirs, largest, percent))
        console.table(
            f"patches, {threads} thread(s) (target {TARGET:g}x with all, at most 1 level and 0.1 % off)",
            ("photo", "keypoints", "ours/s", "extract-patches/s", "ratio", "max diff", "% differ"),
            rows,
        )


if __name__ == "__main__":
    main()
