"""Patches described per second on the present device, as a share of what the device could reach.

    python benchmarks/descriptors.py [--batch 1024] [--repeats 5]

Each descriptor stands beside a limit that is measured in the same run: for the networks, matrix products of
L2-Net's shape with the same number of operations; for SIFT, one arctan2 a pixel; for BRIEF, fetching 1024
pixels a patch. Times are the best of the repeats, which take turns so that other load meets all alike.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax import console
from xdesc_jax.features import brief, l2net, sift, tfeat


def l2net_operations() -> int:
    """Multiplications and additions of L2-Net for one patch."""
    total, size = 0, 32
    for layer in l2net.LAYERS:
        size = (size + 2 * layer.padding - layer.size) // layer.stride + 1
        total += 2 * size**2 * layer.size**2 * layer.inputs * layer.outputs
    return total


def tfeat_operations() -> int:
    """Multiplications and additions of TFeat for one patch."""
    outputs = {"features.1.weight": 26**2, "features.4.weight": 8**2, "descr.0.weight": 1}
    return sum(2 * places * int(np.prod(tfeat.SHAPES[name])) for name, places in outputs.items())


def random_tfeat(key: jax.Array) -> tfeat.TFeat:
    shapes = (7, 7, 1, 32), (32,), (6, 6, 32, 64), (64,), (4096, 128), (128,)
    return tfeat.TFeat(*(0.1 * jax.random.normal(key, shape) for shape in shapes))


def seconds(tasks: Mapping[str, Callable[[], jax.Array]], repeats: int) -> dict[str, float]:
    """Best time of each task, compilation excluded."""
    for task in tasks.values():
        jax.block_until_ready(task())
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            jax.block_until_ready(task())
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024, help="patches at once")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    key = jax.random.key(0)
    patches = jax.random.uniform(key, (arguments.batch, 32, 32))
    net, small = l2net.init(key), random_tfeat(key)
    # L2-Net's sixth convolution as a matrix product; its 64 places a patch make the rows.
    rows, kernel = jnp.ones((64 * 128, 9 * 128)), jnp.ones((9 * 128, 128))
    gemm_operations = 2 * rows.size * 128
    pixels = brief.pattern().reshape(-1, 2) @ np.array([32, 1])

    functions = {
        "brief": (jax.jit(brief.describe), (patches,)),
        "sift": (jax.jit(sift.describe), (patches,)),
        "sift-kornia05": (jax.jit(sift.describe_kornia05), (patches,)),
        "tfeat": (jax.jit(tfeat.describe), (small, patches)),
        "hardnet": (jax.jit(l2net.describe_hardnet), (net, patches)),
        "sosnet": (jax.jit(l2net.describe_sosnet), (net, patches)),
        "gemm": (jax.jit(lambda a, b: jnp.dot(a, b, precision=l2net.HIGHEST)), (rows, kernel)),
        "arctan2": (jax.jit(jnp.arctan2), (patches, patches[::-1])),
        "fetch": (jax.jit(lambda p: p.reshape(-1, 1024)[:, pixels]), (patches,)),
    }
    tasks = {name: functools.partial(f, *a) for name, (f, a) in functions.items()}
    best = seconds(tasks, arguments.repeats)

    gemm_rate = gemm_operations / best["gemm"]
    limits = {
        "brief": ("fetching 1024 pixels", arguments.batch / best["fetch"]),
        "sift": ("arctan2 of each pixel", arguments.batch / best["arctan2"]),
        "sift-kornia05": ("arctan2 of each pixel", arguments.batch / best["arctan2"]),
        "tfeat": ("matrix products", gemm_rate / tfeat_operations()),
        "hardnet": ("matrix products", gemm_rate / l2net_operations()),
        "sosnet": ("matrix products", gemm_rate / l2net_operations()),
    }
    console.table(
        f"{jax.devices()[0].device_kind}, batch {arguments.batch}, GEMM at {gemm_rate / 1e9:.0f} GFLOP/s",
        ["descriptor", "patches/s", "limit", "limit, patches/s", "share"],
        [
            (
                name,
                f"{arguments.batch / best[name]:,.0f}",
                text,
                f"{limit:,.0f}",
                arguments.batch / best[name] / limit,
            )
            for name, (text, limit) in limits.items()
        ],
    )


if __name__ == "__main__":
    main()
