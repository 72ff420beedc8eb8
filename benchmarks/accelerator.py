"""What only an accelerator can show, in under 10 minutes, as tables and one JSON file.

    python benchmarks/accelerator.py --out accelerator.json     (--small for a few seconds of each, on a CPU as well)

1. parity: descriptors computed on the accelerator against the CPU's, and 20 training steps against the CPU's;
2. the table of `train_step.py`, over losses, numbers of descriptors and batch sizes;
3. a population of 16 against 16 single trainings (`population.py`; target on one H100: 4 times);
4. the paper's training, 37 M samples of four descriptors at batch 1024, on synthetic rows held on the device, with what
   it learned (target on one H100: 1.2 M samples a second, about 30 s).

Needs jax, flax, optax and numpy. Without an accelerator it says so and goes on: parity is then the CPU with itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # runs without being installed
sys.path.insert(0, str(Path(__file__).parent))

import population as population_benchmark
import train_step as step_benchmark
from train_step import COLUMNS, HYPER, KEYS, descriptors, make_batch, show, step_of

from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec, stored, unit_rows
from xdesc_jax.features.describe import describer
from xdesc_jax.networks import mlp, neighbours_jax
from xdesc_jax.networks.mlp import build_networks
from xdesc_jax.networks.neighbours import by_tree
from xdesc_jax.train import parallel
from xdesc_jax.train.rank1 import rank1
from xdesc_jax.train.translators.step import create_state, read_inputs

DESCRIBED = ("brief", "sift", "hardnet-xdesc", "sosnet-xdesc")  # whose weights ship with the package
PAPER_SAMPLES, BATCH = 37_000_000, 1024
Results = dict[str, Any]


def descriptor_parity(patches: int) -> Results:
    """The largest difference of any value, and the share of equal bits, over smoothed random patches."""
    noise = np.random.default_rng(0).random((patches, 36, 36)).astype(np.float32)
    smooth = np.mean([noise[:, i : i + 32, j : j + 32] for i in range(5) for j in range(5)], axis=0)
    found: Results = {}
    for name in DESCRIBED:
        describe = jax.jit(describer(name))
        with jax.default_device(jax.devices("cpu")[0]):
            reference = np.asarray(describe(smooth), np.float32)
        for precision in ("default", "highest"):
            with jax.default_matmul_precision(precision):
                here = np.asarray(jax.jit(describer(name))(smooth), np.float32)
            if name == "brief":
                figure = {"equal_bits": float(np.mean(here == reference))}
            else:
                figure = {"largest_difference": float(np.abs(here - reference).max())}
            found.setdefault(name, {})[precision] = figure
    return found


def step_parity(batch_size: int, steps: int = 20) -> Results:
    """The largest relative difference of a loss in 20 steps from the same weights on the same batches."""
    specs = descriptors(4)
    networks = build_networks(specs, ModelConfig())
    step = jax.jit(step_of(networks))
    batch = make_batch(specs, batch_size)

    def losses_on(device: Any, precision: str) -> np.ndarray:
        with jax.default_device(device), jax.default_matmul_precision(precision):
            state = create_state(networks, jax.random.key(0))
            found = []
            for _ in range(steps):
                state, metrics = step(state, batch, KEYS, HYPER)
                found.append(float(metrics["loss"].total))
            return np.array(found)

    reference = losses_on(jax.devices("cpu")[0], "highest")
    here = jax.local_devices()[0]
    return {
        precision: {
            "largest_relative_difference": float(np.max(np.abs(losses_on(here, precision) / reference - 1))),
            "last_loss": float(reference[-1]),
        }
        for precision in ("highest", "default")
    }


def synthetic_rows(specs: dict[str, DescriptorSpec], count: int, seed: int) -> dict[str, np.ndarray]:
    """Views of the same 32 hidden numbers a row, with a tenth of noise, in stored form, made in parts."""
    parts = []
    for start in range(0, count, 65536):
        rng = np.random.default_rng([seed, start])
        size = min(65536, count - start)
        hidden = rng.normal(size=(size, 32)).astype(np.float32)
        columns = {}
        for i, (name, spec) in enumerate(specs.items()):
            weights = np.random.default_rng(i).normal(size=(32, spec.width)).astype(np.float32)
            x = hidden @ weights + 0.5 * rng.normal(size=(size, spec.width)).astype(np.float32)
            columns[name] = stored(x > 0, spec) if spec.binary else stored(unit_rows(np.maximum(x, 0)), spec)
        parts.append(columns)
    return {name: np.concatenate([part[name] for part in parts]) for name in specs}


def paper_training(samples: int, rows: int, together: int, matmul: str) -> Results:
    """The paper's training on synthetic rows that lie on the device; time without compiling, and what it learned."""
    specs = descriptors(4)
    config = ModelConfig(matmul=matmul)  # type: ignore[arg-type]
    plain, networks = (build_networks(specs, config, axis) for axis in (None, parallel.AXIS))
    devices = jax.local_devices()[:1]
    place = parallel.resident_batches(synthetic_rows(specs, rows, 1), devices)
    mapped = parallel.pmapped_step(step_of(networks), devices, together=together, donate=True)
    state = parallel.replicate(jax.jit(partial(create_state, plain))(jax.random.key(0)), devices)
    held_out = read_inputs(
        {n: jnp.asarray(x) for n, x in synthetic_rows(specs, 4096, 2).items()}, specs, dict.fromkeys(specs, 1.0)
    )  # fmt: skip

    def joint_rank1() -> float:
        variables = {"params": state.params, "batch_stats": state.batch_stats}
        embedded = [mlp.embed(plain, variables, held_out[name], name) for name in plain.names]
        return float(np.mean([float(rank1(a, b)) for i, a in enumerate(embedded) for b in embedded[i + 1 :]]))

    def dispatch(order: np.ndarray) -> Any:
        nonlocal state
        chunks = order.astype(np.int32).reshape(together, BATCH)
        batch = place([{"row": chunk, "mask": np.ones(BATCH, bool)} for chunk in chunks])
        state, metrics = mapped(state, batch, KEYS, HYPER)
        return metrics

    rng = np.random.default_rng(0)
    before, size = joint_rank1(), BATCH * together
    jax.block_until_ready(dispatch(rng.permutation(rows)[:size]))  # compiles; its samples do not count
    done, start = 0, time.perf_counter()
    pending: list[Any] = []
    while done < samples:
        order = rng.permutation(rows)
        for first in range(0, rows - size + 1, size):
            pending.append(dispatch(order[first : first + size]))
            done += size
            if len(pending) > 2:  # bounded, so that time is that of the device
                jax.block_until_ready(pending.pop(0))
            if done >= samples:
                break
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    return {
        "samples": done, "seconds": seconds, "samples_per_second": done / seconds, "steps_per_dispatch": together,
        "matmul": matmul, "rows": rows, "joint_rank1_before": before, "joint_rank1_after": joint_rank1(),
        "seconds_of_37M_samples": PAPER_SAMPLES / (done / seconds),
    }  # fmt: skip


