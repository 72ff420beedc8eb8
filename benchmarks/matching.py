"""Speed and memory of exact matching against OpenCV's brute-force matcher with cross-check.

Run: python benchmarks/matching.py [large]. Prints, for 8192 x 8192 rows of 128 floats and of 512 bits, the
time of OpenCV over ours (target >= 1), medians of alternating repeats. `large` matches 200 k x 200 k rows and
prints the peak memory (target < 2 GiB; minutes).
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import cv2
import numpy as np

from xdesc_jax.descriptors import unit_rows
from xdesc_jax.matching.nearest import match

REPEATS = 3
ROWS = 8192


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(title: str, a: np.ndarray, b: np.ndarray, norm: int, binary: bool) -> None:
    """Prints the ratio of OpenCV's time to ours and checks that both find the same matches."""
    peer = cv2.BFMatcher(norm, crossCheck=True)
    ours, theirs = [], []
    for _ in range(REPEATS):
        ours.append(seconds(lambda: match(a, b, binary=binary)))
        theirs.append(seconds(lambda: peer.match(a, b)))
    found = {tuple(m) for m in match(a, b, binary=binary).indices.tolist()}
    common = len(found & {(m.queryIdx, m.trainIdx) for m in peer.match(a, b)})
    ratio = statistics.median(t / o for t, o in zip(theirs, ours, strict=True))
    print(
        f"{title}: {ratio:.2f}x OpenCV's speed (target 1), ours {statistics.median(ours):.2f} s, "
        f"OpenCV {statistics.median(theirs):.2f} s, {common} of {len(found)} matches in common"
    )


def large() -> None:
    """Matches 200 k x 200 k rows of 128 floats."""
    rng = np.random.default_rng(0)
    a = unit_rows(rng.normal(size=(200_000, 128)))
    b = unit_rows(a + 0.05 * rng.normal(size=a.shape).astype(np.float32))
    taken = seconds(lambda: match(a, b))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"200 k x 200 k: {taken:.0f} s, peak memory of the process {peak:.2f} GiB (target 2)")


def main() -> None:
    rng = np.random.default_rng(0)
    a = unit_rows(rng.normal(size=(ROWS, 128)))
    b = unit_rows(a[rng.permutation(ROWS)] + 0.07 * rng.normal(size=a.shape))
    compare("8192 x 8192 x 128 floats", a, b, cv2.NORM_L2, binary=False)
    bits = rng.integers(0, 256, (ROWS, 64), dtype=np.uint8)
    noisy = bits[rng.permutation(ROWS)] ^ (rng.integers(0, 256, bits.shape) & rng.integers(0, 256, bits.shape)).astype(
        np.uint8
    )
    compare("8192 x 8192 x 512 bits", bits, noisy, cv2.NORM_HAMMING, binary=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", choices=["large"])
    large() if parser.parse_args().size else main()
