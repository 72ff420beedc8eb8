"""Speed and memory of numpy translation: 1 M `sift` -> `hardnet` rows against the bare matrix products.

Run: python benchmarks/translation.py [rows] [--frames | --context]. Prints the share of the rate that numpy's matrix
product reaches on the same shapes and the peak memory over input and output. The rows are translated in parts, each
followed by the bare products of as many rows; figures are medians over the parts, memory is the process's peak. With
--frames the model is of frame 'image' and the target an upright one of the same widths, so that the encoder takes
frames, too. With --context an encoder of hidden widths 768 looks at 40 neighbours of each row, as those of `mixed` do,
photo by photo of 2000 keypoints; the products are then those of its context, too, in the same threads, and the target
is 20 k rows/s on 2 quiet cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import resource
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from xdesc_jax.config import ContextConfig
from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.networks import context
from xdesc_jax.networks.frames import HARMONICS, IMAGE, KEYPOINT, width
from xdesc_jax.translation import blas
from xdesc_jax.translation.bundle import Bundle, Layers
from xdesc_jax.translation.deviation import RowStatistics
from xdesc_jax.translation.stream import BLOCK_ROWS, PART_ROWS
from xdesc_jax.translation.surroundings import POOL_ROWS
from xdesc_jax.translation.translator import EMBEDDING, Translator

PARTS, PHOTO_ROWS = 10, 2000
WIDTHS = {"encoder/sift": (128, 1024, 1024, 128), "decoder/hardnet": (128, 256, 256, 128)}
CONTEXT_WIDTHS = {"encoder/sift": (128, 768, 768, 128)}
CONTEXT = ContextConfig(of="keypoint", nearest=24, larger=16, width=192, heads=4)
WAYS = ("plain", "frames", "context")


def random_layers(rng: np.random.Generator, shapes: Sequence[tuple[int, int]]) -> Layers:
    return [
        (rng.normal(0, a**-0.5, (a, b)).astype(np.float32), rng.normal(0, 0.1, b).astype(np.float32)) for a, b in shapes
    ]


def random_translator(rng: np.random.Generator, way: str) -> Translator:
    """The paper's networks for sift -> hardnet, or an encoder with context, with random weights."""
    networks: dict[str, Layers] = {}
    with_frame = 128 + width(HARMONICS)
    more = {"plain": 0, "frames": width(HARMONICS), "context": width(HARMONICS)}[way]
    if way == "context":
        more += context.output_width(CONTEXT.width, CONTEXT.heads)
    for name, (first, *others) in (CONTEXT_WIDTHS if way == "context" else WIDTHS).items():
        widths = [first + more * (name == "encoder/sift"), *others]
        networks[name] = random_layers(rng, list(itertools.pairwise(widths)))
    frame: Any = KEYPOINT if way == "plain" else IMAGE
    specs = {"sift": get_spec("sift"), "hardnet": dataclasses.replace(get_spec("hardnet"), frame=frame)}
    rows = unit_rows(rng.random((4096, 128)))
    contexts: dict[str, Layers] = {}
    if way == "context":
        contexts["sift"] = random_layers(rng, context.shapes(with_frame, CONTEXT.width, CONTEXT.heads))
    statistics = {"sift": RowStatistics.of(rows)}
    return Translator(
        Bundle(
            "encoder_decoder", specs, 128, networks, statistics, frame=frame, contexts=contexts,
            context=CONTEXT if contexts else None,
        )
    )  # fmt: skip


def kernels(translator: Translator) -> list[tuple[int, np.ndarray]]:
    """All kernels, and how often a row passes through each."""
    found = [(1, kernel) for layers in translator.bundle.networks.values() for kernel, _ in layers]
    for layers in translator.bundle.contexts.values():
        neighbours = CONTEXT.nearest + CONTEXT.larger
        found += [(n, kernel) for n, (kernel, _) in zip((1, neighbours, neighbours, 1), layers, strict=True)]
    return found


def products(translator: Translator, rows: int) -> None:
    """Nothing but the matrix products of `rows` rows, in blocks of the same size and as many threads."""
    if not translator.bundle.contexts:
        return products_of_part(kernels(translator), rows)
    parts = [PART_ROWS] * (rows // PART_ROWS) + [rows % PART_ROWS] * (rows % PART_ROWS > 0)
    with blas.threads().pool() as pool:
        list(pool.map(partial(products_of_part, kernels(translator)), parts))


def products_of_part(kernels: Sequence[tuple[int, np.ndarray]], rows: int) -> None:
    for times, kernel in kernels:
        block = min(BLOCK_ROWS if times == 1 else POOL_ROWS * times, rows * times)
        x, y = np.ones((block, len(kernel)), np.float32), np.empty((block, kernel.shape[1]), np.float32)
        for _ in range(0, rows * times, block):
            np.matmul(x, kernel, out=y)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(rows: int, way: str) -> None:
    rng = np.random.default_rng(0)
    translator, target = random_translator(rng, way), EMBEDDING if way == "context" else "hardnet"
    frames = np.stack([rng.uniform(1, 20, rows), rng.uniform(-3, 3, rows)], axis=1).astype(np.float32)
    positions = rng.uniform(0, 1600, (rows, 2)).astype(np.float32)
    sift = rng.random((rows, 128), np.float32)
    sift /= np.sqrt(np.einsum("nd,nd->n", sift, sift))[:, None]
    products(translator, BLOCK_ROWS)
    before = peak_mb()
    made = np.empty_like(sift)
    stream = translator.stream("sift", target)
    shares, rates, limits = [], [], []
    count = max(1, rows // PHOTO_ROWS) if way == "context" else PARTS
    parts = (np.array_split(rows_of, count) for rows_of in (sift, made, frames, positions))
    for x, y, seen, at in zip(*parts, strict=True):
        start = time.perf_counter()
        stream(x, out=y, frames=seen, positions=at)
        middle = time.perf_counter()
        products(translator, len(x))
        end = time.perf_counter()
        shares.append((end - middle) / (middle - start))
        rates.append(len(x) / (middle - start))
        limits.append(len(x) / (end - middle))
    flops = 2 * sum(times * kernel.size for times, kernel in kernels(translator))
    rate = statistics.median(rates)
    over = peak_mb() - before - made.nbytes / 2**20
    goals = ("; target 20,000", "") if way == "context" else ("", " (target 0.80)")
    print(f"rows/s:                       {rate:,.0f} ({rate * flops / 1e9:.0f} GFLOP/s{goals[0]})")
    limit = f"{statistics.median(limits):,.0f} rows/s by the products alone"
    print(f"share of the product rate:    {statistics.median(shares):.2f}{goals[1]}, of {limit}")
    print(f"peak memory over in + output: {over:.0f} MB for {rows:,} rows (target 300)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    for name in WAYS:
        parser.add_argument(f"--{name}", dest="way", action="store_const", const=name, default="plain")
    main(**vars(parser.parse_args()))
