"""The training step: pure functions of (state, batch, key).

In: a `TrainState` and one device's part of a batch in stored form. Out: the next state and metrics as sums.
Knows nothing of files, loops or devices; `train/parallel` maps it. Works where tensorflow is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from xdesc_jax import losses, models
from xdesc_jax.config import OptimizerConfig
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.losses import Rows, Sum
from xdesc_jax.models import Networks

Batch = Mapping[str, jax.Array]
Describers = Mapping[str, Callable[[jax.Array], jax.Array]]


@flax.struct.dataclass
class TrainState:
    """Everything a step changes. `step` counts the steps done."""

    step: jax.Array
    params: Any
    batch_stats: Any
    opt_state: Any


class Hyper(NamedTuple):
    """Numbers that may differ between members of a population, hence arrays and not constants."""

    learning_rate: jax.Array | float
    alpha: jax.Array | float
    margin: jax.Array | float
    beta: jax.Array | float = 0.0
    target_margin: jax.Array | float = 1.0


def create_state(networks: Networks, key: jax.Array) -> TrainState:
    """Fresh weights and optimiser moments."""
    variables = models.init_variables(networks, key)
    opt_state = optax.scale_by_adam().init(variables["params"])
    return TrainState(jnp.zeros((), jnp.int32), variables["params"], variables["batch_stats"], opt_state)


def learning_rate_factor(step: jax.Array, config: OptimizerConfig, total_steps: int) -> jax.Array:
    """Schedule as a factor of the peak rate; a function of the step alone, so that resuming changes nothing."""
    warmup = jnp.minimum(1.0, (step + 1) / max(1, config.warmup_steps)) if config.warmup_steps else 1.0
    if config.schedule == "constant":
        return jnp.asarray(warmup, jnp.float32)
    remaining = max(1, total_steps - config.warmup_steps)
    progress = jnp.clip((step - config.warmup_steps) / remaining, 0.0, 1.0)
    if config.schedule == "linear":
        return warmup * (1 - progress)
    return warmup * 0.5 * (1 + jnp.cos(jnp.pi * progress))


# --- Inputs ----------------------------------------------------------------------------------------------


def canonical_rows(x: jax.Array, spec: DescriptorSpec, scale: float) -> jax.Array:
    """Stored rows -> float32 [B, D]: bits as 0 and 1, unit length where normalized, else divided by `scale`.

    `scale` is the typical norm of the descriptor, so that its loss weighs as much as a unit-length one's.
    """
    if spec.binary:
        bits = (x[:, :, None] >> jnp.arange(8, dtype=jnp.uint8)) & 1
        return bits.reshape(len(x), -1)[:, : spec.width].astype(jnp.float32)
    x = x.astype(jnp.float32)
    return models.unit(x) if spec.normalized else x / scale


def read_inputs(batch: Batch, specs: Mapping[str, DescriptorSpec], scales: Mapping[str, float]) -> dict[str, jax.Array]:
    """Descriptor columns of a batch, in the form the networks take."""
    return {name: canonical_rows(batch[name], spec, scales[name]) for name, spec in specs.items()}


def describe_inputs(
    patches: jax.Array,
    specs: Mapping[str, DescriptorSpec],
    scales: Mapping[str, float],
    describers: Describers,
) -> dict[str, jax.Array]:
    """Descriptors of patches [B, 32, 32] in 0..1, computed on the device, in the form the networks take."""
    described = {name: describers[name](patches).astype(jnp.float32) for name in specs}
    return {n: v if specs[n].binary or specs[n].normalized else v / scales[n] for n, v in described.items()}


# --- Loss ------------------------------------------------------------------------------------------------


def apply_training(
    networks: Networks, params: Any, batch_stats: Any, name: str, x: jax.Array, mask: jax.Array
) -> tuple[jax.Array, Any]:
    """One network with batch statistics: raw output and its new running statistics (frozen ones have none)."""
    if name in networks.frozen:
        return models.forward(networks.frozen[name], x), None
    variables = {"params": params[name], "batch_stats": batch_stats[name]}
    raw, changed = networks.modules[name].apply(variables, x, mask, True, mutable=["batch_stats"])
    return raw, changed.get("batch_stats", {})


def embed_all(
    networks: Networks, params: Any, stats: Any, inputs: Mapping[str, jax.Array], mask: jax.Array
) -> tuple[jax.Array, dict[str, Any]]:
    """Unit embeddings of all descriptors stacked, [A, B, E], and new running statistics."""
    embeddings, changed = [], {}
    for name in networks.names:
        key = f"encoder/{name}"
        raw, changed[key] = apply_training(networks, params, stats, key, inputs[name], mask)
        embeddings.append(models.unit(raw))
    return jnp.stack(embeddings), _trained(networks, changed)


def _trained(networks: Networks, changed: Mapping[str, Any]) -> dict[str, Any]:
    return {name: stats for name, stats in changed.items() if name in networks.modules}


def translation_loss(
    networks: Networks,
    params: Any,
    stats: Any,
    sources: Mapping[str, jax.Array],
    inputs: Mapping[str, jax.Array],
    mask: jax.Array,
) -> tuple[dict[str, Sum], dict[str, jax.Array], dict[str, Any]]:
    """L^T of each target over the given sources.

    Args:
        sources: embeddings [S, B, E] by target name: of all descriptors (quadratic), or of one.

    Returns:
        Sums by target name, translations [S, B, D] by target name (logits where binary), and new running
        statistics. A decoder runs once on its S * B rows, so its batch norm sees all of them.
    """
    sums, predictions, changed = {}, {}, {}
    for name, embeddings in sources.items():
        key, rows = f"decoder/{name}", embeddings.reshape(-1, embeddings.shape[-1])
        raw, changed[key] = apply_training(networks, params, stats, key, rows, jnp.tile(mask, len(embeddings)))
        spec = networks.specs[name]
        predictions[name] = models.finish(raw, spec).reshape(*embeddings.shape[:2], -1)
        errors = losses.translation_error(predictions[name], inputs[name], spec.binary)
        sums[name] = losses.masked_sum(errors, mask)
    return sums, predictions, _trained(networks, changed)


def pairs_of(networks: Networks, variant: str, key: jax.Array) -> tuple[dict[str, Any], jax.Array]:
    """Which descriptors are translated to which, and matched with which, in one step.

    Pairs of two frozen descriptors are left out: their losses are constants.

    Returns:
        Indices of sources (into the stacked embeddings) by target name, and pairs [P, 2] to match.

    Raises:
        ValueError: the linear variant with frozen networks, whose pairs are not known when the step is compiled.
    """
    count, names = len(networks.names), networks.names
    fresh = [j for j, name in enumerate(names) if f"encoder/{name}" in networks.modules]
    if variant == "linear":
        if networks.frozen:
            raise ValueError("loss.variant is 'linear', expected 'quadratic' or 'autoencoder' with frozen networks")
        # sigma(i) = target of source i; the decoder of j takes the source sigma^-1(j).
        sigma = jax.random.permutation(key, count)
        order = jnp.argsort(sigma)
        return {n: order[j][None] for j, n in enumerate(names)}, jnp.stack([jnp.arange(count), sigma], axis=1)
    every = losses.all_pairs(count)
    pairs = jnp.asarray(every[np.isin(every, fresh).any(axis=1)])
    if variant == "autoencoder":
        return {names[j]: slice(j, j + 1) for j in fresh}, pairs
    return {name: slice(None) if j in fresh else np.array(fresh) for j, name in enumerate(names)}, pairs


class Triplet(NamedTuple):
    """How the matching losses measure."""

    margin: jax.Array | float
    target_margin: jax.Array | float
    distance: str
    target_matching: bool  # whether L^R is computed
    axis_name: str | None


def target_matching_sums(
    networks: Networks,
    predictions: Mapping[str, jax.Array],
    source_ids: Mapping[str, jax.Array],
    inputs: Mapping[str, jax.Array],
    mask: jax.Array,
    triplet: Triplet,
) -> Sum:
    """L^R over targets.

    Args:
        predictions: translations [S, b, D] by target name, logits where binary.
        source_ids: [S, b] by target name, `losses.row_ids` of the rows that they were made from.
    """
    points = point_numbers(mask, triplet.axis_name)
    sums = {}
    for name, rows in predictions.items():
        spec, natives = networks.specs[name], inputs[name]
        sums[name] = losses.target_matching_loss(
            jax.nn.sigmoid(rows) if spec.binary else rows, natives, source_ids[name], losses.row_ids(natives), mask,
            points, triplet.target_margin, triplet.distance,
            binary=spec.binary, unit_length=spec.normalized, axis_name=triplet.axis_name,
        )  # fmt: skip
    return total(sums)


def encoder_decoder_loss(
    networks: Networks,
    params: Any,
    stats: Any,
    inputs: Mapping[str, jax.Array],
    mask: jax.Array,
    key: jax.Array,
    variant: str,
    triplet: Triplet,
) -> tuple[dict[str, Sum], dict[str, Any]]:
    """Translation and matching sums of the encoder-decoder model, and new running statistics."""
    embeddings, encoder_stats = embed_all(networks, params, stats, inputs, mask)
    ids = jnp.stack([losses.row_ids(inputs[name]) for name in networks.names])
    chosen, pairs = pairs_of(networks, variant, key)
    # Gradients with respect to the embeddings are then one sum over targets, however many there are.
    for_each_target = jnp.broadcast_to(embeddings, (len(networks.names), *embeddings.shape))
    sources = {name: for_each_target[networks.names.index(name)][of] for name, of in chosen.items()}
    by_target, predictions, decoder_stats = translation_loss(networks, params, stats, sources, inputs, mask)
    rows = Rows(embeddings, ids, mask, point_numbers(mask, triplet.axis_name))
    matching = losses.matching_loss(
        rows, pairs, triplet.margin, triplet.distance, symmetric=variant != "linear", axis_name=triplet.axis_name
    )
    sums = {"translation": total(by_target), "matching": matching}
    if triplet.target_matching:
        ids_of = {name: ids[of] for name, of in chosen.items()}
        sums["target_matching"] = target_matching_sums(networks, predictions, ids_of, inputs, mask, triplet)
    return sums, encoder_stats | decoder_stats


def pair_loss(
    networks: Networks, params: Any, stats: Any, inputs: Mapping[str, jax.Array], mask: jax.Array, triplet: Triplet
) -> tuple[dict[str, Sum], dict[str, Any]]:
    """Translation sums of the pair networks (they have no joint space), and new running statistics."""
    errors, changed = {}, {}
    predictions: dict[str, list[jax.Array]] = {name: [] for name in networks.names}
    ids_of: dict[str, list[jax.Array]] = {name: [] for name in networks.names}
    for key in networks.modules:
        _, source, target = key.split("/")
        raw, changed[key] = apply_training(networks, params, stats, key, inputs[source], mask)
        spec = networks.specs[target]
        prediction = models.finish(raw, spec)
        errors[key] = losses.masked_sum(losses.translation_error(prediction, inputs[target], spec.binary), mask)
        predictions[target].append(prediction)
        ids_of[target].append(losses.row_ids(inputs[source]))
    sums = {"translation": total(errors), "matching": Sum(jnp.zeros(()), jnp.zeros(()))}
    if triplet.target_matching:
        made = {name: jnp.stack(rows) for name, rows in predictions.items()}
        ids = {name: jnp.stack(rows) for name, rows in ids_of.items()}
        sums["target_matching"] = target_matching_sums(networks, made, ids, inputs, mask, triplet)
    return sums, changed


def point_numbers(mask: jax.Array, axis_name: str | None) -> jax.Array:
    """A number of its own for each row of the global batch: no two rows show the same point."""
    first = lax.axis_index(axis_name) * len(mask) if axis_name else 0
    return first + jnp.arange(len(mask), dtype=jnp.int32)


def total(sums: Mapping[str, Sum]) -> Sum:
    """The sum of sums; every pair has as many rows, so this is the mean over pairs of the paper."""
    return Sum(sum(s.total for s in sums.values()), sum(s.count for s in sums.values()))  # type: ignore[arg-type]


# --- Step ------------------------------------------------------------------------------------------------


def train_step(
    state: TrainState,
    batch: Batch,
    key: jax.Array,
    hyper: Hyper,
    *,
    networks: Networks,
    inputs_of: Callable[[Batch, jax.Array], dict[str, jax.Array]],
    variant: str,
    distance: str,
    target_matching: bool = False,
    rate_factor: Callable[[jax.Array], jax.Array] = lambda step: jnp.ones(()),
    axis_name: str | None = None,
) -> tuple[TrainState, dict[str, Sum]]:
    """One Adam step on L = L^T + alpha L^M + beta L^R of the global batch.

    Args:
        state: the same on every device.
        batch: this device's rows, [b, ...] each, with `mask` [b] bool.
        key: the run's key; the step number is folded in.
        hyper: learning rate, and weights and margins of the losses.
        networks: the modules, with their batch norm on `axis_name`.
        inputs_of: (batch, key) -> canonical rows by descriptor.
        variant, distance: see `LossConfig`.
        target_matching: whether there is L^R; without it, `hyper.beta` has no effect.
        rate_factor: step -> factor of the learning rate.
        axis_name: the mapped axis, or None on one device.

    Returns:
        The next state, and sums over the global batch of 'loss', 'translation', 'matching' and, where there is
        L^R, 'target_matching'.
    """
    across = partial(lax.psum, axis_name=axis_name) if axis_name else lambda x: x
    step_key = jax.random.fold_in(key, state.step)
    permutation_key, input_key = jax.random.split(step_key)
    inputs = inputs_of(batch, input_key)
    triplet = Triplet(hyper.margin, hyper.target_margin, distance, target_matching, axis_name)

    def loss_of(params: Any) -> tuple[jax.Array, tuple[dict[str, Sum], Any]]:
        if networks.kind == "pair":
            sums, stats = pair_loss(networks, params, state.batch_stats, inputs, batch["mask"], triplet)
        else:
            sums, stats = encoder_decoder_loss(
                networks, params, state.batch_stats, inputs, batch["mask"], permutation_key, variant, triplet
            )
        # This device's share: gradients add up over devices, where counts are the global batch's.
        counts = {k: jnp.maximum(across(s.count), 1.0) for k, s in sums.items()}
        share = sums["translation"].total / counts["translation"]
        share += hyper.alpha * sums["matching"].total / counts["matching"]
        if target_matching:
            share += hyper.beta * sums["target_matching"].total / counts["target_matching"]
        return share, (sums, stats)

    (share, (sums, stats)), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    gradients, share, sums = across(gradients), across(share), across(sums)
    updates, opt_state = optax.scale_by_adam().update(gradients, state.opt_state, state.params)
    rate = hyper.learning_rate * rate_factor(state.step)
    params = jax.tree.map(lambda p, u: p - rate * u, state.params, updates)
    return TrainState(state.step + 1, params, stats, opt_state), {"loss": Sum(share, jnp.ones(())), **sums}
