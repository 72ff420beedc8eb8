"""The objective of a training step: translation and matching sums of all networks on one device's rows.

In: networks with their variables, and what `step.read_inputs` makes of a batch: canonical rows by descriptor and, where
the networks take them, frames of the keypoints and what lies around. Out: sums by loss, which add up over devices, and
new running statistics. Pure functions; `train/translators/step` differentiates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xdesc_jax.data.around import AROUND_KEYPOINT, AROUND_MASK, column
from xdesc_jax.data.schema import KEYPOINT as FRAMES
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.networks import losses, mlp
from xdesc_jax.networks.context import Around
from xdesc_jax.networks.contrastive import contrastive_loss
from xdesc_jax.networks.losses import Rows, Sum
from xdesc_jax.networks.mlp import Networks


def apply_training(
    networks: Networks, params: Any, batch_stats: Any, name: str, x: jax.Array, mask: jax.Array,
    frames: jax.Array | None = None, around: Around | None = None,
) -> tuple[jax.Array, Any]:  # fmt: skip
    """One network with batch statistics: raw output and its new running statistics (frozen ones have none)."""
    x = mlp.with_context(networks, params, name, mlp.with_frames(networks, name, x, frames), around)
    if name in networks.frozen:
        return mlp.forward(networks.frozen[name], x), None
    variables = {"params": params[name], "batch_stats": batch_stats[name]}
    raw, changed = networks.modules[name].apply(variables, x, mask, True, mutable=["batch_stats"])
    return raw, changed.get("batch_stats", {})


def held_rows(names: Sequence[str], inputs: Mapping[str, jax.Array], mask: jax.Array) -> jax.Array:
    """Which rows each descriptor has, [A, B] bool: not those that are all zero, as where it was not computed."""
    return jnp.stack([jnp.any(inputs[name] != 0, axis=-1) for name in names]) & mask


def embed_all(
    networks: Networks, params: Any, stats: Any, inputs: Mapping[str, jax.Array], held: jax.Array
) -> tuple[jax.Array, dict[str, Any]]:
    """Unit embeddings of all descriptors stacked, [A, B, E], and new running statistics of the rows held [A, B]."""
    embeddings = []
    changed: dict[str, Any] = {f"context/{name}": {} for name in networks.with_context}  # which have no statistics
    for name, own in zip(networks.names, held, strict=True):
        key, around = f"encoder/{name}", around_of(networks, inputs, name)
        raw, changed[key] = apply_training(networks, params, stats, key, inputs[name], own, inputs.get(FRAMES), around)
        embeddings.append(mlp.unit(raw))
    return jnp.stack(embeddings), _trained(networks, changed)


def around_of(networks: Networks, inputs: Mapping[str, jax.Array], name: str) -> Around | None:
    """What lies around the rows of a descriptor, from the inputs of a step; None where its encoder is not told."""
    if not networks.takes_context(f"encoder/{name}"):
        return None
    framed = networks.specs[name].frame == frame_form.KEYPOINT
    seen = sum(networks.context.neighbours(framed))  # of K: the nearest ones come first
    rows, keypoints, mask = (inputs[of][:, :seen] for of in (column(name), AROUND_KEYPOINT, AROUND_MASK))
    frames, offsets = keypoints[..., :2], keypoints[..., 2:]  # [B, K, 2] each
    own, others = (inputs[FRAMES], frames) if framed else (None, None)
    return mlp.look_around(rows, own, others, offsets, mask, networks.harmonics, networks.frame)


def _trained(networks: Networks, changed: Mapping[str, Any]) -> dict[str, Any]:
    return {name: stats for name, stats in changed.items() if name in networks.modules}


def translation_loss(
    networks: Networks,
    params: Any,
    stats: Any,
    sources: Mapping[str, jax.Array],
    inputs: Mapping[str, jax.Array],
    masks: Mapping[str, jax.Array],
) -> tuple[dict[str, Sum], dict[str, jax.Array], dict[str, Any]]:
    """L^T of each target over the given sources.

    Args:
        sources: embeddings [S, B, E] by target name: of all descriptors (quadratic), or of one.
        masks: [S, B] bool by target name, which rows of which source count.

    Returns:
        Sums by target name, translations [S, B, D] by target name (logits where binary), and new running
        statistics. A decoder runs once on its S * B rows, so its batch norm sees all of them.
    """
    sums, predictions, changed = {}, {}, {}
    for name, embeddings in sources.items():
        key, rows = f"decoder/{name}", embeddings.reshape(-1, embeddings.shape[-1])
        mask = masks[name].reshape(-1)
        raw, changed[key] = apply_training(networks, params, stats, key, rows, mask, inputs.get(FRAMES))
        spec = networks.specs[name]
        predictions[name] = mlp.finish(raw, spec).reshape(*embeddings.shape[:2], -1)
        errors = losses.translation_error(predictions[name], inputs[name], spec.binary)
        sums[name] = losses.masked_sum(errors, masks[name])
    return sums, predictions, _trained(networks, changed)


def random_permutation(names: Sequence[str], key: jax.Array, active: jax.Array | None) -> jax.Array:
    """A random permutation sigma of the descriptors that take part, int [A]; the others stay where they are.

    Each draws a number by its name, so that those that do not take part change nothing for the others.
    """
    scores = jnp.stack([jax.random.uniform(jax.random.fold_in(key, mlp.name_seed(name))) for name in names])
    if active is None:
        return jnp.argsort(scores)
    drawn = jnp.argsort(jnp.where(active, scores, jnp.inf))  # those that take part, in random order, before the rest
    return jnp.where(active, drawn[jnp.cumsum(active) - 1], jnp.arange(len(names)))


def pairs_of(
    networks: Networks, variant: str, key: jax.Array, active: jax.Array | None = None
) -> tuple[dict[str, Any], jax.Array]:
    """Which descriptors are translated to which, and matched with which, in one step.

    What is left out is constant: translations where neither the source's encoder nor the target's decoder learns, and
    matches of two frozen encoders. Those that the linear variant draws cannot be, as they are not known when the step
    is compiled: `pairs_used` tells them apart.

    Returns:
        Indices of sources (into the stacked embeddings) by target name, and pairs [P, 2] to match.
    """
    count, names = len(networks.names), networks.names
    fresh, decoders = np.flatnonzero(learning(networks)), learning(networks, "decoder")
    if variant == "linear":
        # sigma(i) = target of source i; the decoder of j takes the source sigma^-1(j).
        sigma = random_permutation(names, key, active)
        order = jnp.argsort(sigma)
        return {n: order[j][None] for j, n in enumerate(names)}, jnp.stack([jnp.arange(count), sigma], axis=1)
    every = losses.all_pairs(count)
    pairs = jnp.asarray(every[np.isin(every, fresh).any(axis=1)])
    if variant == "autoencoder":
        return {names[j]: slice(j, j + 1) for j in np.flatnonzero(learning(networks) | decoders)}, pairs
    taught = zip(names, decoders, strict=True)
    return {name: slice(None) if learns else fresh for name, learns in taught if learns or len(fresh)}, pairs


def learning(networks: Networks, role: str = "encoder") -> np.ndarray:
    """Whose encoders, or decoders, are not frozen, [A] bool."""
    return np.array([f"{role}/{name}" in networks.modules for name in networks.names])


def pairs_used(
    networks: Networks, first: Any, second: Any, active: jax.Array | None, role: str = "encoder"
) -> jax.Array:
    """Which of the pairs (first, second) count, bool: both take part, and the first's encoder learns or the second's
    encoder, or decoder."""
    used = jnp.asarray(learning(networks))[first] | jnp.asarray(learning(networks, role))[second]
    return used if active is None else used & active[first] & active[second]


class Triplet(NamedTuple):
    """How the matching losses measure."""

    margin: jax.Array | float
    target_margin: jax.Array | float
    distance: str
    target_matching: bool  # whether L^R is computed
    axis_name: str | None
    negatives: str = "anchor"  # of L^M
    precision: str = "highest"  # of the products by which negatives are chosen
    temperature: float | None = None  # of the contrastive form of both losses; None: the triplet


def target_matching_sums(
    networks: Networks,
    predictions: Mapping[str, jax.Array],
    source_ids: Mapping[str, jax.Array],
    inputs: Mapping[str, jax.Array],
    held: jax.Array,
    triplet: Triplet,
    masks: Mapping[str, jax.Array],
    points: jax.Array | None = None,
) -> Sum:
    """L^R over targets.

    Args:
        predictions: translations [S, b, D] by target name, logits where binary.
        source_ids: [S, b] by target name, `losses.row_ids` of the rows that they were made from.
        held: [A, b] bool, which rows each descriptor has.
        masks: [S, b] bool by target name, which rows of which source count.
        points: [b] int32, equal for rows of one point; None: each row is of its own.
    """
    points = point_numbers(held[0], triplet.axis_name) if points is None else points
    sums = {}
    for name, rows in predictions.items():
        spec, natives = networks.specs[name], inputs[name]
        mask = jnp.concatenate([masks[name], held[networks.names.index(name)][None]])
        made = jax.nn.sigmoid(rows) if spec.binary else rows
        of = (made, natives, source_ids[name], losses.row_ids(natives), mask, points)
        if triplet.temperature is not None:
            together, pairs = losses.target_rows(*of, spec.binary)
            sums[name] = contrastive_loss(
                together, pairs, triplet.temperature,
                unit_length=spec.normalized, precision=triplet.precision, axis_name=triplet.axis_name,
            )  # fmt: skip
            continue
        sums[name] = losses.target_matching_loss(
            *of, triplet.target_margin, triplet.distance,
            binary=spec.binary, unit_length=spec.normalized, precision=triplet.precision, axis_name=triplet.axis_name,
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
    active: jax.Array | None = None,
    points: jax.Array | None = None,
) -> tuple[dict[str, Sum], dict[str, Any]]:
    """Translation and matching sums of the encoder-decoder model, and new running statistics.

    Descriptors that are not `active` count in none of them, and so receive no gradient; nor does a descriptor through
    rows that it does not have. With `points` [b] int32, rows come in twos of one point, each of another photo, and the
    positive of a row is the other descriptor's of the other photo.
    """
    held = held_rows(networks.names, inputs, mask)
    embeddings, encoder_stats = embed_all(networks, params, stats, inputs, held)
    ids = jnp.stack([losses.row_ids(inputs[name]) for name in networks.names])
    chosen, pairs = pairs_of(networks, variant, key, active)
    # Gradients with respect to the embeddings are then one sum over targets, however many there are.
    for_each_target = jnp.broadcast_to(embeddings, (len(networks.names), *embeddings.shape))
    sources = {name: for_each_target[networks.names.index(name)][of] for name, of in chosen.items()}
    masks = {name: held[of] & held[networks.names.index(name)] for name, of in chosen.items()}
    used_pairs = None
    if active is not None or (networks.frozen and variant == "linear"):
        uses = {
            name: pairs_used(networks, of, networks.names.index(name), active, "decoder") for name, of in chosen.items()
        }
        masks = {name: uses[name][:, None] & mask for name, mask in masks.items()}
        used_pairs = pairs_used(networks, pairs[:, 0], pairs[:, 1], active)
    by_target, predictions, decoder_stats = translation_loss(networks, params, stats, sources, inputs, masks)
    rows = Rows(embeddings, ids, held, point_numbers(mask, triplet.axis_name) if points is None else points)
    if points is not None:
        rows, pairs = across_views(rows, pairs)
    if not learning(networks).any():  # decoders alone
        matching = Sum(jnp.zeros(()), jnp.zeros(()))
    elif triplet.temperature is not None:
        matching = contrastive_loss(
            rows, pairs, triplet.temperature,
            symmetric=variant != "linear", use=used_pairs, axis_name=triplet.axis_name, precision=triplet.precision,
        )  # fmt: skip
    else:
        matching = losses.matching_loss(
            rows, pairs, triplet.margin, triplet.distance,
            symmetric=variant != "linear", negatives_of=triplet.negatives, use=used_pairs, axis_name=triplet.axis_name,
            precision=triplet.precision,
        )  # fmt: skip
    sums = {"translation": total(by_target), "matching": matching}
    if triplet.target_matching:
        ids_of = {name: ids[of] for name, of in chosen.items()}
        sums["target_matching"] = target_matching_sums(
            networks, predictions, ids_of, inputs, held, triplet, masks, points
        )
    return sums, encoder_stats | decoder_stats


def across_views(rows: Rows, pairs: jax.Array) -> tuple[Rows, jax.Array]:
    """Rows that come in twos of one point: behind them, [2 A, b], the same exchanged within each two, and pairs of the
    former with the latter. Rows of one point are no negatives of each other.
    """
    count, other = len(rows.embeddings), jnp.arange(len(rows.points)) ^ 1
    embeddings, ids, mask = (jnp.concatenate([x, x[:, other]]) for x in (rows.embeddings, rows.ids, rows.mask))
    return Rows(embeddings, ids, mask, rows.points), pairs + jnp.array([0, count])


def distilled_loss(
    networks: Networks, params: Any, stats: Any, inputs: Mapping[str, jax.Array], mask: jax.Array
) -> tuple[dict[str, Sum], dict[str, Any]]:
    """Squared distances of all embeddings to the teacher's, as the translation's sum, and new running statistics."""
    held = held_rows(networks.names, inputs, mask)
    embeddings, changed = embed_all(networks, params, stats, inputs, held)
    errors = jnp.sum((embeddings - taught_all(networks, inputs)) ** 2, axis=-1)
    return {"translation": losses.masked_sum(errors, held), "matching": Sum(jnp.zeros(()), jnp.zeros(()))}, changed


def taught_all(networks: Networks, inputs: Mapping[str, jax.Array]) -> jax.Array:
    """The teacher's unit embeddings of all descriptors, [A, B, E]."""
    teacher, frames = networks.teacher, inputs.get(FRAMES)
    assert teacher is not None
    none: dict[str, Any] = {"params": {}, "batch_stats": {}}
    return jnp.stack([
        mlp.embed(teacher, none, inputs[name], name, frames, around_of(teacher, inputs, name))
        for name in networks.names
    ])  # fmt: skip


