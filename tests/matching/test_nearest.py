"""Exact nearest neighbours and mutual matches against plain loops."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from xdesc_jax.descriptors import pack_bits, unit_rows
from xdesc_jax.matching import nearest, operands
from xdesc_jax.matching.nearest import match, metric_ratio, nearest2


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_unit(rng, n, width=128):
    return unit_rows(rng.normal(size=(n, width)))


def loop_nearest(a, b, binary=False):
    """Nearest two by a loop over rows in float64."""
    index, first, second = [], [], []
    for row in a:
        if binary:
            d = np.unpackbits(row ^ b, axis=1).sum(axis=1).astype(float)
        else:
            d = np.sqrt(((row.astype(np.float64) - b) ** 2).sum(axis=1))
        order = np.argsort(d, kind="stable")
        index.append(order[0])
        first.append(d[order[0]])
        second.append(d[order[1]])
    return np.array(index), np.array(first), np.array(second)


def small_blocks(monkeypatch):
    monkeypatch.setattr(nearest, "BLOCK", 37)
    monkeypatch.setattr(nearest, "CHUNK", 5)
    monkeypatch.setattr(operands, "PAIRS", 11)


def test_nearest_two_of_unit_rows_equal_a_loop(rng):
    a, b = random_unit(rng, 101), random_unit(rng, 67)
    found, (index, first, second) = nearest2(a, b), loop_nearest(a, b)
    np.testing.assert_array_equal(found.index, index)
    np.testing.assert_allclose(found.distance, first, rtol=1e-6)
    np.testing.assert_allclose(found.second, second, rtol=1e-6)
    assert (found.index.dtype, found.distance.dtype, found.second.dtype) == (np.int32, np.float32, np.float32)


def test_nearest_two_of_packed_bits_equal_a_loop(rng):
    a, b = (rng.integers(0, 256, (n, 5), dtype=np.uint8) for n in (101, 67))
    found, (index, first, second) = nearest2(a, b, binary=True), loop_nearest(a, b, binary=True)
    np.testing.assert_array_equal(found.index, index)
    np.testing.assert_array_equal(found.distance, first)
    np.testing.assert_array_equal(found.second, second)


@pytest.mark.parametrize("width", [64, 256])
def test_hamming_counts_are_exact_where_two_rows_share_a_product_and_where_not(rng, width):
    a, b = (rng.integers(0, 256, (n, width), dtype=np.uint8) for n in (40, 33))
    rows_a, rows_b = operands.BinaryRows(a), operands.BinaryRows(b)
    out = np.empty((40, 33), np.float32)
    rows_b.product(rows_a.operand(slice(0, 40)), slice(0, 33), out)
    hamming = np.unpackbits(a[:, None] ^ b, axis=2).sum(axis=2)
    np.testing.assert_array_equal((8 * width - out) / 2, hamming)


def test_memory_is_that_of_a_block_not_of_the_product(rng):
    a, b = random_unit(rng, 6000, 8), random_unit(rng, 6000, 8)
    tracemalloc.start()
    match(a, b)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6000 * 6000 * 4 / 3


def test_both_directions_in_one_pass_equal_two_searches(rng):
    a, b = random_unit(rng, 83, 16), random_unit(rng, 61, 16)
    for found, expected in zip(nearest.nearest2_both(a, b), (nearest2(a, b), nearest2(b, a)), strict=True):
        for field in ("index", "distance", "second"):
            np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))


@pytest.mark.parametrize("binary", [False, True])
def test_blocks_do_not_change_the_result(rng, monkeypatch, binary):
    if binary:
        a, b = (rng.integers(0, 4, (n, 3), dtype=np.uint8) for n in (301, 203))
    else:
        a, b = random_unit(rng, 301, 16), random_unit(rng, 203, 16)
        b[50] = b[7] = a[3]
    whole, near = match(a, b, binary=binary, ratio=0.95), nearest2(a, b, binary=binary)
    small_blocks(monkeypatch)
    blocked, near_blocked = match(a, b, binary=binary, ratio=0.95), nearest2(a, b, binary=binary)
    np.testing.assert_array_equal(whole.indices, blocked.indices)
    np.testing.assert_array_equal(near.index, near_blocked.index)
    np.testing.assert_array_equal(near.distance, near_blocked.distance)
    np.testing.assert_array_equal(near.second, near_blocked.second)


def test_matches_are_mutual_and_ascending(rng):
    a, b = random_unit(rng, 203, 8), random_unit(rng, 151, 8)
    forward, backward = loop_nearest(a, b)[0], loop_nearest(b, a)[0]
    expected = [(i, j) for i, j in enumerate(forward) if backward[j] == i]
    found = match(a, b)
    assert found.indices.tolist() == [list(pair) for pair in expected]
    assert found.indices.dtype == np.int32


def test_ratio_test_holds_in_both_directions(rng):
    a, b = random_unit(rng, 203, 8), random_unit(rng, 151, 8)
    (forward, d1, d2), (backward, e1, e2) = loop_nearest(a, b), loop_nearest(b, a)
    expected = [
        [i, j] for i, j in enumerate(forward) if backward[j] == i and d1[i] <= 0.8 * d2[i] and e1[j] <= 0.8 * e2[j]
    ]
    assert 0 < len(expected) < len(match(a, b).indices)
    assert match(a, b, ratio=0.8).indices.tolist() == expected


def test_swapping_the_sets_swaps_the_matches(rng):
    a, b = random_unit(rng, 83, 16), random_unit(rng, 61, 16)
    forward, backward = match(a, b, ratio=0.95).indices, match(b, a, ratio=0.95).indices
    assert sorted(map(tuple, forward)) == sorted((j, i) for i, j in backward)


def test_every_row_matches_its_duplicate():
    d = unit_rows(np.random.default_rng(1).standard_normal((2000, 128)).astype(np.float32))
    found = match(d, d, ratio=0.9)
    np.testing.assert_array_equal(found.indices, np.arange(2000)[:, None].repeat(2, axis=1))
    np.testing.assert_array_equal(found.scores, 1)


@pytest.mark.parametrize("blocks", ["one block", "several"])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_duplicates_win_over_rows_that_differ_by_less_than_a_product_resolves(rng, monkeypatch, offset, blocks):
    if blocks == "several":
        small_blocks(monkeypatch)
    base = (rng.normal(size=(40, 64)) + offset).astype(np.float32)
    near = np.repeat(base, 5, axis=0)
    near[:, 0] += np.tile(np.arange(5, dtype=np.float32), 40) * max(1e-4, offset * 1e-6)
    found = match(near, near)
    np.testing.assert_array_equal(found.indices[:, 0], np.arange(200))
    np.testing.assert_array_equal(found.indices[:, 0], found.indices[:, 1])
    np.testing.assert_array_equal(nearest2(near, near).distance, 0)


def test_distances_of_long_rows_do_not_cancel(rng):
    a = (9 * random_unit(rng, 50, 128)).astype(np.float32)
    b = a + np.float32(1e-3) * random_unit(rng, 50, 128)
    np.testing.assert_allclose(nearest2(a, b).distance, 1e-3, rtol=1e-3)


def test_equal_rows_in_one_set_go_to_the_lower_index(rng):
    row = random_unit(rng, 1, 16)
    found = match(row, np.concatenate([random_unit(rng, 3, 16), row, row]), ratio=0.5)
    assert found.indices.tolist() == [[0, 3]]


def test_constant_rows_match_once():
    found = match(np.ones((4, 8), np.float32), np.ones((3, 8), np.float32))
    assert found.indices.tolist() == [[0, 0]]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("n, m", list(itertools.product(range(3), range(3))))
def test_none_one_and_two_rows(rng, n, m, binary):
    rows = [rng.integers(1, 256, (k, 16), dtype=np.uint8) if binary else random_unit(rng, k) for k in (n, m)]
    found = match(*rows, binary=binary, ratio=1.0)
    assert found.indices.shape == (len(found.indices), 2) and found.indices.dtype == np.int32
    assert found.scores.shape == (len(found.indices),) and found.scores.dtype == np.float32
    assert (len(found.indices) > 0) == (min(n, m) > 0)
    near = nearest2(*rows, binary=binary)
    assert near.index.shape == near.distance.shape == near.second.shape == (n,)
    assert (near.index >= 0).all() == (m > 0 or n == 0)
    assert np.isinf(near.second).all() == (m < 2 or n == 0)


def test_a_single_candidate_passes_any_ratio_test(rng):
    assert match(random_unit(rng, 1), random_unit(rng, 1), ratio=0.1).indices.tolist() == [[0, 0]]


def test_zero_and_non_finite_rows_never_match_and_are_counted(rng):
    a = random_unit(rng, 7)
    b = a.copy()
    a[1], a[2, 5], a[3, 0] = 0, np.nan, np.inf
    b[4] = 0
    found = match(a, b)
    assert found.indices.tolist() == [[0, 0], [5, 5], [6, 6]]
    assert found.skipped == (3, 1)
    assert nearest2(a, b).index[[1, 2, 3]].tolist() == [-1, -1, -1]


def test_zero_bit_rows_never_match(rng):
    a = rng.integers(1, 256, (4, 8), dtype=np.uint8)
    a[2] = 0
    found = match(a, a, binary=True)
    assert found.indices.tolist() == [[0, 0], [1, 1], [3, 3]]
    assert found.skipped == (1, 1)


def test_sets_of_zero_rows_alone_give_no_match():
    found = match(np.zeros((3, 8), np.float32), np.zeros((2, 8), np.float32))
    assert found.indices.shape == (0, 2) and found.skipped == (3, 2)


def test_scores_are_cosines_of_unit_rows_and_shares_of_equal_bits():
    a = np.array([[1, 0]], np.float32)
    b = np.array([[0.6, 0.8]], np.float32)
    np.testing.assert_allclose(match(a, b).scores, [(1 + 0.6) / 2], rtol=1e-6)
    x, y = np.array([[0b1111_0000]], np.uint8), np.array([[0b1111_0011]], np.uint8)
    assert match(x, y, binary=True).scores.tolist() == [0.75]
    wide = [np.concatenate([row, np.full((1, 2), 0b1010_0101, np.uint8)], axis=1) for row in (x, y)]
    np.testing.assert_allclose(match(*wide, binary=True).scores, [22 / 24], rtol=1e-6)


def test_ratio_of_hamming_counts_is_the_root(rng):
    bits = rng.random((2, 200)) < 0.5
    a = bits[:1]
    b = np.repeat(a, 2, axis=0)
    b[0, :81] ^= True
    b[1, :100] ^= True
    assert match(pack_bits(a), pack_bits(b), binary=True, ratio=0.9).indices.tolist() == [[0, 0]]
    b[0, 81] ^= True
    assert match(pack_bits(a), pack_bits(b), binary=True, ratio=0.9).indices.tolist() == []
    real = nearest2(a.astype(np.float32), b.astype(np.float32))
    packed = nearest2(pack_bits(a), pack_bits(b), binary=True)
    np.testing.assert_allclose(
        metric_ratio(real.distance, real.second),
        metric_ratio(packed.distance, packed.second, True),
        rtol=1e-6,
    )


def test_ratio_of_equal_rows_lone_candidates_and_none():
    inf = np.inf
    ratio = metric_ratio(np.array([0, 0, 2, 2, inf]), np.array([0, 1, inf, 4, inf]))
    assert ratio.tolist() == [0, 0, 0, 0.5, inf]


def test_hamming_does_not_wrap_around():
    assert nearest2(np.array([[1]], np.uint8), np.array([[2]], np.uint8), binary=True).distance.tolist() == [2]


@pytest.mark.parametrize(
    "a, b, binary, message",
    [
        (np.ones((2, 8), np.uint8), np.ones((2, 8), np.uint8), False, "uint8.*expected floats"),
        (np.ones((2, 8), bool), np.ones((2, 8), bool), True, "bool.*expected packed bits"),
        (np.ones((2, 8), np.float32), np.ones((2, 9), np.float32), False, "widths 8 and 9"),
        (np.ones(8, np.float32), np.ones((2, 8), np.float32), False, r"\[8\], expected floats"),
    ],
)
def test_rows_that_do_not_fit_are_refused(a, b, binary, message):
    with pytest.raises(ValueError, match=message):
        match(a, b, binary=binary)


@pytest.mark.parametrize("ratio", [0.0, 1.1, float("nan")])
def test_a_ratio_outside_its_range_is_refused(ratio):
    with pytest.raises(ValueError, match="ratio is"):
        match(np.ones((2, 8), np.float32), np.ones((2, 8), np.float32), ratio=ratio)
