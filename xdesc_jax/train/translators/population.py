"""A population: configurations of one architecture that train together on the same batches.

In: states, keys and numbers of K members, stacked. Out: the same step as `step` for each of them, by `vmap` inside the
mapped step. A member that turns non-finite stays where it was; the others go on. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xdesc_jax.networks.losses import Sum
from xdesc_jax.train.state import Batch, TrainState
from xdesc_jax.train.translators.step import Hyper, Keys


@flax.struct.dataclass
class PopulationState(TrainState):
    """States of K members: leaves are [K, ...], but `step` is of all."""

    stopped: jax.Array = None  # type: ignore[assignment]  # [K] int32, the step in which a member turned non-finite; 0: none


def stack(states: Sequence[TrainState], stopped: Sequence[int]) -> PopulationState:
    """States of members, all after the same step, as one."""
    params, stats, moments, average = jax.tree.map(lambda *leaves: np.stack(leaves), *map(_trees, states))
    step, ends = np.asarray(states[0].step), np.asarray(stopped, np.int32)
    return PopulationState(step, params, stats, moments, average, ends)  # type: ignore[arg-type]


def _trees(state: TrainState) -> tuple[Any, ...]:
    """What each member has of its own, in the order of the state's fields."""
    return state.params, state.batch_stats, state.opt_state, state.average


def member(state: PopulationState, index: int) -> TrainState:
    """The state of one member."""
    return TrainState(state.step, *jax.tree.map(lambda x: x[index], _trees(state)))


def stack_hyper(members: Sequence[Hyper]) -> Hyper:
    """Numbers of members, [K] each."""
    return jax.tree.map(lambda *values: np.stack([np.asarray(v) for v in values]), *members)


def stack_keys(members: Sequence[Keys]) -> Keys:
    """Keys of members, [K], and the data's, which all share."""
    return Keys(jnp.stack([keys.member for keys in members]), members[0].data)


def population_step(
    state: PopulationState,
    batch: Batch,
    keys: Keys,
    hyper: Hyper,
    *,
    step: Callable[..., tuple[TrainState, dict[str, Sum]]],
    in_turn: bool = False,
    axis_name: str | None = None,
) -> tuple[PopulationState, dict[str, Sum]]:
    """One step of each member on the same batch.

    Args:
        state: of K members, the same on every device.
        batch: this device's rows, for all members.
        keys: `member` [K], and `data`, so that augmentation is computed once.
        hyper: [K] each.
        step: what a member does alone, `train_step` with all but axis_name.
        in_turn: the members of a step one after another instead of by `vmap`: a CPU's caches hold what one needs, and
            one member is enough to keep it busy.
        axis_name: the mapped axis, or None on one device.

    Returns:
        The next state; in it, members whose loss, weights or moments would not be finite, now or earlier, are as they
        were.
        Sums as of `train_step`, [K] each.
    """

    def one(trees: tuple[Any, ...], key: jax.Array, its: Hyper) -> tuple[TrainState, dict[str, Sum]]:
        return step(TrainState(state.step, *trees), batch, Keys(key, keys.data), its, axis_name=axis_name)

    members = (_trees(state), keys.member, hyper)
    new, sums = lax.map(lambda own: one(*own), members) if in_turn else jax.vmap(one)(*members)
    finite = jnp.isfinite(sums["loss"].total) & all_finite(_trees(new))
    stopped = jnp.where((state.stopped == 0) & ~finite, state.step + 1, state.stopped)

    def kept(now: jax.Array, before: jax.Array) -> jax.Array:
        return jnp.where((stopped == 0).reshape(-1, *[1] * (now.ndim - 1)), now, before)

    params, stats, moments, average = jax.tree.map(kept, _trees(new), _trees(state))
    return PopulationState(state.step + 1, params, stats, moments, average, stopped), sums


def all_finite(tree: Any) -> jax.Array:
    """Whether all values of each member are finite: leaves [K, ...] -> [K] bool."""
    flags = [jnp.all(jnp.isfinite(x.reshape(len(x), -1)), axis=1) for x in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(flags), axis=0)
