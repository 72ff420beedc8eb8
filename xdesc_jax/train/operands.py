"""Which operands the networks' products take where the configuration leaves it open.

In: a model's configuration, rows of a batch and a folder. Out: the configuration with `matmul` settled, by seconds that
were measured once on a device and lie in the folder, so that a run which goes on, on whatever machine, takes the same.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from xdesc_jax import console
from xdesc_jax.config import ModelConfig
from xdesc_jax.files.whole import read_json, write_json
from xdesc_jax.networks.mlp import bfloat16_matmul

FILE = "matmul.json"
ROUNDS = 5


def settled(model: ModelConfig, rows: int, folder: Path) -> ModelConfig:
    """The configuration with operands that are 'float32' or 'bfloat16'.

    Args:
        model: as given; without 'auto' it stays as it is, and nothing is measured.
        rows: of a product: those of a batch on one device.
        folder: where the measurement is kept, or found.
    """
    if model.matmul != "auto":
        return model
    if not (folder / FILE).exists():
        with console.status("measuring which operands are faster"):
            seconds = seconds_of_products(rows, max(model.hidden or model.hidden_handcrafted))
        chosen = min(seconds, key=seconds.__getitem__)
        told = ", ".join(f"{name} {1e3 * taken:.1f} ms" for name, taken in seconds.items())
        console.info(f"products take {chosen} operands: {told}")
        write_json(folder / FILE, {"matmul": chosen, "seconds": seconds})
    return dataclasses.replace(model, matmul=read_json(folder / FILE)["matmul"])


def seconds_of_products(rows: int, width: int) -> dict[str, float]:
    """Seconds of a product [rows, width] @ [width, width] with its two of the gradient, by type of operands; the
    medians of a few, in turn."""
    x, kernel = jnp.ones((rows, width)), jnp.ones((width, width))
    products: dict[str, Callable[[], Any]] = {
        "float32": _with_gradient(jnp.matmul, x, kernel),
        "bfloat16": _with_gradient(bfloat16_matmul, x, kernel),
    }
    taken: dict[str, list[float]] = {name: [] for name in products}
    for _ in range(ROUNDS):
        for name, product in products.items():
            start = time.perf_counter()
            jax.block_until_ready(product())
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def _with_gradient(product: Callable[..., jax.Array], x: jax.Array, kernel: jax.Array) -> Callable[[], Any]:
    def of(x: jax.Array, kernel: jax.Array) -> Any:
        y, back = jax.vjp(product, x, kernel)
        return y, back(y)

    compiled = jax.jit(of)
    jax.block_until_ready(compiled(x, kernel))
    return lambda: compiled(x, kernel)
