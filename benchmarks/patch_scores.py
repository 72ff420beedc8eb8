"""Speed of the HPatches figures of patches against the straightforward loop of the same metric.

Run: python benchmarks/patch_scores.py [full]. Prints how many times faster all figures of one descriptor are (target 5)
than a loop over pairs, images and queries, as the benchmark's own code has it, on made-up unit rows of 128 floats: 5
sequences of 1000 places, 40 k pairs of each kind, 200 queries. Both run in processes of their own, alternating, each on
one thread; processor time is compared, too, which others on the machine change less. The figures, in both
ways of average precision, must agree to 1e-6.
`full` prints time and peak memory of the figures at the official size: 116 sequences of 1000 places, 1.9 M patches, a
million pairs of each kind, 5000 queries among 20 000 (target 600 s on 2 cores, 4 GB).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
from scipy.integrate import trapezoid
from scipy.spatial.distance import cdist

from xdesc_jax.evaluate.benchmarks import patch_tasks
from xdesc_jax.evaluate.benchmarks.patch_scores import IMBALANCED, POOLS, TOOLBOX, measured
from xdesc_jax.evaluate.benchmarks.patch_strips import NOISE, kind_of
from xdesc_jax.evaluate.benchmarks.patch_tasks import Tasks

ROUNDS, PLACES, WIDTH = 3, 1000, 128
SMALL = {"sequences": 5, "pairs": 40_000, "queries": 200, "distractors": 4800}
FULL = {"sequences": 116, "pairs": 1_000_000, "queries": 5_000, "distractors": 20_000}
WAYS = ("", f"{TOOLBOX} ")  # of average precision, as names of figures begin
JITTER = np.repeat([0.0, 0.09, 0.14, 0.18], [1, 5, 5, 5])  # no task is solved, so that its figure says something


def made_up(sequences: int, pairs: int, queries: int, distractors: int) -> tuple[np.ndarray, list[str], Tasks]:
    """Rows [16, N, 128], names, and what is compared."""
    rng = np.random.default_rng(0)
    names = [f"{'iv'[k % 2]}_{k:03d}" for k in range(sequences)]
    counts = [PLACES] * sequences
    rows = np.empty((16, sum(counts), WIDTH), np.float32)
    rows[0] = rng.standard_normal(rows.shape[1:], np.float32)
    rows[0] /= np.linalg.norm(rows[0], axis=1, keepdims=True)
    for strip, jitter in enumerate(JITTER[1:], start=1):
        rows[strip] = rows[0] + np.float32(jitter) * rng.standard_normal(rows.shape[1:], np.float32)
        rows[strip] /= np.linalg.norm(rows[strip], axis=1, keepdims=True)
    clear = [np.ones(n, bool) for n in counts]
    return rows, names, patch_tasks.draw(counts, clear, pairs=pairs, queries=queries, distractors=distractors)


# --- The loop ----------------------------------------------------------------------------------------------


def average_precision(distances: np.ndarray, labels: np.ndarray, positives: int) -> tuple[float, float]:
    """The paper's and the toolbox's, of distances without ties."""
    ranked = labels[np.argsort(distances, kind="stable")]
    hits = np.cumsum(ranked)
    precision = hits / np.arange(1, len(ranked) + 1)
    area = trapezoid(np.append(1.0, precision), np.append(0.0, hits / positives))
    return float((ranked * precision).sum() / positives), float(area)


def pair_distances(rows: np.ndarray, pairs: patch_tasks.Pairs, first: int) -> np.ndarray:
    found = np.empty(len(pairs))
    for k, ((s, t), (i, j)) in enumerate(zip(pairs.image, pairs.row, strict=True)):
        found[k] = np.linalg.norm(rows[first + s if s else 0, i] - rows[first + t if t else 0, j])
    return found


def looped(rows: np.ndarray, names: list[str], tasks: Tasks) -> dict[str, float]:
    """Verification, matching and retrieval, %."""
    rows = rows.astype(np.float64)
    verified, matched, retrieved = [], [], []
    for number in range(len(NOISE)):
        first = 5 * number
        near = pair_distances(rows, tasks.positive, first)
        near = near[: int(IMBALANCED * len(near))]
        for pairs in tasks.negative.values():
            far = np.concatenate([near, pair_distances(rows, pairs, first)])
            verified.append(average_precision(far, np.arange(len(far)) < len(near), len(near)))
        of_kind: dict[str, list[tuple[float, float]]] = {}
        for k, name in enumerate(names):
            place = slice(k * PLACES, (k + 1) * PLACES)
            for strip in range(first + 1, first + 6):
                far = cdist(rows[0, place], rows[strip, place])
                nearest = far.argmin(axis=1)
                right = nearest == np.arange(PLACES)
                ap = average_precision(far[np.arange(PLACES), nearest], right, PLACES)
                of_kind.setdefault(kind_of(name), []).append(ap)
        matched += [np.mean(values, axis=0) for values in of_kind.values()]
    most = len(tasks.distractors) + 5
    between = cdist(rows[0, tasks.queries], rows[0, tasks.distractors])
    for query, own, far in zip(tasks.queries, tasks.query_of, between, strict=True):
        others = far[tasks.distractor_of != own]
        for number in range(len(NOISE)):
            near = [np.linalg.norm(rows[0, query] - rows[5 * number + k, query]) for k in range(1, 6)]
            for size in [size for size in POOLS if size <= most] or [most]:
                pool = np.concatenate([near, others])[:size]
                retrieved.append(average_precision(pool, np.arange(len(pool)) < 5, 5))
    figures = {"verification": verified, "matching": matched, "retrieval": retrieved}
    means = {task: 100 * np.mean(values, axis=0) for task, values in figures.items()}
    return {f"{way}{task}": float(mean[k]) for task, mean in means.items() for k, way in enumerate(WAYS)}


# --- Measuring ---------------------------------------------------------------------------------------------


def worker(way: str, size: dict[str, int]) -> None:
    """Prints seconds, peak memory and figures of one way, as JSON."""
    rows, names, tasks = made_up(**size)
    starts = np.arange(len(names) + 1) * PLACES
    start, processor = time.perf_counter(), time.process_time()
    found = looped(rows, names, tasks) if way == "loop" else measured(rows, names, starts, tasks)["values"]
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "processor": processor, "peak": peak, "figures": found}))


def run(way: str, threads: str = "1") -> dict:
    words = [sys.executable, __file__, "--worker", way]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    ratios: dict[str, list[float]] = {"seconds": [], "processor": []}
    differences = []
    for _ in range(ROUNDS):
        loop, fast = run("loop"), run("fast")
        for kind, found in ratios.items():
            found.append(loop[kind] / fast[kind])
        differences += [abs(value - fast["figures"][name]) / 100 for name, value in loop["figures"].items()]
        print(f"loop {loop['seconds']:.1f} s, ours {fast['seconds']:.1f} s", flush=True)
    speed, work = (statistics.median(found) for found in ratios.values())
    print(f"{speed:.1f}x the loop's speed (target 5), {work:.1f}x by processor time")
    print(f"figures within {max(differences):.1e} (target 1e-6)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", choices=["full"])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker, FULL if given.worker == "full" else SMALL)
    elif given.size:
        found = run("full", "2")
        print(f"official size: {found['seconds']:.0f} s (target 600), peak memory {found['peak']:.2f} GiB (target 4)")
        print({name: round(value, 2) for name, value in found["figures"].items()})
    else:
        main()
