"""Where the time of a training step goes: each part compiled by itself, beside the whole.

    python benchmarks/step_parts.py [--descriptors 4] [--batch 1024] [--variant quadratic] [--matmul float32]

Parts with their gradients: input (stored rows to what networks take), encoders, decoders with the translation loss,
mining of negatives (no gradient), triplets of the chosen ones, optimiser. The share is of the device's matrix-product
rate, measured in the same run. Parts on their own miss what XLA fuses across them, so their sum may exceed the whole.
Needs jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

sys.path.insert(0, str(Path(__file__).parents[1]))  # runs without being installed
sys.path.insert(0, str(Path(__file__).parent))

from train_step import HYPER, KEYS, descriptors, flops_of_parts, make_batch, median_seconds, peak_rate, show, step_of

from xdesc_jax.config import ModelConfig
from xdesc_jax.networks import losses
from xdesc_jax.networks.losses import Rows
from xdesc_jax.networks.mlp import build_networks
from xdesc_jax.train.optimizer import update
from xdesc_jax.train.state import TrainState
from xdesc_jax.train.translators.objective import embed_all, held_rows, pairs_of, total, translation_loss
from xdesc_jax.train.translators.step import create_state, read_inputs

Part = tuple[Callable[[], Any], float]  # what to time, and the FLOPs of its matrix products


def parts_of_step(count: int, size: int, variant: str, config: ModelConfig) -> tuple[dict[str, Part], Part]:
    """The parts of a step, and the whole."""
    specs = descriptors(count)
    networks = build_networks(specs, config)
    read = partial(read_inputs, specs=specs, scales=dict.fromkeys(specs, 1.0))
    batch = jax.device_put(make_batch(specs, size))
    state = jax.jit(partial(create_state, networks))(jax.random.key(0))
    mask, inputs = batch["mask"], jax.jit(read)(batch)
    stats, held = state.batch_stats, held_rows(networks.names, inputs, mask)

    def encode(params: Any) -> jax.Array:
        return jnp.sum(embed_all(networks, params, stats, inputs, held)[0][..., 0])

    embeddings = jax.jit(lambda params: embed_all(networks, params, stats, inputs, held)[0])(state.params)
    chosen, pairs = pairs_of(networks, variant, KEYS.member)

    def decode(params: Any, z: jax.Array) -> jax.Array:
        sources = {name: z[of] for name, of in chosen.items()}
        masks = {name: jnp.broadcast_to(mask, x.shape[:2]) for name, x in sources.items()}
        return total(translation_loss(networks, params, stats, sources, inputs, masks)[0]).total

    ids = jnp.stack([losses.row_ids(inputs[name]) for name in networks.names])
    rows = Rows(embeddings, ids, held, jnp.arange(size, dtype=jnp.int32))
    together = max(1, min(len(pairs), losses.ELEMENTS // (size * min(size, losses.COLUMNS))))

    def mine(rows: Rows) -> Any:
        return lax.map(
            lambda pair: losses.hardest_negatives(rows, rows, pair[0], pair[1], None), pairs, batch_size=together
        )

    negatives = jax.jit(mine)(rows)

    def compare(z: jax.Array) -> jax.Array:
        compared = rows._replace(embeddings=z)
        return losses.triplets(compared, compared, pairs, negatives, 1.0, "squared", variant != "linear", None).total

    def optimise(gradients: Any, moments: Any, params: Any) -> Any:
        before = TrainState(jnp.zeros((), jnp.int32), params, {}, moments)
        new = update(before, gradients, {}, HYPER.optimizer, 1)
        return new.params, new.opt_state

    flops = flops_of_parts(networks, config, variant, size)

    def ready(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        compiled = jax.jit(function)
        return lambda: compiled(*arguments)

    return {
        "input": (ready(read, batch), 0.0),
        "encoders": (ready(jax.grad(encode), state.params), flops["encoders"]),
        "decoders, translation loss": (
            ready(jax.grad(decode, argnums=(0, 1)), state.params, embeddings),
            flops["decoders"],
        ),
        "mining": (ready(mine, rows), flops["mining"]),
        "triplets": (ready(jax.grad(compare), embeddings), 0.0),
        "optimiser": (ready(optimise, state.params, state.opt_state, state.params), 0.0),
    }, (ready(step_of(networks, variant), state, batch, KEYS, HYPER), sum(flops.values()))


def main() -> None:
    accelerator = jax.default_backend() != "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--descriptors", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--variant", choices=["quadratic", "autoencoder", "linear"], default="quadratic")
    parser.add_argument("--matmul", choices=["float32", "bfloat16"], default="bfloat16" if accelerator else "float32")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    config = ModelConfig(matmul=given.matmul)
    parts, whole = parts_of_step(given.descriptors, given.batch, given.variant, config)
    peak = peak_rate(given.matmul)
    seconds = {name: median_seconds(work, given.repeats) for name, (work, _) in parts.items()}
    taken = median_seconds(whole[0], given.repeats)

    def row(name: str, time: float, flops: float) -> list[str]:
        share = f"{100 * flops / time / peak:.0f} %" if flops else "-"
        return [name, f"{1e3 * time:.2f}", f"{100 * time / taken:.0f} %", f"{flops / 1e9:.2f}", share]

    show(
        f"{jax.local_devices()[0].device_kind}, {given.matmul} operands, products at {peak / 1e12:.3f} TFLOP/s: "
        f"{given.variant} loss, {given.descriptors} descriptors, batch {given.batch}",
        ["part", "ms", "of the step", "GFLOP", "of product rate"],
        [
            *(row(name, seconds[name], flops) for name, (_, flops) in parts.items()),
            row("sum of parts", sum(seconds.values()), sum(flops for _, flops in parts.values())),
            row("the step", taken, whole[1]),
        ],
    )


if __name__ == "__main__":
    main()
