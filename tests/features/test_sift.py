import math

import jax
import numpy as np
import pytest

from tests.support.descriptor_reference import fixture, fixture_patches, golden, needs_shared
from xdesc_jax.features import sift

describe = jax.jit(sift.describe)
describe_kornia05 = jax.jit(sift.describe_kornia05)
VARIANTS = {"sift": (describe, 2), "sift_kornia05": (describe_kornia05, 3)}


def loop_sift(patch, padding):
    """Pixel by pixel, in float64."""
    at = lambda y, x: float(patch[min(max(y, 0), 31), min(max(x, 0), 31)])  # noqa: E731
    gauss = np.exp(-((np.arange(32) - 15.5) ** 2) / (2 * 32**2 / 2))
    gauss /= gauss.sum()
    bins = np.zeros((8, 4, 4))
    for y in range(32):
        for x in range(32):
            dx, dy = (at(y, x + 1) - at(y, x - 1)) / 2, (at(y + 1, x) - at(y - 1, x)) / 2
            if padding == 2 and dx == dy == 0:
                continue
            weight = math.sqrt(dx * dx + dy * dy + 1e-10) * gauss[y] * gauss[x]
            position = 8 * (math.atan2(dy, dx + 1e-10) % (2 * math.pi)) / (2 * math.pi)
            for cy in range(4):
                for cx in range(4):
                    centre_y, centre_x = 8 * cy - padding + 5.5, 8 * cx - padding + 5.5
                    share = max(0, 1 - abs(y - centre_y) / 6) * max(0, 1 - abs(x - centre_x) / 6)
                    low = int(position)
                    bins[low % 8, cy, cx] += weight * share * (1 - (position - low))
                    bins[(low + 1) % 8, cy, cx] += weight * share * (position - low)
    row = bins.ravel() / np.linalg.norm(bins)
    row = np.minimum(row, 0.2)
    return row / np.linalg.norm(row)


@pytest.mark.parametrize("name", VARIANTS)
def test_golden_rows(name):
    rows = VARIANTS[name][0](golden("patches"))
    np.testing.assert_allclose(rows, golden(name), rtol=0, atol=2e-6)


@needs_shared
@pytest.mark.parametrize(("name", "key"), [("sift", "sift09_out"), ("sift_kornia05", "sift2021_out")])
def test_equals_the_reference(name, key):
    rows = VARIANTS[name][0](fixture_patches())
    np.testing.assert_allclose(rows, fixture(key), rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_a_loop_over_pixels(name):
    patch = np.random.default_rng(5).random((32, 32)).astype(np.float32)
    function, padding = VARIANTS[name]
    np.testing.assert_allclose(function(patch[None])[0], loop_sift(patch, padding), rtol=0, atol=1e-6)


def test_layout_is_direction_then_row_then_column():
    patch = np.zeros((1, 32, 32), np.float32)
    patch[0, 22:] = 1  # gradients in pixel rows 21 and 22, downwards; cell rows 2 and 3 reach them
    bins = np.array(describe(patch)).reshape(8, 4, 4)
    assert (bins[2, 2:] > 0.05).all()
    bins[2, 2:] = 0
    np.testing.assert_allclose(bins, 0, atol=1e-6)


def test_a_flat_patch_gives_zeros_in_the_centred_variant():
    assert not np.asarray(describe(np.full((2, 32, 32), 0.3, np.float32))).any()


def test_a_flat_patch_gives_the_fixed_row_of_2021():
    rows = np.asarray(describe_kornia05(np.array([0, 0.3, 1], np.float32)[:, None, None] * np.ones((1, 32, 32))))
    np.testing.assert_allclose(rows, np.tile(golden("sift_kornia05")[6], (3, 1)), rtol=0, atol=2e-6)
    assert not rows[:, 16:].any()


def test_rows_are_unit_and_half_turns_move_bins():
    patch = np.random.default_rng(6).random((1, 32, 32)).astype(np.float32)
    row = np.asarray(describe(patch))[0]
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-6)
    turned = np.asarray(describe(np.rot90(patch, 2, axes=(1, 2))))[0].reshape(8, 4, 4)
    expected = np.roll(row.reshape(8, 4, 4)[:, ::-1, ::-1], 4, axis=0)
    np.testing.assert_allclose(turned, expected, rtol=0, atol=1e-6)
