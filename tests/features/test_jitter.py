import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.features.jitter import NO_JITTER, JitterSettings, jitter, relight, warp

KEY = jax.random.key(0)
jitted_warp = jax.jit(warp)


@pytest.fixture(scope="module")
def patches():
    return np.random.default_rng(0).random((5, 32, 32)).astype(np.float32)


def warp_all(patches, angle_deg=0.0, scale=1.0, shift=(0.0, 0.0)):
    n = len(patches)
    angle = jnp.full(n, np.deg2rad(angle_deg), jnp.float32)
    return np.asarray(jitted_warp(patches, angle, jnp.full(n, scale), jnp.tile(jnp.array([shift]), (n, 1))))


def only(**settings):
    return dataclasses.replace(NO_JITTER, **settings)


def test_no_jitter_changes_nothing(patches):
    patches = np.concatenate([patches, np.zeros((1, 32, 32), np.float32), np.ones((1, 32, 32), np.float32)])
    np.testing.assert_allclose(jitter(KEY, patches, NO_JITTER), patches, rtol=0, atol=1e-6)


def test_turning_by_90_degrees_is_clockwise_as_displayed(patches):
    np.testing.assert_allclose(warp_all(patches, 90), np.rot90(patches, -1, axes=(1, 2)), atol=1e-5)


def test_a_shift_moves_content_right_and_down(patches):
    moved = warp_all(patches, shift=(3.0, 2.0))
    np.testing.assert_allclose(moved[:, 2:, 3:], patches[:, :-2, :-3], atol=1e-6)
    np.testing.assert_allclose(moved[:, :3, :4], np.broadcast_to(patches[:, :1, :1], (5, 3, 4)), atol=1e-6)


def test_half_a_pixel_of_shift_averages_neighbours(patches):
    moved = warp_all(patches, shift=(0.5, 0.0))
    np.testing.assert_allclose(moved[:, :, 1:], (patches[:, :, 1:] + patches[:, :, :-1]) / 2, atol=1e-6)


def test_a_scale_above_one_enlarges():
    ramp = np.tile(np.arange(32, dtype=np.float32) / 31, (1, 32, 1))
    np.testing.assert_allclose(warp_all(ramp, scale=2.0), 0.5 + (ramp - 0.5) / 2, atol=1e-6)


def test_scale_comes_before_shift():
    ramp = np.tile(np.arange(32, dtype=np.float32), (1, 32, 1))
    moved = warp_all(ramp, scale=2.0, shift=(1.0, 0.0))
    np.testing.assert_allclose(moved[0, 0, 10:20], 15.5 + (np.arange(10, 20) - 1 - 15.5) / 2, atol=1e-5)


def test_flat_areas_stay_exactly_flat():
    flat = np.full((4, 32, 32), 0.3, np.float32)
    turned = np.asarray(jitter(KEY, flat, JitterSettings(noise=0)))
    assert (turned == turned[:, :1, :1]).all()


def test_relighting_follows_its_formula(patches):
    gamma, contrast, brightness = (
        np.linspace(a, b, 5, dtype=np.float32) for a, b in ((0.8, 1.3), (0.5, 2), (-0.2, 0.1))
    )
    found = relight(patches, gamma, contrast, brightness)
    for i, p in enumerate(patches):
        q = p ** gamma[i]
        np.testing.assert_allclose(
            found[i], contrast[i] * (q - q.mean()) + q.mean() + brightness[i], atol=1e-6
        )


def test_each_patch_draws_its_own_change():
    same = np.tile(np.random.default_rng(1).random((1, 32, 32)).astype(np.float32), (4, 1, 1))
    changed = np.asarray(jitter(KEY, same, JitterSettings()))
    assert np.abs(changed[1:] - changed[:1]).max(axis=(1, 2)).min() > 0.01


def test_changes_depend_on_the_key_alone(patches):
    first, again, other = (jitter(jax.random.key(k), patches, JitterSettings()) for k in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_values_stay_in_range_and_finite(patches):
    strong = JitterSettings(180, 1.0, 16, 2.0, 0.5, 2.0, 0.3)
    changed = np.asarray(jitter(KEY, np.round(patches), strong))
    assert changed.shape == patches.shape and changed.dtype == np.float32
    assert np.isfinite(changed).all() and changed.min() >= 0 and changed.max() <= 1


def test_noise_has_the_deviation_asked_for():
    gray = np.full((40, 32, 32), 0.5, np.float32)
    noise = np.asarray(jitter(KEY, gray, only(noise=0.05))) - 0.5
    assert noise.std() == pytest.approx(0.05, rel=0.02)


def test_brightness_covers_its_range():
    gray = np.full((400, 32, 32), 0.5, np.float32)
    change = np.asarray(jitter(KEY, gray, only(brightness=0.2)))[:, 0, 0] - 0.5
    assert -0.2001 <= change.min() < -0.19 and 0.19 < change.max() <= 0.2001


def test_contrast_is_a_factor_in_either_direction():
    half = np.zeros((400, 32, 32), np.float32) + 0.4
    half[:, 16:] = 0.6
    changed = np.asarray(jitter(KEY, half, only(contrast=0.5)))
    factors = (changed[:, -1, 0] - changed[:, 0, 0]) / 0.2
    assert factors.min() == pytest.approx(1 / 1.5, abs=0.01) and factors.max() == pytest.approx(1.5, abs=0.01)


def test_a_negative_range_is_refused():
    with pytest.raises(ValueError, match="jitter shift_px is -1, expected 0 or more"):
        JitterSettings(shift_px=-1)
