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
import optax
from jax import lax

from xdesc_jax.data.schema import MASK, PAIR, PATCH, POINT
from xdesc_jax.features import l2net
from xdesc_jax.features.jitter import relight
from xdesc_jax.features.l2net import L2Net, Statistics
from xdesc_jax.networks.descriptor_losses import Views, hardnet_loss, patch_codes, sosnet_loss
from xdesc_jax.networks.losses import Sum
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

    learning_rate: jax.Array | float
    margin: jax.Array | float


# --- State -----------------------------------------------------------------------------------------------


def create_state(net: L2Net) -> TrainState:
    """The state that starts from a network's weights, with fresh optimiser moments."""
    params = {f"layer{i}": kernel for i, kernel in enumerate(net.kernels)}
    stats = {f"layer{i}": dict(s._asdict()) for i, s in enumerate(net.statistics)}
    return TrainState(jnp.zeros((), jnp.int32), params, stats, optax.scale_by_adam().init(params))


def network_of(params: Mapping[str, Any], stats: Mapping[str, Any]) -> L2Net:
    """The network of a state's parameters and running statistics."""
    names = [f"layer{i}" for i in range(len(l2net.LAYERS))]
    return L2Net(tuple(params[n] for n in names), tuple(Statistics(**stats[n]) for n in names))


@partial(jax.jit, static_argnames="kind")
def describe(net: L2Net, patches: jax.Array, *, kind: str) -> jax.Array:
    """Descriptors of stored patches, uint8 [B, 32, 32] -> float32 [B, 128] of unit length, in inference."""
    normal = KINDS[kind].normalize(patches.astype(jnp.float32) / 255)
    return KINDS[kind].unit(l2net.apply(net, normal))


# --- Augmentation ----------------------------------------------------------------------------------------


def augment(
    key: jax.Array, patches: jax.Array, *, flips: bool, gamma: float, contrast: float, axis_name: str | None = None
) -> jax.Array:
    """Changes pairs at random: mirrored and turned alike, each of the two in its own light.

    Amounts are drawn for the global batch, so that they do not depend on the number of devices.

    Args:
        key: the same on all devices.
        patches: [2, b, 32, 32] in 0..1, this device's.
        flips: whether to mirror and turn by quarters.
        gamma, contrast: standard deviations of their logarithms.
        axis_name: the mapped axis, if any.

    Returns:
        [2, b, 32, 32] in 0..1.
    """
    count = patches.shape[1]
    devices = lax.axis_size(axis_name) if axis_name else 1
    first = lax.axis_index(axis_name) * count if axis_name else 0
    turn_key, light_key = jax.random.split(key)
    draws = jax.random.bernoulli(turn_key, 0.5, (3, count * devices))
    normal = jax.random.normal(light_key, (2, 2, count * devices))
    draws = lax.dynamic_slice_in_dim(draws, first, count, axis=1)
    normal = lax.dynamic_slice_in_dim(normal, first, count, axis=2)
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
    key: jax.Array,
    hyper: DescriptorHyper,
    *,
    kind: str,
    loss: str,
    augmentation: Callable[..., jax.Array] | None = None,
    dropout: float = 0.1,
    weight_decay: float = 0.0,
    rate_factor: Callable[[jax.Array], jax.Array] = lambda step: jnp.ones(()),
    convolution: l2net.Convolution | None = None,
    axis_name: str | None = None,
) -> tuple[TrainState, dict[str, Sum]]:
    """One Adam step on the loss of the global batch; both views go through the network at once.

    Args:
        state: the same on every device.
        batch: this device's rows: 'patch' and 'pair' [b, 32, 32] uint8, 'point' [b], 'mask' [b].
        key: the run's key; the step number is folded in.
        hyper: learning rate and margin.
        kind: a key of `KINDS`.
        loss: a key of `LOSSES`.
        augmentation: (key, patches [2, b, 32, 32] in 0..1, axis_name=...) -> the same, changed.
        dropout: share of values dropped before the last layer.
        weight_decay: times the weights, added to the gradient.
        rate_factor: step -> factor of the learning rate.
        convolution: see `l2net.apply_train`.
        axis_name: the mapped axis, or None on one device.

    Returns:
        The next state, and sums over the global batch of 'loss' and of its parts.
    """
    across = partial(lax.psum, axis_name=axis_name) if axis_name else lambda x: x
    augment_key, dropout_key = jax.random.split(jax.random.fold_in(key, state.step))
    if axis_name:
        dropout_key = jax.random.fold_in(dropout_key, lax.axis_index(axis_name))
    patches = jnp.stack([batch[PATCH], batch[PAIR]]).astype(jnp.float32) / 255
    if augmentation is not None:
        patches = augmentation(augment_key, patches, axis_name=axis_name)
    inputs = KINDS[kind].normalize(patches.reshape(-1, *patches.shape[2:]))
    mask = jnp.tile(batch[MASK], 2)

    def loss_of(params: Any) -> tuple[jax.Array, tuple[dict[str, Sum], Any]]:
        kernels = network_of(params, state.batch_stats).kernels
        raw, seen = l2net.apply_train(
            kernels, inputs, dropout_key, mask=mask, dropout=dropout, axis_name=axis_name, convolution=convolution
        )
        views = views_of(batch, patches, KINDS[kind].unit(raw))
        sums = LOSSES[loss](views, hyper.margin, axis_name)
        # This device's share: gradients add up over devices, where counts are the global batch's.
        share = sum(s.total / jnp.maximum(across(s.count), 1.0) for s in sums.values())
        return jnp.asarray(share), (sums, seen)

    (share, (sums, seen)), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    gradients, share, sums = across(gradients), across(share), across(sums)
    gradients = jax.tree.map(lambda g, p: g + weight_decay * p, gradients, state.params)
    updates, opt_state = optax.scale_by_adam().update(gradients, state.opt_state, state.params)
    rate = hyper.learning_rate * rate_factor(state.step)
    params = jax.tree.map(lambda p, u: p - rate * u, state.params, updates)
    running = l2net.update(network_of(params, state.batch_stats).statistics, seen)
    stats = {f"layer{i}": dict(s._asdict()) for i, s in enumerate(running)}
    return TrainState(state.step + 1, params, stats, opt_state), {"loss": Sum(share, jnp.ones(())), **sums}
