"""Speed of the training step over losses, numbers of descriptors and batch sizes, on whatever device is there.

    python benchmarks/train_step.py [--descriptors 2 4 8] [--batches 1024 4096]

Samples a second, the share of the device's matrix-product rate (measured in the same run, with the same operand
type), and the peak memory of the compiled step, for the quadratic and the linear loss at the paper's widths.
Several steps go into one dispatch on an accelerator. A cell that does not fit says so. `pytorch_step.py` compares with
PyTorch on the same cores. Needs jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

sys.path.insert(0, str(Path(__file__).parents[1]))  # runs without being installed

from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec, get_spec, stored, unit_rows
from xdesc_jax.networks.losses import all_pairs
from xdesc_jax.networks.mlp import Networks, build_networks, hidden_widths
from xdesc_jax.train.optimizer import Numbers
from xdesc_jax.train.translators.step import Hyper, Keys, create_state, read_inputs, train_step

# Of the paper: two hand-crafted ones with wide networks, two learned ones with narrow ones.
KINDS = ("brief", "sift", "hardnet", "sosnet")
HYPER = Hyper(Numbers(1e-3), 0.1, 1.0)
KEYS = Keys(jax.random.key(1), jax.random.key(2))
REPEATS = 5
COLUMNS = ["loss", "descriptors", "batch", "samples/s", "ms/step", "of product rate", "memory [MiB]"]


def descriptors(count: int) -> dict[str, DescriptorSpec]:
    """`count` descriptors, the paper's four over and over."""
    named = ((f"{KINDS[i % 4]}-{i}", get_spec(KINDS[i % 4])) for i in range(count))
    return {name: DescriptorSpec(**{**vars(spec), "name": name}) for name, spec in named}


def make_batch(specs: dict[str, DescriptorSpec], size: int) -> dict[str, np.ndarray]:
    """Random rows in stored form."""
    rng = np.random.default_rng(0)
    batch = {"mask": np.ones(size, bool)}
    for name, spec in specs.items():
        x = rng.normal(size=(size, spec.width)).astype(np.float32)
        batch[name] = stored(x > 0, spec) if spec.binary else stored(unit_rows(np.abs(x)), spec)
    return batch


def step_of(networks: Networks, variant: str = "quadratic") -> partial:
    """The step of these networks on rows in stored form, squared distances."""
    scales = dict.fromkeys(networks.specs, 1.0)
    return partial(
        train_step, networks=networks, inputs_of=lambda batch, key: read_inputs(batch, networks.specs, scales),
        variant=variant, distance="squared",
    )  # fmt: skip


def flops_of_parts(networks: Networks, config: ModelConfig, variant: str, size: int) -> dict[str, float]:
    """Multiply-adds of matrix products, times 2, of encoders, decoders and mining in a step.

    A layer costs one product forward and two backward, but for the encoders' first layers, whose inputs need no
    gradient. Negatives are mined without gradient, one product a pair for both directions.
    """
    count = len(networks.names)
    encoders = decoders = 0.0
    for spec in networks.specs.values():
        widths = (spec.width, *hidden_widths(spec, config), config.embedding_width)
        products = [a * b for a, b in zip(widths, widths[1:], strict=False)]
        encoders += 2 * size * (3 * sum(products) - products[0])
        decoders += 2 * size * (count if variant == "quadratic" else 1) * 3 * sum(products)
    pairs = count if variant == "linear" else len(all_pairs(count))
    return {"encoders": encoders, "decoders": decoders, "mining": 2.0 * pairs * size * size * config.embedding_width}


def peak_rate(matmul: str) -> float:
    """FLOP/s of a large square product with these operands and float32 sums."""
    n = 4096 if jax.default_backend() == "cpu" else 8192
    x = jnp.ones((n, n), jnp.bfloat16 if matmul == "bfloat16" else jnp.float32)
    # Both are contracted on their last axes, for which CPUs and accelerators are fastest.
    product = jax.jit(lambda a, b: lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32))
    return 2 * n**3 / median_seconds(lambda: product(x, x), 3)


def median_seconds(work: Callable[[], Any], repeats: int) -> float:
    jax.block_until_ready(work())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(variant: str, count: int, size: int, matmul: str, together: int, peak: float) -> list[str]:
    """A row of the table: samples/s, share of the peak, memory."""
    specs = descriptors(count)
    config = ModelConfig(matmul=matmul)  # type: ignore[arg-type]
    networks = build_networks(specs, config)
    step = step_of(networks, variant)

    def several(state: Any, batch: Any, key: jax.Array) -> tuple[Any, Any]:
        return lax.scan(lambda held, _: step(held, batch, key, HYPER), state, None, length=together)

    label = [variant, str(count), str(size)]
    try:
        batch = jax.device_put(make_batch(specs, size))
        state = jax.jit(partial(create_state, networks))(jax.random.key(0))
        program = jax.jit(several, donate_argnums=0).lower(state, batch, KEYS).compile()
        memory = program.memory_analysis()
        held = [state]

        def run() -> Any:
            held[0], metrics = program(held[0], batch, KEYS)
            return metrics["loss"].total

        seconds = median_seconds(run, REPEATS if together == 1 else 3) / together
    except (RuntimeError, MemoryError) as error:  # XLA tells of too little memory by a RuntimeError
        if "RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError):
            raise
        return [*label, "does not fit", "-", "-", "-"]
    share = sum(flops_of_parts(networks, config, variant, size).values()) / seconds / peak
    mib = (memory.temp_size_in_bytes + memory.argument_size_in_bytes) / 2**20
    return [*label, f"{size / seconds:,.0f}", f"{1e3 * seconds:.2f}", f"{100 * share:.0f} %", f"{mib:,.0f}"]


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    print(title)
    for row in [columns, *rows]:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def main() -> None:
    accelerator = jax.default_backend() != "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--descriptors", type=int, nargs="+", default=[2, 4, 8, 16] if accelerator else [2, 4, 8])
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 4096, 16384] if accelerator else [1024, 4096])
    parser.add_argument("--variants", nargs="+", default=["quadratic", "linear"])
    parser.add_argument("--matmul", choices=["float32", "bfloat16"], default="bfloat16" if accelerator else "float32")
    parser.add_argument("--together", type=int, default=16 if accelerator else 1, help="steps of one dispatch")
    given = parser.parse_args()
    device = jax.local_devices()[0]
    peak = peak_rate(given.matmul)
    print(f"{device.device_kind}, {given.matmul} operands: products at {peak / 1e12:.3f} TFLOP/s")
    rows = [
        measure(variant, count, size, given.matmul, given.together, peak)
        for variant in given.variants
        for count in given.descriptors
        for size in given.batches
    ]
    show(f"training step, paper widths, {given.together} steps a dispatch", COLUMNS, rows)


if __name__ == "__main__":
    main()
