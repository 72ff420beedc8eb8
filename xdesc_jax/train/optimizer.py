"""The optimiser of every trainer: from gradients to the next weights, and the average of weights.

In: an `OptimizerConfig`, gradients of the global batch, the state. Out: the state with its next weights and moments. A
chain of optax: clipping by the global norm, Adam, decoupled weight decay, the scheduled rate. Its numbers are arguments
of the step, so that members of a population differ in them; what is not asked for is not in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from xdesc_jax.config import OptimizerConfig
from xdesc_jax.train.state import TrainState

SCHEDULES = ("constant", "cosine", "linear")


class Adam(NamedTuple):
    """Numbers of Adam."""

    b1: jax.Array | float
    b2: jax.Array | float
    eps: jax.Array | float


DEFAULT_ADAM = Adam(0.9, 0.999, 1e-8)


class Numbers(NamedTuple):
    """What a configuration says of the optimiser; None: not in the program."""

    learning_rate: jax.Array | float
    schedule: jax.Array | int = 0  # index into SCHEDULES
    warmup_steps: jax.Array | int = 0
    adam: Adam | None = None  # None: DEFAULT_ADAM as constants, of which XLA rounds 1 - b1 otherwise than at run time
    clip_norm: jax.Array | float | None = None
    weight_decay: jax.Array | float | None = None
    ema: jax.Array | float | None = None


def numbers_of(config: OptimizerConfig) -> Numbers:
    """The numbers of a configuration."""
    adam = Adam(config.b1, config.b2, config.eps)
    return Numbers(
        config.learning_rate, SCHEDULES.index(config.schedule), config.warmup_steps,
        adam if adam != DEFAULT_ADAM else None, config.clip_norm or None, config.weight_decay or None,
        config.ema or None,
    )  # fmt: skip


def structure(config: OptimizerConfig) -> dict[str, bool]:
    """What of it changes the program and the state, and so cannot differ within a population."""
    return {name: getattr(config, name) > 0 for name in ("clip_norm", "weight_decay", "ema")}


def alike(members: Sequence[Numbers]) -> list[Numbers]:
    """Numbers of one structure, as one array each can hold: where one member names Adam's, all do."""
    if all(numbers.adam is None for numbers in members):
        return list(members)
    return [numbers._replace(adam=numbers.adam or DEFAULT_ADAM) for numbers in members]


def learning_rate_factor(
    step: jax.Array, schedule: jax.Array | int, warmup_steps: jax.Array | int, total_steps: int
) -> jax.Array:
    """Schedule as a factor of the peak rate; a function of the step alone, so that resuming changes nothing.

    Args:
        step: steps done.
        schedule: index into `SCHEDULES`.
        warmup_steps: of linear warm-up.
        total_steps: of the whole training.
    """
    warmup = jnp.minimum(1.0, (step + 1) / jnp.maximum(1, warmup_steps))
    progress = jnp.clip((step - warmup_steps) / jnp.maximum(1, total_steps - warmup_steps), 0.0, 1.0)
    shapes = jnp.stack([jnp.ones_like(progress), 0.5 * (1 + jnp.cos(jnp.pi * progress)), 1 - progress])
    return warmup * shapes[schedule]


def kernels(params: Any) -> Any:
    """Which leaves are kernels, not biases, scales and offsets: those of two dimensions or more."""
    return jax.tree.map(lambda p: p.ndim >= 2, params)


def chain(
    numbers: Numbers, step: jax.Array, total_steps: int, l2: float = 0.0
) -> optax.GradientTransformationExtraArgs:
    """The transformation of a step, whose update is to be added to the weights.

    Args:
        numbers: see there.
        step: steps done.
        total_steps: of the whole training, for the schedule.
        l2: times the weights, added to the clipped gradient, where Adam divides it away again (Loshchilov and Hutter,
            ICLR 2019, section 2), as the authors of HardNet train.
    """
    rate = numbers.learning_rate * learning_rate_factor(step, numbers.schedule, numbers.warmup_steps, total_steps)
    parts = [] if numbers.clip_norm is None else [("clip", optax.clip_by_global_norm(numbers.clip_norm))]
    parts += [("l2", optax.add_decayed_weights(l2))] if l2 else []
    parts += [("adam", optax.scale_by_adam(*(numbers.adam or DEFAULT_ADAM)))]
    if numbers.weight_decay is not None:
        parts += [("decay", optax.add_decayed_weights(numbers.weight_decay, kernels))]
    return optax.named_chain(*parts, ("rate", optax.scale(-rate)))


def first_moments(params: Any) -> optax.ScaleByAdamState:
    """Adam's moments before the first step: all of the chain's state that there is to keep."""
    return optax.scale_by_adam().init(params)  # type: ignore[return-value]


def update(
    state: TrainState, gradients: Any, batch_stats: Any, numbers: Numbers, total_steps: int, l2: float = 0.0
) -> TrainState:
    """The state after a step.

    Args:
        state: before it.
        gradients: of the global batch.
        batch_stats: the running statistics after it.
        numbers: `ema` among them where the state holds an average, and only there.
        total_steps, l2: see `chain`.
    """
    whole = chain(numbers, state.step, total_steps, l2)
    # The other links' states are empty.
    held = whole.init(state.params) | {"adam": state.opt_state}  # type: ignore[operator]
    updates, held = whole.update(gradients, held, state.params)
    params = optax.apply_updates(state.params, updates)
    average = None
    if numbers.ema is not None:
        average = averaged(state.average, {"params": params, "batch_stats": batch_stats}, numbers.ema, state.step)
    return state.replace(  # type: ignore[attr-defined, no-any-return]
        step=state.step + 1, params=params, batch_stats=batch_stats, opt_state=held["adam"], average=average
    )


def averaged(average: Any, weights: Any, decay: jax.Array | float, step: jax.Array) -> Any:
    """d average + (1 - d) weights with d = min(decay, (1 + step) / (10 + step)): the first weights are soon forgotten.

    Running statistics are averaged, too: those of the weights themselves would not fit their average.
    """
    d = jnp.minimum(decay, (1 + step) / (10 + step))
    return jax.tree.map(lambda a, w: d * a + (1 - d) * w, average, weights)


def with_average(state: TrainState, wanted: bool) -> TrainState:
    """The state with an average that begins at its weights, or without one."""
    held = {"params": state.params, "batch_stats": state.batch_stats}
    # Copies, as a step gives up the buffers of its state, each once.
    average = jax.tree.map(lambda x: jnp.array(x, copy=True), held) if wanted else None
    return state.replace(average=average)  # type: ignore[attr-defined, no-any-return]
