"""What a step changes, and the schedule of its learning rate: of translators and of learned descriptors alike.

In: networks' variables; the number of steps done. Out: a pytree that is checkpointed whole; a factor of the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax
import jax
import jax.numpy as jnp

Batch = Mapping[str, jax.Array]


@flax.struct.dataclass
class TrainState:
    """Everything a step changes. `step` counts the steps done."""

    step: jax.Array
    params: Any
    batch_stats: Any
    opt_state: Any


SCHEDULES = ("constant", "cosine", "linear")


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
