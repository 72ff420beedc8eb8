"""Rank-1 retrieval on the device: how often the nearest row is the right one.

In: aligned rows of a query and a database. Out: a share. Needs jax alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

BLOCK = 1024  # query rows compared at a time


@jax.jit
def _hits(query: jax.Array, own: jax.Array, database: jax.Array) -> jax.Array:
    product = jnp.matmul(query, database.T, precision="highest")
    closeness = product - 0.5 * jnp.sum(database * database, axis=1)  # larger is nearer
    partner = jnp.take_along_axis(closeness, own[:, None], axis=1)
    tolerance = 1e-6 * (1 + jnp.abs(partner))  # the rounding of equal distances
    nearest = jnp.all(closeness <= partner + tolerance, axis=1)
    # Of k rows as near (the same BRIEF code twice, or a network that gives one answer to all) chance finds 1 / k.
    as_near = jnp.sum(closeness >= partner - tolerance, axis=1)
    return jnp.sum(jnp.where(nearest, 1.0 / as_near, 0.0))


def rank1(query: jax.Array, database: jax.Array) -> float:
    """Share of query rows whose nearest database row is their own partner; one of k rows as near counts 1 / k.

    Args:
        query: [N, D] float32.
        database: [N, D] float32; row n is the partner of query row n.
    """
    own = jnp.arange(len(query))
    parts = [_hits(query[i : i + BLOCK], own[i : i + BLOCK], database) for i in range(0, len(query), BLOCK)]
    return float(sum(parts)) / len(query)
