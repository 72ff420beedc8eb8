"""Retrieval figures: what counts as found."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.train.rank1 import rank1


def test_rank1_counts_partners_that_are_nearest():
    database = jnp.eye(5)
    query = database.at[1].set(database[3])  # row 1 looks like row 3
    assert rank1(query, database) == pytest.approx(4 / 5)


def test_equal_rows_share_the_credit():
    database = jnp.array([[1.0, 0], [1, 0], [0, 1]])
    assert rank1(database, database) == pytest.approx((0.5 + 0.5 + 1) / 3)


def test_a_network_that_gives_one_answer_to_all_is_at_chance():
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(50, 4)), jnp.float32)
    unit = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    assert rank1(jnp.zeros_like(unit), unit) <= 1 / 50 + 1e-6
    assert rank1(jnp.ones_like(unit), jnp.ones_like(unit)) == pytest.approx(1 / 50)


def test_rows_that_take_no_part_are_neither_asked_for_nor_found():
    database = jnp.eye(5)
    query = database.at[1].set(database[3]).at[2].set(database[4])
    mask = jnp.array([True, True, True, True, False])
    # Rows 0 and 3 find theirs. Row 1 looks like row 3; row 2 like row 4, which is not there: four are equally far.
    assert rank1(query, database, mask) == pytest.approx((2 + 1 / 4) / 4)
    assert rank1(query, database, jnp.zeros(5, bool)) == 0


def test_rank1_does_not_depend_on_the_blocks():
    rng = np.random.default_rng(1)
    database = jnp.asarray(rng.normal(size=(1500, 6)), jnp.float32)
    query = database + 0.3 * jnp.asarray(rng.normal(size=(1500, 6)), jnp.float32)
    distance = np.linalg.norm(np.asarray(query)[:, None] - np.asarray(database)[None], axis=2)
    assert rank1(query, database) == pytest.approx(np.mean(distance.argmin(1) == np.arange(1500)), abs=2e-3)