def neighbours(counts: list[int], repeats: int) -> list[Results]:
    """Seconds to find 24 nearest and 16 larger neighbours of all keypoints of a photo: medians, alternating."""
    found = []
    for count in counts:
        rng = np.random.default_rng(0)
        asked = rng.uniform(0, 1000, (count, 2)).astype(np.float32), rng.integers(0, 6, count), 24, 16, None
        seconds: dict[Any, list[float]] = {neighbours_jax.blocked: [], by_tree: []}
        for search in seconds:
            search(*asked)  # compiles
        for _ in range(repeats):
            for search, taken in seconds.items():
                start = time.perf_counter()
                search(*asked)
                taken.append(time.perf_counter() - start)
        blocked, tree = (float(np.median(taken)) for taken in seconds.values())
        found.append({"keypoints": count, "blocked": blocked, "tree": tree, "ratio": tree / blocked})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("accelerator.json"))
    parser.add_argument("--small", action="store_true", help="a few seconds of each")
    given = parser.parse_args()
    device = jax.local_devices()[0]
    accelerator = device.platform != "cpu"
    small = given.small
    matmul = "bfloat16" if accelerator else "float32"
    print(f"{device.device_kind}, jax {jax.__version__}" + ("" if accelerator else ": no accelerator found"))
    results: Results = {"device": device.device_kind, "platform": device.platform, "jax": jax.__version__}

    def section(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        results[name] = work()
        results.setdefault("seconds", {})[name] = round(time.perf_counter() - start, 1)
        given.out.write_text(json.dumps(results, indent=2) + "\n")  # what is done is kept
        return results[name]

    parity = section("descriptor_parity", lambda: descriptor_parity(16 if small else 4096))
    figures = [[n, p, *(f"{k} {v:.3g}" for k, v in f.items())] for n, by in parity.items() for p, f in by.items()]
    show("descriptors against the CPU's", ["descriptor", "precision", "figure"], figures)
    parity = section("step_parity", lambda: step_parity(32 if small else 1024))
    show(
        "20 steps against the CPU's in float32", ["precision", "largest relative difference of a loss"],
        [[p, f"{f['largest_relative_difference']:.2e}"] for p, f in parity.items()],
    )  # fmt: skip
    counts, batches = ([2], [64]) if small else ([2, 4, 8, 16], [1024, 4096, 16384])
    together = 2 if small else 16
    peak = step_benchmark.peak_rate(matmul)
    results["product_tflops"] = peak / 1e12

    def table() -> list[dict[str, str]]:
        rows = [
            step_benchmark.measure(variant, count, size, matmul, together, peak)
            for variant in ("quadratic", "linear")
            for count in counts
            for size in batches
        ]
        show(f"training step, {matmul} operands, products at {peak / 1e12:.1f} TFLOP/s", COLUMNS, rows)
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]

    section("train_step", table)
    members, size = (2, 64) if small else (16, 512)
    widths = ("tiny",) if small else ("tiny", "paper")
    ratios = section(
        "population",
        lambda: [
            population_benchmark.measure(w, members, size, together, not accelerator, "float32", 2 if small else 3)
            for w in widths
        ],
    )
    show(
        "population against its members one by one", ["widths", "members", "samples/s", "one by one", "ratio"],
        [[r["widths"], str(r["members"]), f"{r['population']:,.0f}", f"{r['one_by_one']:,.0f}", f"{r['ratio']:.2f}x"]
         for r in ratios],
    )  # fmt: skip
    found = section(
        "paper_training",
        lambda: paper_training(*((4096, 4096, 2) if small else (PAPER_SAMPLES, 1_000_000, 32)), matmul),
    )
    print(
        f"the paper's training: {found['samples']:,} samples in {found['seconds']:.1f} s, "
        f"{found['samples_per_second']:,.0f} samples/s; joint rank-1 {found['joint_rank1_before']:.3f} -> "
        f"{found['joint_rank1_after']:.3f}; 37 M samples at this rate: {found['seconds_of_37M_samples']:,.0f} s"
    )
    searches = section("neighbours", lambda: neighbours([500] if small else [2000, 8000], 3 if small else 9))
    show(
        "neighbours of a photo's keypoints", ["keypoints", "in blocks, ms", "scipy's k-d tree, ms", "ratio"],
        [[f"{f['keypoints']:,}", f"{1e3 * f['blocked']:.1f}", f"{1e3 * f['tree']:.1f}", f"{f['ratio']:.2f}x"]
         for f in searches],
    )  # fmt: skip
    print(f"{given.out}: {sum(results['seconds'].values()):.0f} s in all")


if __name__ == "__main__":
    main()