def pair_loss(
    networks: Networks,
    params: Any,
    stats: Any,
    inputs: Mapping[str, jax.Array],
    mask: jax.Array,
    triplet: Triplet,
    active: jax.Array | None = None,
) -> tuple[dict[str, Sum], dict[str, Any]]:
    """Translation sums of the pair networks (they have no joint space), and new running statistics."""
    errors, changed = {}, {}
    held = held_rows(networks.names, inputs, mask)
    counted: dict[str, list[jax.Array]] = {name: [] for name in networks.names}
    predictions: dict[str, list[jax.Array]] = {name: [] for name in networks.names}
    ids_of: dict[str, list[jax.Array]] = {name: [] for name in networks.names}
    for key in networks.modules:
        _, source, target = key.split("/")
        i, j = networks.names.index(source), networks.names.index(target)
        both = held[i] & held[j]
        raw, changed[key] = apply_training(networks, params, stats, key, inputs[source], both, inputs.get(FRAMES))
        spec = networks.specs[target]
        prediction = mlp.finish(raw, spec)
        used = both if active is None else both & active[i] & active[j]
        counted[target].append(used)
        errors[key] = losses.masked_sum(losses.translation_error(prediction, inputs[target], spec.binary), used)
        predictions[target].append(prediction)
        ids_of[target].append(losses.row_ids(inputs[source]))
    sums = {"translation": total(errors), "matching": Sum(jnp.zeros(()), jnp.zeros(()))}
    if triplet.target_matching:
        made = {name: jnp.stack(rows) for name, rows in predictions.items()}
        ids = {name: jnp.stack(rows) for name, rows in ids_of.items()}
        masks = {name: jnp.stack(rows) for name, rows in counted.items()}
        sums["target_matching"] = target_matching_sums(networks, made, ids, inputs, held, triplet, masks)
    return sums, changed


def point_numbers(mask: jax.Array, axis_name: str | None) -> jax.Array:
    """A number of its own for each row of the global batch: no two rows show the same point."""
    first = lax.axis_index(axis_name) * len(mask) if axis_name else 0
    return first + jnp.arange(len(mask), dtype=jnp.int32)


def total(sums: Mapping[str, Sum]) -> Sum:
    """The sum of sums; every pair has as many rows, so this is the mean over pairs of the paper."""
    return Sum(sum(s.total for s in sums.values()), sum(s.count for s in sums.values()))  # type: ignore[arg-type]
