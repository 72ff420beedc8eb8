"""A population against its members one by one: samples a second in total, on whatever device is there.

    python benchmarks/population.py [--members 16] [--batch 512] [--widths tiny paper]

Both run in the same process, their steps in turn; the ratio is of medians. Targets: at the widths of `configs/tiny.py`
1.2 times on a CPU, 4 times on one H100. The members' steps are those of `xdesc sweep`: one after another within a
dispatch on a CPU, by `vmap` on an accelerator (`--form` chooses). Needs jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))  # runs without being installed
sys.path.insert(0, str(Path(__file__).parent))

from train_step import descriptors, make_batch, show, step_of

from xdesc_jax.config import ModelConfig
from xdesc_jax.networks.mlp import build_networks
from xdesc_jax.train import parallel
from xdesc_jax.train.optimizer import Numbers
from xdesc_jax.train.translators.population import population_step, stack, stack_hyper, stack_keys
from xdesc_jax.train.translators.step import Hyper, Keys, create_state

WIDTHS = {
    "tiny": ModelConfig(hidden_handcrafted=(256, 256), hidden_learned=(128, 128)),
    "paper": ModelConfig(),
}


def programs(
    widths: str, members: int, batch_size: int, together: int, in_turn: bool, matmul: str
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two functions that train every member for `together` steps: all at once, and one by one."""
    specs = descriptors(4)
    config = ModelConfig(**{**vars(WIDTHS[widths]), "matmul": matmul})
    networks = build_networks(specs, config, parallel.AXIS)
    step = step_of(networks)
    devices = jax.local_devices()[:1]
    batch = parallel.split_batches([make_batch(specs, batch_size)] * together, devices)
    hyper = [Hyper(Numbers(1e-3 * (1 + i / members)), 0.1, 1.0) for i in range(members)]
    keys = [Keys(jax.random.key(i), jax.random.key(0)) for i in range(members)]
    states = [jax.device_get(jax.jit(partial(create_state, networks))(jax.random.key(i))) for i in range(members)]
    mapped = partial(parallel.pmapped_step, devices=devices, together=together, donate=True)
    all_at_once = mapped(partial(population_step, step=step, in_turn=in_turn))
    alone = mapped(step)
    held = [parallel.replicate(stack(states, [0] * members), devices)]
    singles = [parallel.replicate(state, devices) for state in states]
    their_hyper, their_keys = stack_hyper(hyper), stack_keys(keys)

    def population() -> Any:
        held[0], metrics = all_at_once(held[0], batch, their_keys, their_hyper)
        return jax.block_until_ready(metrics)

    def one_by_one() -> Any:
        for i in range(members):
            singles[i], metrics = alone(singles[i], batch, keys[i], hyper[i])
        return jax.block_until_ready(metrics)

    return population, one_by_one


def measure(
    widths: str, members: int, batch_size: int, together: int, in_turn: bool, matmul: str, repeats: int
) -> dict[str, Any]:
    """Samples a second in total of both, and their ratio."""
    works = programs(widths, members, batch_size, together, in_turn, matmul)
    times: list[list[float]] = [[], []]
    for work in works:
        work()
    for _ in range(repeats):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    rates = [members * batch_size * together / statistics.median(taken) for taken in times]
    return {
        "widths": widths, "members": members, "batch": batch_size, "form": "in turn" if in_turn else "vmap",
        "population": rates[0], "one_by_one": rates[1], "ratio": rates[0] / rates[1],
    }  # fmt: skip


def main() -> None:
    accelerator = jax.default_backend() != "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--widths", nargs="+", choices=sorted(WIDTHS), default=["tiny", "paper"])
    parser.add_argument("--together", type=int, default=16 if accelerator else 1, help="steps of one dispatch")
    parser.add_argument("--form", choices=["vmap", "in-turn"], default="vmap" if accelerator else "in-turn")
    parser.add_argument("--matmul", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    rows = [
        measure(w, given.members, given.batch, given.together, given.form == "in-turn", given.matmul, given.repeats)
        for w in given.widths
    ]
    show(
        f"{jax.local_devices()[0].device_kind}, {given.matmul} operands, 4 descriptors, quadratic loss",
        ["widths", "members", "batch", "form", "population [samples/s]", "one by one", "ratio"],
        [
            [r["widths"], str(r["members"]), str(r["batch"]), r["form"], f"{r['population']:,.0f}",
             f"{r['one_by_one']:,.0f}", f"{r['ratio']:.2f}x"]
            for r in rows
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
