"""Batch norm and ReLU over the rows of all devices, with a gradient written out by hand.

In: rows [B, D] of one device, and which of them count. Out: normalised rows with negative ones cut, and the moments of
the rows of all devices. What lies between products is bound by memory: the gradient here passes over the rows less
than half as often as the one that automatic differentiation finds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from xdesc_jax.networks.folding import BN_EPSILON

BN_MOMENTUM = 0.9  # PyTorch's momentum 0.1


class SyncBatchNormRelu(nn.Module):
    """Batch norm over the rows where `mask` is set, of all devices on `axis_name`, then ReLU.

    The statistics are psums of (sum, count), then of squared deviations: exact for shards of unequal or
    zero row count, where an average of the devices' means (flax's BatchNorm) is not, and free of the
    cancellation in E[x^2] - E[x]^2.
    """

    axis_name: str | None = None

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None, train: bool) -> jax.Array:
        width = (x.shape[-1],)
        scale = self.param("scale", nn.initializers.ones, width)
        offset = self.param("offset", nn.initializers.zeros, width)
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, width)
        running_var = self.variable("batch_stats", "var", jnp.ones, width)
        if not train:
            mean, var = running_mean.value, running_var.value
            return nn.relu((x - mean) * (lax.rsqrt(var + BN_EPSILON) * scale) + offset)
        weight = _weight(x, mask)
        y, mean, var = normalized_relu(x, scale, offset, weight, self.axis_name)
        if not self.is_initializing():
            # A batch in which no row counts, as where none has the descriptor, tells nothing.
            momentum = jnp.where(_total(self.axis_name)(jnp.sum(weight)) > 0, BN_MOMENTUM, 1.0)
            running_mean.value = momentum * running_mean.value + (1 - momentum) * mean
            running_var.value = momentum * running_var.value + (1 - momentum) * var
        return y


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def normalized_relu(
    x: jax.Array, scale: jax.Array, offset: jax.Array, weight: jax.Array, axis_name: str | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Batch norm by the moments of the batch, then ReLU (Ioffe and Szegedy, ICML 2015).

    Args:
        x: [B, D] float32, this device's rows.
        scale, offset: [D].
        weight: [B], 1 for rows that count and 0 for the others; no gradient reaches it.
        axis_name: the mapped axis over which the batch is spread, if any.

    Returns:
        max((x - mean) / sqrt(var + eps) * scale + offset, 0) [B, D], and mean and biased variance [D] of the rows that
        count, of all devices, through which no gradient flows.
    """
    return _forward(x, scale, offset, weight, axis_name)[0]


def _forward(
    x: jax.Array, scale: jax.Array, offset: jax.Array, weight: jax.Array, axis_name: str | None
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], Any]:
    mean, var, count = _moments(x, weight, axis_name)
    inverse = lax.rsqrt(var + BN_EPSILON)
    y = nn.relu((x - mean) * (inverse * scale) + offset)
    return (y, mean, var), (x, y, mean, inverse, scale, weight, count)


def _backward(axis_name: str | None, saved: Any, cotangents: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Any, ...]:
    """With g the gradient at the batch norm's output, n the normalised rows and w their weights, N their number:
    dx = scale / sqrt(var + eps) * (g - w / N * (sum g + n * sum g n)), the sums over all devices."""
    x, y, mean, inverse, scale, weight, count = saved
    total = _total(axis_name)
    g = jnp.where(y > 0, cotangents[0], 0.0)
    of_offset = jnp.sum(g, axis=0)
    of_scale = jnp.sum(g * (x - mean), axis=0) * inverse
    factor = inverse * scale
    along, apart = (factor * total(s) / count for s in (of_offset, of_scale))
    of_x = factor * g - weight[:, None] * (along + (x - mean) * (inverse * apart))
    return of_x, of_scale, of_offset, None


normalized_relu.defvjp(_forward, _backward)


def masked_moments(x: jax.Array, mask: jax.Array | None, axis_name: str | None) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance [D] of the rows of x [B, D] where mask [B] is set, over all devices."""
    return _moments(x, _weight(x, mask), axis_name)[:2]


def _moments(x: jax.Array, weight: jax.Array, axis_name: str | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mean, variance and number of the rows that count."""
    total = _total(axis_name)
    count = jnp.maximum(total(jnp.sum(weight)), 1.0)
    mean = total(jnp.sum(x * weight[:, None], axis=0)) / count
    var = total(jnp.sum(jnp.square(x - mean) * weight[:, None], axis=0)) / count
    return mean, var, count


def _weight(x: jax.Array, mask: jax.Array | None) -> jax.Array:
    return jnp.ones(len(x), x.dtype) if mask is None else mask.astype(x.dtype)


def _total(axis_name: str | None) -> Any:
    return partial(lax.psum, axis_name=axis_name) if axis_name else lambda v: v
