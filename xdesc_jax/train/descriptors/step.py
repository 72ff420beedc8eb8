"""The training step of descriptors: pure functions of (state, batch, key).

In: a `TrainState` of L2-Net and one device's part of a batch of pairs. Out: the next state and metrics as sums.
Knows nothing of files, loops or devices; `train/parallel` maps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from xdesc_jax.data.schema import MASK, PAIR, PATCH, POINT
from xdesc_jax.features import l2net
from xdesc_jax.features.jitter import relight
from xdesc_jax.features.l2net import L2Net, Statistics
from xdesc_jax.networks.descriptor_losses import Views, hardnet_loss, patch_codes, sosnet_loss
from xdesc_jax.networks.losses import Sum
from xdesc_jax.train.optimizer import Numbers, first_moments, update, with_average
from xdesc_jax.train.randomness import Use, key_of, row_keys
from xdesc_jax.train.state import Batch, TrainState


class Kind(NamedTuple):
    """How a network normalises patches [B, 32, 32] and its outputs [B, 128]."""

    normalize: Callable[[jax.Array], jax.Array]
    unit: Callable[[jax.Array], jax.Array]


KINDS = {
    "hardnet": Kind(l2net.normalize_hardnet, l2net.unit_hardnet),
    "sosnet": Kind(l2net.normalize_instance, l2net.unit_sosnet),
}
LOSSES = {"hardnet": hardnet_loss, "sosnet": sosnet_loss}


class DescriptorHyper(NamedTuple):
    """Numbers of the step that may vary without compiling anew."""

    optimizer: Numbers
    margin: jax.Array | float


class DescriptorKeys(NamedTuple):
    """Random keys of a run."""

    augmentation: jax.Array
    dropout: jax.Array


def keys_of(seed: int) -> DescriptorKeys:
    """The keys of a seed."""
    return DescriptorKeys(key_of(seed, Use.AUGMENTATION), key_of(seed, Use.DROPOUT))


# --- State -----------------------------------------------------------------------------------------------


def create_state(net: L2Net, average: bool = False) -> TrainState:
    """The state that starts from a network's weights, with fresh optimiser moments, and their average where wanted."""
    params = {f"layer{i}": kernel for i, kernel in enumerate(net.kernels)}
    stats = {f"layer{i}": dict(s._asdict()) for i, s in enumerate(net.statistics)}
    return with_average(TrainState(jnp.zeros((), jnp.int32), params, stats, first_moments(params)), average)


def network_of(params: Mapping[str, Any], batch_stats: Mapping[str, Any]) -> L2Net:
    """The network of a state's parameters and running statistics."""
    names = [f"layer{i}" for i in range(len(l2net.LAYERS))]
    return L2Net(tuple(params[n] for n in names), tuple(Statistics(**batch_stats[n]) for n in names))


@partial(jax.jit, static_argnames="kind")
def describe(net: L2Net, patches: jax.Array, *, kind: str) -> jax.Array:
    """Descriptors of stored patches, uint8 [B, 32, 32] -> float32 [B, 128] of unit length, in inference."""
    normal = KINDS[kind].normalize(patches.astype(jnp.float32) / 255)
    return KINDS[kind].unit(l2net.apply(net, normal))


# --- Augmentation ----------------------------------------------------------------------------------------


def augment(keys: jax.Array, patches: jax.Array, *, flips: bool, gamma: float, contrast: float) -> jax.Array:
    """Changes pairs at random: mirrored and turned alike, each of the two in its own light.

    Args:
        keys: [b], one a pair.
        patches: [2, b, 32, 32] in 0..1.
        flips: whether to mirror and turn by quarters.
        gamma, contrast: standard deviations of their logarithms.

    Returns:
        [2, b, 32, 32] in 0..1.
    """
    turn_keys, light_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    draws = jax.vmap(lambda key: jax.random.bernoulli(key, 0.5, (3,)), out_axes=1)(turn_keys)
    normal = jax.vmap(lambda key: jax.random.normal(key, (2, 2)), out_axes=2)(light_keys)
    if flips:
        # Two mirrors and a transposition make all eight flips and quarter turns.
        for i, change in enumerate((_mirrored, _upside_down, _transposed)):
            patches = jnp.where(draws[i][:, None, None], change(patches), patches)
    if gamma or contrast:
        flat = patches.reshape(-1, *patches.shape[2:])
        lit = relight(
            flat, jnp.exp(gamma * normal[0].ravel()), jnp.exp(contrast * normal[1].ravel()), jnp.zeros(len(flat))
        )
        patches = jnp.clip(lit, 0, 1).reshape(patches.shape)
    return patches


