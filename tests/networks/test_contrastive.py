"""The contrastive loss against its definition, row by row, and on several devices."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.descriptors import unit_rows
from xdesc_jax.networks.contrastive import contrastive_loss
from xdesc_jax.networks.losses import Rows

TEMPERATURE = 0.3
PAIRS = np.array([[0, 1], [1, 2], [2, 2]])


def make(n=12, padding=3, unit=True, seed=0):
    """Three descriptors of n rows, the last ones padding; 1 and 4 are equal in the first, 2 and 5 show one point."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, n, 5)).astype(np.float32)
    x = np.stack([unit_rows(rows) for rows in x]) if unit else x
    ids = np.arange(3 * n, dtype=np.uint32).reshape(3, n)
    ids[0, 4] = ids[0, 1]
    points = np.arange(n, dtype=np.int32)
    points[5] = points[2]
    return Rows(*map(jnp.asarray, (x, ids, np.arange(n) < n - padding, points)))


def by_definition(rows, pairs, symmetric=True, unit=True):
    x, ids, mask, points = (np.asarray(a) for a in rows)
    x = x.astype(np.float64)

    def similarity(a, b):
        return a @ b if unit else -((a - b) ** 2).sum() / 2

    total = count = 0
    for i, j in pairs:
        for a, b in {(i, j), (j, i)} if symmetric else {(i, j)}:
            for p in np.flatnonzero(mask):
                negatives = [
                    q for q in np.flatnonzero(mask)
                    if ids[a, q] != ids[a, p] and ids[b, q] != ids[b, p] and points[q] != points[p]
                ]  # fmt: skip
                if negatives:
                    positive = np.exp(similarity(x[a, p], x[b, p]) / TEMPERATURE)
                    others = sum(np.exp(similarity(x[a, p], x[b, q]) / TEMPERATURE) for q in negatives)
                    total += -np.log(positive / (positive + others))
                    count += 1
    return total, count


@pytest.mark.parametrize("unit", [True, False], ids=["unit", "plain"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_sum_is_that_of_the_definition(symmetric, unit):
    rows = make(unit=unit)
    found = contrastive_loss(rows, jnp.asarray(PAIRS), TEMPERATURE, symmetric=symmetric, unit_length=unit)
    np.testing.assert_allclose(found, by_definition(rows, PAIRS, symmetric, unit), rtol=1e-5)


def test_pairs_that_are_not_used_count_nothing():
    rows = make()
    found = contrastive_loss(rows, jnp.asarray(PAIRS), TEMPERATURE, use=jnp.array([True, False, True]))
    np.testing.assert_allclose(found, by_definition(rows, PAIRS[[0, 2]]), rtol=1e-5)


def test_devices_share_the_batch():
    """Sums and gradients of four devices of three rows are those of one."""
    rows = make()

    def total(x, rest, axis_name):
        return contrastive_loss(Rows(x, *rest), jnp.asarray(PAIRS), TEMPERATURE, axis_name=axis_name).total

    x, rest = rows.embeddings, tuple(rows[1:])
    expected = jax.value_and_grad(partial(total, axis_name=None))(x, rest)
    parts = x.reshape(3, 4, 3, 5).swapaxes(0, 1), (
        rows.ids.reshape(3, 4, 3).swapaxes(0, 1), rows.mask.reshape(4, 3), rows.points.reshape(4, 3),
    )  # fmt: skip
    value, gradient = jax.pmap(jax.value_and_grad(partial(total, axis_name="d")), axis_name="d")(*parts)
    np.testing.assert_allclose(value.sum(), expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient.swapaxes(0, 1).reshape(3, 12, 5), expected[1], atol=1e-5)


def test_a_row_without_negatives_counts_nothing_and_has_no_gradient():
    rows = make(padding=11)
    found = contrastive_loss(rows, jnp.asarray(PAIRS), TEMPERATURE)
    assert (float(found.total), float(found.count)) == (0, 0)
    gradient = jax.grad(lambda x: contrastive_loss(rows._replace(embeddings=x), jnp.asarray(PAIRS), TEMPERATURE).total)
    np.testing.assert_array_equal(gradient(rows.embeddings), 0)
