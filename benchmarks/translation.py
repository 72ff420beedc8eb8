"""Speed and memory of numpy translation: 1 M `sift` -> `hardnet` rows against the bare matrix products.

Run: python benchmarks/translation.py [rows] [--frames]. Prints the share of the rate that numpy's matrix product
reaches on the same shapes and the peak memory over input and output. The rows are translated in parts, each followed
by the bare products of as many rows; figures are medians over the parts, memory is the process's peak. With --frames
the model is of frame 'image' and the target an upright one of the same widths, so that the encoder takes frames, too.
"""

from __future__ import annotations

import dataclasses
import resource
import statistics
import sys
import time
from typing import Any

import numpy as np

from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.networks.frames import HARMONICS, IMAGE, KEYPOINT, width
from xdesc_jax.translation.bundle import Bundle, Layers
from xdesc_jax.translation.deviation import RowStatistics
from xdesc_jax.translation.stream import BLOCK_ROWS
from xdesc_jax.translation.translator import Translator

PARTS = 10
WIDTHS = {"encoder/sift": (128, 1024, 1024, 128), "decoder/hardnet": (128, 256, 256, 128)}


def random_translator(rng: np.random.Generator, framed: bool) -> Translator:
    """The paper's networks for sift -> hardnet with random weights."""
    networks: dict[str, Layers] = {}
    for name, (first, *others) in WIDTHS.items():
        widths = [first + width(HARMONICS) * (framed and name == "encoder/sift"), *others]
        networks[name] = [
            (rng.normal(0, a**-0.5, (a, b)).astype(np.float32), rng.normal(0, 0.1, b).astype(np.float32))
            for a, b in zip(widths, widths[1:], strict=False)
        ]
    frame: Any = IMAGE if framed else KEYPOINT
    specs = {"sift": get_spec("sift"), "hardnet": dataclasses.replace(get_spec("hardnet"), frame=frame)}
    rows = unit_rows(rng.random((4096, 128)))
    return Translator(Bundle("encoder_decoder", specs, 128, networks, {"sift": RowStatistics.of(rows)}, frame=frame))


def products(translator: Translator, rows: int) -> None:
    """Nothing but the matrix products of `rows` rows, in blocks of the same size."""
    kernels = [kernel for name in WIDTHS for kernel, _ in translator.bundle.networks[name]]
    inputs = [np.ones((BLOCK_ROWS, k.shape[0]), np.float32) for k in kernels]
    outputs = [np.empty((BLOCK_ROWS, k.shape[1]), np.float32) for k in kernels]
    for _ in range(0, rows, BLOCK_ROWS):
        for x, kernel, y in zip(inputs, kernels, outputs, strict=True):
            np.matmul(x, kernel, out=y)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(rows: int, framed: bool) -> None:
    rng = np.random.default_rng(0)
    translator = random_translator(rng, framed)
    frames = np.stack([rng.uniform(1, 20, rows), rng.uniform(-3, 3, rows)], axis=1).astype(np.float32)
    sift = rng.random((rows, 128), np.float32)
    sift /= np.sqrt(np.einsum("nd,nd->n", sift, sift))[:, None]
    products(translator, BLOCK_ROWS)
    before = peak_mb()
    hardnet = np.empty_like(sift)
    stream = translator.stream("sift", "hardnet")
    shares, rates = [], []
    parts = (np.array_split(rows_of, PARTS) for rows_of in (sift, hardnet, frames))
    for x, y, seen in zip(*parts, strict=True):
        start = time.perf_counter()
        stream(x, out=y, frames=seen)
        middle = time.perf_counter()
        products(translator, len(x))
        end = time.perf_counter()
        shares.append((end - middle) / (middle - start))
        rates.append(len(x) / (middle - start))
    flops = 2 * sum(a * b for w in WIDTHS.values() for a, b in zip(w, w[1:], strict=False))
    rate = statistics.median(rates)
    over = peak_mb() - before - hardnet.nbytes / 2**20
    print(f"rows/s:                       {rate:,.0f} ({rate * flops / 1e9:.0f} GFLOP/s)")
    print(f"share of the product rate:    {statistics.median(shares):.2f} (target 0.80)")
    print(f"peak memory over in + output: {over:.0f} MB for {rows:,} rows (target 300)")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--frames"]
    main(int(words[0]) if words else 1_000_000, "--frames" in sys.argv)
