"""Latency of translating 1, 100 and 2000 descriptors, `sift` -> `hardnet`, by every exported form.

Run: python benchmarks/translation_latency.py [repetitions]. Prints medians in milliseconds, and the share of the rate
that numpy's bare matrix products of the same shapes reach (1.00 is the limit). A form's call and the bare products
alternate, so that other load weighs on both. `stream` keeps its buffers between calls, `translate` checks and warns,
too. Forms whose packages are not installed are left out and said so. The libraries' threads
wait for each other: on a busy machine, measure on one core (OPENBLAS_NUM_THREADS=1 taskset -c 1 python ...).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from translation import WIDTHS, random_translator

from xdesc_jax.descriptors import unit_rows
from xdesc_jax.export.graphs import FORMATS
from xdesc_jax.export.quantization import quantized
from xdesc_jax.export.translation_graph import graph
from xdesc_jax.translation.translator import Translator

BATCHES = (1, 100, 2000)
REPETITIONS = 100
WARM_UP = 3

Call = Callable[[np.ndarray], object]


def products(translator: Translator, rows: int) -> Callable[[], None]:
    """Nothing but the matrix products of `rows` rows."""
    kernels = [kernel for name in WIDTHS for kernel, _ in translator.bundle.networks[name]]
    inputs = [np.ones((rows, k.shape[0]), np.float32) for k in kernels]
    outputs = [np.empty((rows, k.shape[1]), np.float32) for k in kernels]

    def call() -> None:
        for x, kernel, y in zip(inputs, kernels, outputs, strict=True):
            np.matmul(x, kernel, out=y)

    return call


def forms(translator: Translator, folder: Path) -> dict[str, tuple[float, Call]]:
    """Size in MB and call of each form, by its name."""
    found: dict[str, tuple[float, Call]] = {}
    for dtype in ("float32", "float16", "int8"):
        bundle = translator.bundle if dtype == "float32" else quantized(translator.bundle, dtype)
        file = bundle.save(folder / f"{dtype}.npz", dtype)
        read = Translator.load(file)
        found[f"numpy {dtype}, stream"] = megabytes(file), read.stream("sift", "hardnet")
        if dtype == "float32":
            found["numpy float32, translate"] = (
                megabytes(file),
                partial(read.translate, source="sift", target="hardnet"),
            )
    for suffix, name in (("onnx", "ONNX, onnxruntime"), ("stablehlo", "StableHLO, jax")):
        file, form = folder / f"translation.{suffix}", FORMATS[suffix]
        try:
            form.require(name)
        except ValueError as error:
            print(error)
            continue
        form.write(file, graph(translator, "sift", "hardnet", "benchmark"))
        found[name] = megabytes(file), form.load(file)
    return found


def megabytes(file: Path) -> float:
    return file.stat().st_size / 1e6


def alternate(call: Callable[[], object], bare: Callable[[], None], repetitions: int) -> tuple[float, float]:
    """Median seconds of both, called in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(WARM_UP + repetitions):
        start = time.perf_counter()
        call()
        middle = time.perf_counter()
        bare()
        end = time.perf_counter()
        if i >= WARM_UP:
            times[0].append(middle - start)
            times[1].append(end - middle)
    return statistics.median(times[0]), statistics.median(times[1])


def main(repetitions: int) -> None:
    rng = np.random.default_rng(0)
    translator = random_translator(rng, "plain")
    print(f"{'':<26}{'MB':>7}" + "".join(f"{f'{n} rows':>12}{'share':>7}" for n in BATCHES))
    with tempfile.TemporaryDirectory() as folder:
        for name, (size, call) in forms(translator, Path(folder)).items():
            cells = []
            for n in BATCHES:
                x = unit_rows(rng.random((n, 128)))
                took, limit = alternate(lambda x=x, call=call: call(x), products(translator, n), repetitions)
                cells.append(f"{1e3 * took:>9.3f} ms{limit / took:>7.2f}")
            print(f"{name:<26}{size:>7.2f}" + "".join(cells))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repetitions", type=int, nargs="?", default=REPETITIONS)
    main(parser.parse_args().repetitions)
