"""Rows per second of the input pipeline from page cache, as a ratio to the 150 k rows/s that training needs.

    python benchmarks/pipeline.py [--rows 200000] [--repeats 5]

Makes synthetic records (brief, sift, tfeat, colmap-sift) in a temporary folder and prints, for each way of
reading them: the median rate of `repeats` epochs, its ratio to the target, the rate per second of processor
time (which other work on the machine disturbs less), and the most memory that this process had above what it
had before the first epoch. The rate of building the records is shown beside.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.data import open_source
from xdesc_jax.data.build import build
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.schema import KEYPOINT
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import get_spec

TARGET_ROWS_PER_S = 150_000
DESCRIPTORS = ("brief", "sift", "tfeat", "colmap-sift")
ROWS_PER_PHOTO = 5000


class SyntheticRows:
    """Random rows in the place of photos."""

    has_patches = has_pairs = False
    action = "making"

    def __init__(self, rows: int):
        self.specs = {name: get_spec(name) for name in DESCRIPTORS}
        self.names = [f"{i:06d}.jpg" for i in range(-(-rows // ROWS_PER_PHOTO))]
        self.config: dict[str, Any] = {"synthetic": rows}

    def rows(self) -> Iterator[tuple[str, Columns]]:
        for index, name in enumerate(self.names):
            rng = np.random.default_rng(index)
            rows = {KEYPOINT: rng.random((ROWS_PER_PHOTO, 4), np.float32)}
            for descriptor, spec in self.specs.items():
                shape = (ROWS_PER_PHOTO, spec.stored_width)
                if spec.stored_dtype == np.uint8:
                    rows[descriptor] = rng.integers(0, 256, shape, dtype=np.uint8)
                else:
                    rows[descriptor] = rng.random(shape, np.float32)
            yield name, rows


class PeakMemory:
    """The most resident memory of this process inside the block, above that at its start, in MiB."""

    def __enter__(self) -> PeakMemory:
        self._start = self._most = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.mib = (self._most - self._start) / 2**20

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self._most = max(self._most, self._now())

    @staticmethod
    def _now() -> int:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmRSS:")[1].split()[0])


def measure(folder: Path, batch_size: int, repeats: int, **options: Any) -> tuple[float, float, float]:
    """Median rows per second and per processor second of an epoch, and peak memory in MiB."""
    rates, processor_rates = [], []
    with PeakMemory() as memory:
        source = open_source(folder, "train", batch_size, DESCRIPTORS, **options)
        for epoch in range(repeats + 1):
            start, processor_start = time.perf_counter(), time.process_time()
            rows = sum(len(batch["mask"]) for batch in source.epoch(epoch))
            rates.append(rows / (time.perf_counter() - start))
            processor_rates.append(rows / (time.process_time() - processor_start))
    # The first epoch fills the page cache.
    return statistics.median(rates[1:]), statistics.median(processor_rates[1:]), memory.mib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as base:
        for name in ("tfds", "npy"):
            folder = Path(base) / name
            source = SyntheticRows(args.rows)
            settings = RecordSettings(name, validation_share=0)  # type: ignore[arg-type]
            start = time.perf_counter()
            info = build(folder, source, Path(base) / "work", settings, source.config)
            written = info.counts["train"] / (time.perf_counter() - start)
            for resident in (False, True):
                rate, processor_rate, mib = measure(folder, args.batch_size, args.repeats, resident=resident)
                label = f"{name}, {'resident' if resident else 'streamed'}"
                ratio = rate / TARGET_ROWS_PER_S
                numbers = (f"{x:,.0f}" for x in (processor_rate, mib, written))
                table.append((label, f"{rate:,.0f}", f"{ratio:.2f}", *numbers))
        size_mib = sum(info.files.values()) / 2**20
    columns = ("reading", "rows/s", "ratio", "rows/CPU s", "peak MiB", "built rows/s")
    console.table(f"{args.rows} rows, {size_mib:.0f} MiB, batches of {args.batch_size}", columns, table)


if __name__ == "__main__":
    main()
