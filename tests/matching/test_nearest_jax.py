"""The same matches from JAX as from numpy."""

import numpy as np
import pytest

from xdesc_jax.descriptors import unit_rows
from xdesc_jax.matching import nearest, nearest_jax
from xdesc_jax.matching.operands import operands


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(nearest_jax, "BLOCK", 64)
    monkeypatch.setattr(nearest_jax, "SMALLEST", 16)


def same(a, b, **options):
    found, expected = nearest_jax.match(a, b, **options), nearest.match(a, b, **options)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.skipped == expected.skipped and found.indices.dtype == np.int32
    return found


def related(rng, n, m, width=17):
    base = rng.normal(size=(max(n, m), width))
    return tuple(unit_rows(base[rng.permutation(len(base))[:k]] + 0.2 * rng.normal(size=(k, width))) for k in (n, m))


@pytest.mark.parametrize("ratio", [None, 0.9])
def test_real_rows_match_as_with_numpy(rng, small_blocks, ratio):
    a, b = related(rng, 301, 203)
    assert len(same(a, b, ratio=ratio).indices) > 50


def test_packed_bits_match_as_with_numpy(rng, small_blocks):
    a, b = (rng.integers(0, 4, (n, 3), dtype=np.uint8) for n in (301, 203))
    assert len(same(a, b, binary=True, ratio=0.95).indices) > 0


def test_neighbours_are_the_nearest_but_for_near_ties(rng, small_blocks):
    a, b = related(rng, 150, 131)
    distance = np.linalg.norm(a[:, None].astype(float) - b, axis=2)
    best = nearest_jax.search(*operands(a, b, False), True)
    for of, d in zip(best, (distance, distance.T), strict=True):
        found = np.take_along_axis(d, of.index.T, axis=1)
        np.testing.assert_allclose(found, np.sort(d, axis=1)[:, :2], atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("m", [0, 1, 2])
def test_none_one_and_two_rows(rng, n, m):
    same(unit_rows(rng.normal(size=(n, 8))), unit_rows(rng.normal(size=(m, 8))), ratio=0.9)


def test_every_row_matches_its_duplicate(rng):
    a = unit_rows(rng.normal(size=(2000, 128)))
    assert same(a, a, ratio=0.9).indices.tolist() == [[i, i] for i in range(2000)]


def test_zero_and_non_finite_rows_never_match_and_are_counted(rng, small_blocks):
    a, b = related(rng, 70, 70)
    a[[3, 69]], b[5], b[6, 2] = 0, np.nan, np.inf
    found = same(a, b)
    assert found.skipped == (2, 2) and not set(found.indices[:, 0]) & {3, 69}


def test_sets_of_zero_rows_give_no_match():
    assert len(same(np.zeros((5, 8), np.float32), np.zeros((7, 8), np.float32)).indices) == 0