def _mirrored(patches: jax.Array) -> jax.Array:
    return jnp.flip(patches, axis=-1)


def _upside_down(patches: jax.Array) -> jax.Array:
    return jnp.flip(patches, axis=-2)


def _transposed(patches: jax.Array) -> jax.Array:
    return jnp.swapaxes(patches, -1, -2)


# --- Step ------------------------------------------------------------------------------------------------


def views_of(batch: Batch, patches: jax.Array, rows: jax.Array) -> Views:
    """What the losses take of a batch: patches [2, b, 32, 32] as the network saw them, rows [2 b, 128]."""
    rows = rows.reshape(2, -1, rows.shape[-1])
    return Views(rows, lax.stop_gradient(patch_codes(patches)), batch[POINT], batch[MASK])


def train_step(
    state: TrainState,
    batch: Batch,
    keys: DescriptorKeys,
    hyper: DescriptorHyper,
    *,
    kind: str,
    loss: str,
    augmentation: Callable[..., jax.Array] | None = None,
    dropout: float = 0.1,
    weight_decay: float = 0.0,
    total_steps: int = 1,
    convolution: l2net.Convolution | None = None,
    mining_precision: str = "highest",
    axis_name: str | None = None,
) -> tuple[TrainState, dict[str, Sum]]:
    """One step of the optimiser on the loss of the global batch; both views go through the network at once.

    Args:
        state: the same on every device.
        batch: this device's rows: 'patch' and 'pair' [b, 32, 32] uint8, 'point' [b], 'mask' [b].
        keys: of the run; the step number is folded in.
        hyper: numbers of the optimiser, and the margin.
        kind: a key of `KINDS`.
        loss: a key of `LOSSES`.
        augmentation: (keys [b], patches [2, b, 32, 32] in 0..1) -> the same, changed.
        dropout: share of values dropped before the last layer.
        weight_decay: times the weights, added to the gradient.
        total_steps: of the whole training, for the schedule.
        convolution: see `l2net.apply_train`.
        mining_precision: of the products by which negatives are chosen, on TPU and GPU.
        axis_name: the mapped axis, or None on one device.

    Returns:
        The next state, and sums over the global batch of 'loss' and of its parts.
    """
    across = partial(lax.psum, axis_name=axis_name) if axis_name else lambda x: x
    augment_key, dropout_key = (jax.random.fold_in(key, state.step) for key in keys)
    rows = len(batch[MASK])
    # The two views of a row are dropped apart.
    dropout_keys = [row_keys(jax.random.fold_in(dropout_key, view), rows, axis_name) for view in range(2)]
    patches = jnp.stack([batch[PATCH], batch[PAIR]]).astype(jnp.float32) / 255
    if augmentation is not None:
        patches = augmentation(row_keys(augment_key, rows, axis_name), patches)
    inputs = KINDS[kind].normalize(patches.reshape(-1, *patches.shape[2:]))
    mask = jnp.tile(batch[MASK], 2)

    def loss_of(params: Any) -> tuple[jax.Array, tuple[dict[str, Sum], Any]]:
        kernels = network_of(params, state.batch_stats).kernels
        raw, seen = l2net.apply_train(
            kernels, inputs, jnp.concatenate(dropout_keys), mask=mask, dropout=dropout, axis_name=axis_name,
            convolution=convolution,
        )  # fmt: skip
        views = views_of(batch, patches, KINDS[kind].unit(raw))
        sums = LOSSES[loss](views, hyper.margin, axis_name, mining_precision)
        # This device's share: gradients add up over devices, where counts are the global batch's.
        share = sum(s.total / jnp.maximum(across(s.count), 1.0) for s in sums.values())
        return jnp.asarray(share), (sums, seen)

    (share, (sums, seen)), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    gradients, share, sums = across(gradients), across(share), across(sums)
    running = l2net.update(network_of(state.params, state.batch_stats).statistics, seen)
    stats = {f"layer{i}": dict(s._asdict()) for i, s in enumerate(running)}
    state = update(state, gradients, stats, hyper.optimizer, total_steps, l2=weight_decay)
    return state, {"loss": Sum(share, jnp.ones(())), **sums}
