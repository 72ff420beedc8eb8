"""Kernels as int8: by hand, and the same however often they are converted."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.translation.int8 import from_int8, to_int8


def test_a_hand_made_kernel():
    kernel = np.array([[127.0, -1.0, 0.0], [-64.4, 2.0, 0.0], [0.6, 0.49, 0.0]], np.float32)
    q, scale = to_int8(kernel)
    assert q.dtype == np.int8 and scale.dtype == np.float32
    np.testing.assert_array_equal(
        q, [[127, -63, 0], [-64, 127, 0], [1, 31, 0]]
    )  # second: 31.1, and 63.5 before rounding up
    np.testing.assert_allclose(scale, [1, 2 / 127, 1], rtol=2**-15)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("gain", [1.0, 1e-4, 1e-20, 1e20])
def test_what_int8_stands_for_gives_the_same_int8_again(gain, rng):
    kernel = (gain * rng.normal(size=(37, 211)) * rng.lognormal(size=211)).astype(np.float32)
    q, scale = to_int8(kernel)
    again = to_int8(from_int8(q, scale))
    np.testing.assert_array_equal(again[0], q)
    np.testing.assert_array_equal(again[1], scale)
    assert (np.abs(q).max(axis=0) == 127).all()


def test_values_are_off_by_half_a_step_at_most(rng):
    kernel = rng.normal(size=(50, 13)).astype(np.float32)
    q, scale = to_int8(kernel)
    assert (np.abs(from_int8(q, scale) - kernel) <= scale * 0.5000001).all()


def test_columns_too_small_for_a_scale_become_zeros():
    kernel = np.array([[1e-38, 1e-44, 0.0], [-2e-38, 0.0, 1.0]], np.float32)
    np.testing.assert_allclose(from_int8(*to_int8(kernel)), [[0, 0, 0], [0, 0, 1]], rtol=2**-15)
