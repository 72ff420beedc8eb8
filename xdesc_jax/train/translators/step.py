"""The training step: pure functions of (state, batch, key).

In: a `TrainState` and one device's part of a batch in stored form. Out: the next state and metrics as sums.
Knows nothing of files, loops or devices; `train/parallel` maps it. Works where tensorflow is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from xdesc_jax.config import TrainConfig
from xdesc_jax.data.around import AROUND_KEYPOINT, AROUND_MASK, column
from xdesc_jax.data.schema import KEYPOINT as FRAMES
from xdesc_jax.data.schema import MASK, POINT
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.networks import mlp
from xdesc_jax.networks.losses import Sum
from xdesc_jax.networks.mlp import Networks
from xdesc_jax.train.optimizer import Numbers, first_moments, numbers_of, update, with_average
from xdesc_jax.train.randomness import Use, key_of, row_keys
from xdesc_jax.train.state import Batch, TrainState
from xdesc_jax.train.translators.objective import Triplet, distilled_loss, encoder_decoder_loss, pair_loss

Describers = Mapping[str, Callable[[jax.Array], jax.Array]]


class Keys(NamedTuple):
    """Random keys of a run."""

    member: jax.Array  # of what a member of a population does alone: permutations
    data: jax.Array  # of what all share: augmentation


def keys_of(config: TrainConfig) -> Keys:
    """The keys of a configuration's seeds."""
    return Keys(key_of(config.seed, Use.PERMUTATIONS), key_of(config.data_seed, Use.AUGMENTATION))


def weights_key(config: TrainConfig) -> jax.Array:
    """The key of a configuration's seed that fresh weights are drawn with."""
    return key_of(config.seed, Use.WEIGHTS)


def initialiser(networks: Networks, config: TrainConfig) -> jax.stages.Wrapped:
    """What gives a fresh state for a key, on the default device; compiled once for all keys."""
    return jax.jit(partial(create_state, networks, average=config.optimizer.ema > 0))


def first_state(networks: Networks, config: TrainConfig) -> TrainState:
    """The state that a configuration's seed gives, on the default device."""
    return initialiser(networks, config)(weights_key(config))


class Hyper(NamedTuple):
    """What may differ between members of a population, hence arrays and not constants."""

    optimizer: Numbers
    alpha: jax.Array | float
    margin: jax.Array | float
    beta: jax.Array | float = 0.0
    target_margin: jax.Array | float = 1.0
    active: jax.Array | None = None  # [A] bool, which descriptors take part; None: all


def hyper_of(config: TrainConfig) -> Hyper:
    """What a configuration says of them, all descriptors taking part."""
    loss = config.loss
    return Hyper(numbers_of(config.optimizer), loss.alpha, loss.margin, loss.beta, loss.target_margin)


def create_state(networks: Networks, key: jax.Array, average: bool = False) -> TrainState:
    """Fresh weights and optimiser moments, with an average of the weights where wanted."""
    variables = mlp.init_variables(networks, key)
    params, stats = variables["params"], variables["batch_stats"]
    return with_average(TrainState(jnp.zeros((), jnp.int32), params, stats, first_moments(params)), average)


# --- Inputs ----------------------------------------------------------------------------------------------


def canonical_rows(x: jax.Array, spec: DescriptorSpec, scale: float) -> jax.Array:
    """Stored rows -> float32 [B, D]: bits as 0 and 1, unit length where normalized, else divided by `scale`.

    `scale` is the typical norm of the descriptor, so that its loss weighs as much as a unit-length one's.
    """
    if spec.binary:
        bits = (x[:, :, None] >> jnp.arange(8, dtype=jnp.uint8)) & 1
        return bits.reshape(len(x), -1)[:, : spec.width].astype(jnp.float32)
    x = x.astype(jnp.float32)
    return mlp.unit(x) if spec.normalized else x / scale


def read_inputs(batch: Batch, specs: Mapping[str, DescriptorSpec], scales: Mapping[str, float]) -> dict[str, jax.Array]:
    """Descriptor columns of a batch, in the form the networks take; what they are told of keypoints, where it has some.

    Returns:
        Canonical rows [B, D] by descriptor; frames [B, 2] under `FRAMES`; of a batch with neighbours, their canonical
        rows [B, K, D] as 'neighbours/<descriptor>', their frames and their offsets in px [B, K, 4] as
        'neighbours/keypoint', and which there are, [B, K] bool, as 'neighbours/mask'.
    """
    rows = {name: canonical_rows(batch[name], spec, scales[name]) for name, spec in specs.items()}
    if FRAMES not in batch:
        return rows
    rows[FRAMES] = _usable_frames(batch[FRAMES][:, 2:], batch[MASK])
    if AROUND_MASK not in batch:
        return rows
    there = batch[AROUND_MASK]
    for name in (name for name in specs if column(name) in batch):
        near = batch[column(name)]
        flat = canonical_rows(near.reshape(-1, near.shape[-1]), specs[name], scales[name])
        rows[column(name)] = flat.reshape(*there.shape, -1)
    keypoints = batch[AROUND_KEYPOINT]
    frames = _usable_frames(keypoints[..., 2:], there)
    offsets = keypoints[..., :2] - batch[FRAMES][:, None, :2]
    return rows | {AROUND_KEYPOINT: jnp.concatenate([frames, offsets], axis=-1), AROUND_MASK: there}


