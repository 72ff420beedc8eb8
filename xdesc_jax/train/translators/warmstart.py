"""Continuing from a model file: folded layers back into trainable networks.

In: a bundle, whose batch norms are folded into its linear layers, and rows of the new data. Out: a state that
computes the same functions. Batch norm would undo the folded scale and offset, so each is set to the moments of
its own input over the rows: scale * (x - mean) / deviation + offset = x.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax.config import ContextConfig
from xdesc_jax.data.schema import KEYPOINT as FRAMES
from xdesc_jax.networks import mlp
from xdesc_jax.networks.batch_norm import masked_moments
from xdesc_jax.networks.context import OF_ROWS
from xdesc_jax.networks.mlp import BN_EPSILON, Networks
from xdesc_jax.train.optimizer import with_average
from xdesc_jax.train.state import TrainState
from xdesc_jax.train.translators.objective import around_of
from xdesc_jax.translation.bundle import Bundle


def start_from_bundle(
    state: TrainState,
    networks: Networks,
    bundle: Bundle,
    rows: Mapping[str, jax.Array],
    scales: Mapping[str, float],
) -> TrainState:
    """A fresh state with the weights of `bundle` for every network that it holds.

    Args:
        state: fresh; gives the weights of descriptors that the bundle lacks.
        networks: the model to train.
        bundle: where to start from.
        rows: canonical rows [N, D] by descriptor, of the kind to be trained on, divided by `scales`, and frames.
        scales: what this run divides unnormalised descriptors by.

    Raises:
        ValueError: as `check_fit`.
    """
    shared = check_fit(bundle, networks, state)
    params, stats = dict(state.params), dict(state.batch_stats)
    frames = rows.get(FRAMES)

    def held_by(*names: str) -> jax.Array:
        """Which rows have all these descriptors, [N] bool."""
        return jnp.stack([jnp.any(rows[name] != 0, axis=-1) for name in names]).all(axis=0)

    encoders = [name for name in shared if not name.startswith("decoder/")]
    decoders = [name for name in shared if name.startswith("decoder/")]
    for name in encoders:
        source, *to = name.split("/")[1:]
        layers = scaled(bundle, name, scales)
        if _begins_to_look(name, networks, bundle):
            layers = _looking(layers, state.params[name]["linear0"]["kernel"].shape[0])
        elif networks.takes_context(name):
            key = mlp.context_key(name)
            held = scaled(bundle, key, scales)
            params[key] = {
                f"linear{i}": {"kernel": jnp.asarray(k), "bias": jnp.asarray(b)} for i, (k, b) in enumerate(held)
            }
        x = mlp.with_frames(networks, name, rows[source], frames)
        x = mlp.with_context(networks, params, name, x, around_of(networks, rows, source))
        params[name], stats[name] = _unfold(layers, x, held_by(source, *to), "norm0" in params[name])
    if decoders:
        variables = {"params": params, "batch_stats": stats}
        embeddings = jnp.concatenate(
            [mlp.embed(networks, variables, rows[n], n, frames, around_of(networks, rows, n)) for n in networks.names]
        )
        for name in decoders:
            layers = scaled(bundle, name, scales)
            x = mlp.with_frames(networks, name, embeddings, frames)
            target = name.split("/")[1]
            both = jnp.concatenate([held_by(source, target) for source in networks.names])
            params[name], stats[name] = _unfold(layers, x, both, "norm0" in params[name])
    started = dataclasses.replace(state, params=params, batch_stats=stats)
    return with_average(started, state.average is not None)


def check_fit(
    bundle: Bundle, networks: Networks, state: TrainState, *, frozen: bool = False, option: str = "--init"
) -> list[str]:
    """The networks that the bundle can start; those that stay `frozen` may have any hidden widths.

    Args:
        bundle, networks, state: as for `start_from_bundle`.
        frozen: whether what the bundle holds stays as it is.
        option: by which the model was given, for errors.

    Raises:
        ValueError: another kind of model, embedding width, hidden widths or descriptor spec; or nothing in common.
    """
    if bundle.kind != networks.kind:
        raise ValueError(f"{option}: the model is of kind {bundle.kind!r}, the configuration's of {networks.kind!r}")
    if (bundle.frame, bundle.harmonics) != (networks.frame, networks.harmonics):
        held, wanted = (f"{m.frame!r} with {m.harmonics} harmonics" for m in (bundle, networks))
        raise ValueError(f"{option}: the model's joint space is of frame {held}, the configuration's of {wanted}")
    shared = [name for name in networks.modules if name in bundle.networks]
    if not shared:
        raise ValueError(f"{option}: the model holds {sorted(bundle.specs)}, none of {list(networks.names)}")
    looks = [_looks(bundle.context), _looks(networks.context if networks.with_context else None)]
    matters = bool(networks.with_context) or any(map(bundle.takes_context, shared))
    if bundle.context is not None and matters and looks[0] != looks[1]:
        raise ValueError(f"{option}: the model's encoders look at {looks[0]}, the configuration's at {looks[1]}")
    for name in shared:
        if problem := _misfit(name, bundle, networks, state, frozen):
            raise ValueError(f"{option}: {problem}")
    return shared


def _looks(context: ContextConfig | None) -> str:
    """What encoders look at, in words."""
    if context is None:
        return "no neighbours"
    told = f"{context.nearest} nearest and {context.larger} larger neighbours"
    return f"{told} with {context.heads} heads of width {context.width}"


def _misfit(name: str, bundle: Bundle, networks: Networks, state: TrainState, frozen: bool) -> str | None:
    """How one of the model's networks differs from the one that it is to start; None where it does not."""
    for descriptor in name.split("/")[1:]:
        found, expected = bundle.specs[descriptor], networks.specs[descriptor]
        if found != expected:
            return f"the model's {descriptor!r} is {found}, the data's is {expected}"
    linears = sum(layer.startswith("linear") for layer in state.params[name])
    wanted = [state.params[name][f"linear{i}"]["kernel"].shape for i in range(linears)]
    held = [kernel.shape for kernel, _ in bundle.networks[name]]
    if _begins_to_look(name, networks, bundle):  # see `_looking`
        held[0] = (wanted[0][0], held[0][1])
    ends = [(shapes[0][0], shapes[-1][1]) for shapes in (held, wanted)]
    if ends[0] != ends[1] if frozen else held != wanted:
        return f"{name} has layers {held}, the configuration wants {wanted}"
    return None


