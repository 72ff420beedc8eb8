"""The two forms of a step over several devices, `pmap` and `sharded`, side by side.

    python benchmarks/backends.py [--devices 8] [--what translator population descriptor] [--rounds 3]

On a CPU the devices are virtual ones of the same cores, so the figures tell of overhead, not of scaling; on
accelerators they are those that jax finds. Each form is timed in a process of its own, in turn, `--rounds` times; the
ratio is of the medians of all steps. Needs jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # runs without being installed
sys.path.insert(0, str(Path(__file__).parent))

FORMS = ("pmap", "sharded")
WHAT = ("translator", "population", "descriptor")
MEMBERS = 4


def work(what: str, form: str, rows: int, count: int | None) -> Any:
    """A function that does one step: a translator between four descriptors at the widths of `configs/tiny.py`, a
    population of four of them, or HardNet with augmentation and dropout at their defaults."""
    import jax
    from population import WIDTHS
    from train_step import descriptors, make_batch, step_of

    from xdesc_jax.networks.mlp import build_networks
    from xdesc_jax.train import parallel
    from xdesc_jax.train.optimizer import Numbers
    from xdesc_jax.train.translators.population import population_step, stack, stack_hyper, stack_keys
    from xdesc_jax.train.translators.step import Hyper, Keys, create_state

    backend, devices = parallel.BACKENDS[form], jax.local_devices()[:count]
    state: Any
    keys: Any
    hyper: Any
    if what == "descriptor":
        step, state, batch, keys, hyper = hardnet(rows, devices[0].platform)
    else:
        specs = descriptors(4)
        networks = build_networks(specs, WIDTHS["tiny"], backend.axis_name)
        step, batch = step_of(networks), make_batch(specs, rows)
        create = jax.jit(partial(create_state, networks))
        state, keys = create(jax.random.key(0)), Keys(jax.random.key(1), jax.random.key(2))
        hyper = Hyper(Numbers(1e-3), 0.1, 1.0)
        if what == "population":
            states = [jax.device_get(create(jax.random.key(i))) for i in range(MEMBERS)]
            state, keys = stack(states, [0] * MEMBERS), stack_keys([keys] * MEMBERS)
            hyper = stack_hyper([Hyper(Numbers(1e-3 * (1 + i)), 0.1, 1.0) for i in range(MEMBERS)])
            step = partial(population_step, step=step, in_turn=devices[0].platform == "cpu")
    mapped = backend.step(step, devices, donate=True)
    held, placed = [backend.replicate(state, devices)], backend.split([batch], devices)

    def once() -> None:
        held[0], metrics = mapped(held[0], placed, keys, hyper)
        jax.block_until_ready(metrics)

    return once


def hardnet(rows: int, platform: str) -> tuple[Any, ...]:
    """Step, state, batch, keys and numbers of descriptor training."""
    import dataclasses

    import jax
    import numpy as np

    from xdesc_jax.features import l2net
    from xdesc_jax.train.descriptors.config import DescriptorConfig
    from xdesc_jax.train.descriptors.step import DescriptorHyper, augment, create_state, keys_of, train_step
    from xdesc_jax.train.optimizer import numbers_of

    config, rng = DescriptorConfig(), np.random.default_rng(0)
    step = partial(
        train_step, kind=config.network, loss=config.loss, dropout=config.dropout, weight_decay=config.weight_decay,
        augmentation=partial(augment, **dataclasses.asdict(config.augmentation)),
        convolution=l2net.training_convolution(platform),
    )  # fmt: skip
    patches = rng.integers(0, 256, (2, rows, 32, 32)).astype(np.uint8)
    batch = {"patch": patches[0], "pair": patches[1], "point": np.arange(rows, dtype=np.int32)}
    state = create_state(jax.jit(l2net.init)(jax.random.key(0)))
    hyper = DescriptorHyper(numbers_of(config.optimizer), config.margin)
    return step, state, batch | {"mask": np.ones(rows, bool)}, keys_of(0), hyper


def child(what: str, form: str, rows: int, count: int, steps: int) -> None:
    """Prints the seconds of each step, the first two left out."""
    once, seconds = work(what, form, rows, count), []
    for _ in range(steps + 2):
        start = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds[2:]))


def timed(what: str, form: str, rows: int, count: int, steps: int) -> list[float]:
    """Seconds of steps of one form in a process of its own."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    words = [sys.executable, __file__, "--child", what, form, str(rows), str(count), str(steps)]
    done = subprocess.run(words, env=os.environ | {"XLA_FLAGS": flags}, stdout=subprocess.PIPE, text=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        what, form, *numbers = sys.argv[2:]
        child(what, form, *map(int, numbers))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--rows", type=int, default=512, help="of a batch, over all devices")
    parser.add_argument("--steps", type=int, default=10, help="of a process")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(
        f"{given.devices} devices, {given.rows} rows a step, median of {given.rounds} x {given.steps} steps", flush=True
    )
    for what in given.what:
        seconds: dict[str, list[float]] = {form: [] for form in FORMS}
        for _ in range(given.rounds):
            for form in FORMS:
                seconds[form] += timed(what, form, given.rows, given.devices, given.steps)
        pmap, sharded = (statistics.median(seconds[form]) for form in FORMS)
        print(
            f"{what}: pmap {1e3 * pmap:.1f} ms, sharded {1e3 * sharded:.1f} ms, ratio {sharded / pmap:.2f}", flush=True
        )


if __name__ == "__main__":
    main()