def _usable_frames(frames: jax.Array, there: jax.Array) -> jax.Array:
    """Frames [..., 2], with finite ones where a row is padding, whose sigma is 0, or of a keypoint that has none: the
    networks take the logarithm, and not even what is masked may be NaN."""
    return jnp.where(there[..., None] & jnp.isfinite(frames), frames, 1.0)


def thinned(inputs: dict[str, jax.Array], keys: jax.Array, least_share: float) -> dict[str, jax.Array]:
    """Inputs in which each row sees a share of its neighbours, drawn evenly from `least_share` to 1.

    Args:
        inputs: of B rows, as `read_inputs` gives them.
        keys: [B], of the rows.
        least_share: 1 leaves all.
    """
    if AROUND_MASK not in inputs:
        return inputs

    def kept(key: jax.Array, there: jax.Array) -> jax.Array:
        of_share, of_each = jax.random.split(key)
        share = jax.random.uniform(of_share, minval=least_share, maxval=1.0)
        return there & (jax.random.uniform(of_each, there.shape) < share)

    return inputs | {AROUND_MASK: jax.vmap(kept)(keys, inputs[AROUND_MASK])}


def describe_inputs(
    patches: jax.Array,
    specs: Mapping[str, DescriptorSpec],
    scales: Mapping[str, float],
    describers: Describers,
) -> dict[str, jax.Array]:
    """Descriptors of patches [B, 32, 32] in 0..1, computed on the device, in the form the networks take."""
    described = {name: describers[name](patches).astype(jnp.float32) for name in specs}
    return {n: v if specs[n].binary or specs[n].normalized else v / scales[n] for n, v in described.items()}


# --- Step ------------------------------------------------------------------------------------------------


def train_step(
    state: TrainState,
    batch: Batch,
    keys: Keys,
    hyper: Hyper,
    *,
    networks: Networks,
    inputs_of: Callable[[Batch, jax.Array], dict[str, jax.Array]],
    variant: str,
    distance: str,
    target_matching: bool = False,
    negatives: str = "anchor",
    mining_precision: str = "highest",
    temperature: float | None = None,
    total_steps: int = 1,
    axis_name: str | None = None,
) -> tuple[TrainState, dict[str, Sum]]:
    """One step of the optimiser on L = L^T + alpha L^M + beta L^R of the global batch, or on the distance to a teacher.

    Args:
        state: the same on every device.
        batch: this device's rows, [b, ...] each, with `mask` [b] bool; with `point` [b] int32, in twos of one point,
            which are matched with each other.
        keys: of the run; the step number is folded in.
        hyper: numbers of the optimiser, weights and margins of the losses, and which descriptors take part.
        networks: the modules, with their batch norm on `axis_name`.
        inputs_of: (batch, keys of its rows) -> canonical rows by descriptor.
        variant, distance, negatives, mining_precision: see `LossConfig`.
        temperature: of the contrastive form of the matching losses; None: the triplet.
        target_matching: whether there is L^R; without it, `hyper.beta` has no effect.
        total_steps: of the whole training, for the schedule.
        axis_name: the mapped axis, or None on one device.

    Returns:
        The next state, and sums over the global batch of 'loss', 'translation', 'matching' and, where there is
        L^R, 'target_matching'.
    """
    across = partial(lax.psum, axis_name=axis_name) if axis_name else lambda x: x
    data_key = jax.random.fold_in(keys.data, state.step)
    inputs = inputs_of(batch, row_keys(data_key, len(batch["mask"]), axis_name))
    triplet = Triplet(
        hyper.margin, hyper.target_margin, distance, target_matching, axis_name, negatives, mining_precision,
        temperature,
    )  # fmt: skip

    permutation_key = jax.random.fold_in(keys.member, state.step)

    def loss_of(params: Any) -> tuple[jax.Array, tuple[dict[str, Sum], Any]]:
        if networks.teacher is not None:
            sums, stats = distilled_loss(networks, params, state.batch_stats, inputs, batch["mask"])
        elif networks.kind == "pair":
            sums, stats = pair_loss(networks, params, state.batch_stats, inputs, batch["mask"], triplet, hyper.active)
        else:
            sums, stats = encoder_decoder_loss(
                networks, params, state.batch_stats, inputs, batch["mask"], permutation_key, variant, triplet,
                hyper.active, batch.get(POINT),
            )  # fmt: skip
        # This device's share: gradients add up over devices, where counts are the global batch's.
        counts = {k: jnp.maximum(across(s.count), 1.0) for k, s in sums.items()}
        share = sums["translation"].total / counts["translation"]
        share += hyper.alpha * sums["matching"].total / counts["matching"]
        if "target_matching" in sums:
            share += hyper.beta * sums["target_matching"].total / counts["target_matching"]
        return share, (sums, stats)

    (share, (sums, stats)), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    gradients, share, sums = across(gradients), across(share), across(sums)
    state = update(state, gradients, stats, hyper.optimizer, total_steps)
    return state, {"loss": Sum(share, jnp.ones(())), **sums}