def scaled(bundle: Bundle, name: str, scales: Mapping[str, float]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Layers of one of the model's networks for rows divided by the run's scales."""
    role, source, *target = name.split("/")
    layers = [(np.asarray(k), np.asarray(b)) for k, b in bundle.weights()[name]]
    for i in OF_ROWS.get(role, ()):
        kernel = layers[i][0].copy()
        kernel[: bundle.specs[source].width] *= np.float32(scales[source])  # behind them stand those of frames
        layers[i] = (kernel, layers[i][1])
    if role in ("decoder", "pair"):
        factor = np.float32(scales[target[0] if target else source])
        layers[-1] = (layers[-1][0] / factor, layers[-1][1] / factor)
    return layers


def _begins_to_look(name: str, networks: Networks, bundle: Bundle) -> bool:
    return networks.takes_context(name) and not bundle.takes_context(name)


def _looking(layers: list[tuple[np.ndarray, np.ndarray]], inputs: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Layers of an encoder that begins to look at neighbours: the same function, until training gives them weight."""
    kernel, bias = layers[0]
    return [(np.pad(kernel, ((0, inputs - len(kernel)), (0, 0))), bias), *layers[1:]]


def _unfold(
    layers: list[tuple[np.ndarray, np.ndarray]], x: jax.Array, held: jax.Array, norms: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and running statistics of one network, with norms or without, that computes the folded layers.

    The statistics are those of the rows of x [N, D] that are `held` [N], as in training: others lack a descriptor.
    """
    params: dict[str, Any] = {}
    stats: dict[str, Any] = {}
    for i, (kernel, bias) in enumerate(layers):
        params[f"linear{i}"] = {"kernel": jnp.asarray(kernel)}
        if i == len(layers) - 1 or not norms:
            params[f"linear{i}"]["bias"] = jnp.asarray(bias)
            x = jax.nn.relu(x @ kernel + bias)
            continue
        x = jnp.matmul(x, kernel, precision="highest")
        mean, var = masked_moments(x, held, None)
        params[f"norm{i}"] = {"scale": jnp.sqrt(var + BN_EPSILON), "offset": mean + bias}
        stats[f"norm{i}"] = {"mean": mean, "var": var}
        x = jax.nn.relu(x + bias)
    return params, stats
