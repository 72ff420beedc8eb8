"""Rank-1 retrieval on the device: how often the nearest row is the right one.

In: aligned rows of a query and a database. Out: a share. Needs jax alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

BLOCK = 1024  # query rows compared at a time


def share_found_first(query: jax.Array, database: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Share of query rows whose nearest database row is their own partner; one of k rows as near counts 1 / k.

    Args:
        query: [N, D] float32.
        database: [N, D] float32; row n is the partner of query row n.
        mask: [N] bool, which rows take part on both sides; None: all.

    Returns:
        A float32, 0 where no row takes part; matrices of `BLOCK` rows are made one after another.
    """
    there = jnp.ones(len(query), bool) if mask is None else mask
    half_squares = jnp.where(there, 0.5 * jnp.sum(database * database, axis=1), jnp.inf)

    def hit(own: tuple[jax.Array, jax.Array]) -> jax.Array:
        row, partner = own
        closeness = jnp.matmul(database, row, precision="highest") - half_squares  # larger is nearer
        tolerance = 1e-6 * (1 + jnp.abs(closeness[partner]))  # the rounding of equal distances
        # Of k rows as near (the same BRIEF code twice, or a network that gives one answer to all) chance finds 1 / k.
        as_near = jnp.sum(closeness >= closeness[partner] - tolerance)
        return jnp.where(jnp.all(closeness <= closeness[partner] + tolerance), 1.0 / as_near, 0.0)

    count = len(query)
    hits = lax.map(hit, (query, jnp.arange(count)), batch_size=min(BLOCK, count))
    return jnp.sum(jnp.where(there, hits, 0.0)) / jnp.maximum(jnp.sum(there), 1)


rank1 = jax.jit(share_found_first)
