import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.features.jitter import JitterSettings, jitter, relight, warp


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


jitted_warp = jax.jit(warp)


@pytest.fixture(scope="module")
def patches():
    return np.random.default_rng(0).random((5, 32, 32)).astype(np.float32)


def warp_all(patches, angle_deg=0.0, scale=1.0, shift=(0.0, 0.0)):
    n = len(patches)
    angle = jnp.full(n, np.deg2rad(angle_deg), jnp.float32)
    return np.asarray(jitted_warp(patches, angle, jnp.full(n, scale), jnp.tile(jnp.array([shift]), (n, 1))))


ALL = JitterSettings(5.0, 0.1, 1.0, 0.2, 0.05, 0.1, 0.01)


def test_no_jitter_changes_nothing(patches):
    patches = patches.copy()
    patches[3], patches[4] = 0, 1
    np.testing.assert_allclose(jitter(keys(len(patches)), patches, JitterSettings()), patches, rtol=0, atol=1e-6)


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
    flat = np.full((5, 32, 32), 0.3, np.float32)
    turned = np.asarray(jitter(keys(len(flat)), flat, dataclasses.replace(ALL, noise=0.0)))
    assert (turned == turned[:, :1, :1]).all()


def test_relighting_follows_its_formula(patches):
    gamma, contrast, brightness = (
        np.linspace(a, b, 5, dtype=np.float32) for a, b in ((0.8, 1.3), (0.5, 2), (-0.2, 0.1))
    )
    found = relight(patches, gamma, contrast, brightness)
    for i, p in enumerate(patches):
        q = p ** gamma[i]
        np.testing.assert_allclose(found[i], contrast[i] * (q - q.mean()) + q.mean() + brightness[i], atol=1e-6)


def test_each_patch_draws_its_own_change():
    same = np.tile(np.random.default_rng(1).random((1, 32, 32)).astype(np.float32), (5, 1, 1))
    changed = np.asarray(jitter(keys(len(same)), same, ALL))
    assert np.abs(changed[1:] - changed[:1]).max(axis=(1, 2)).min() > 0.01


def test_changes_depend_on_the_key_alone(patches):
    first, again, other = (jitter(keys(len(patches), k), patches, ALL) for k in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_values_stay_in_range_and_finite(patches):
    strong = JitterSettings(180, 1.0, 16, 2.0, 0.5, 2.0, 0.3)
    changed = np.asarray(jitter(keys(len(patches)), np.round(patches), strong))
    assert changed.shape == patches.shape and changed.dtype == np.float32
    assert np.isfinite(changed).all() and changed.min() >= 0 and changed.max() <= 1


def test_noise_has_the_deviation_asked_for():
    gray = np.full((1000, 32, 32), 0.5, np.float32)
    noise = np.asarray(jitter(keys(len(gray)), gray, JitterSettings(noise=0.05))) - 0.5
    assert noise.std() == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize(("setting", "deviation"), [("brightness", 0.02), ("contrast", 0.2), ("gamma", 0.2)])
def test_light_changes_by_the_deviation_asked_for(setting, deviation):
    halves = np.full((1000, 32, 32), 0.4, np.float32)
    halves[:, 16:] = 0.6
    changed = np.asarray(jitter(keys(len(halves)), halves, JitterSettings(**{setting: deviation})), np.float64)
    low, high = changed[:, 0, 0], changed[:, -1, 0]
    drawn = {
        "brightness": (low + high) / 2 - 0.5,
        "contrast": np.log((high - low) / 0.2),
        "gamma": np.log(np.log(high) / np.log(0.6)),
    }[setting]
    assert drawn.mean() == pytest.approx(0, abs=0.1 * deviation)
    assert drawn.std() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize(("setting", "deviation"), [("rotation_deg", 4.0), ("scale", 0.05), ("shift_px", 0.5)])
def test_content_moves_by_the_deviation_asked_for(setting, deviation):
    x = np.arange(32, dtype=np.float32)
    planes = np.tile(0.5 + (x - 15.5) / 100, (1000, 32, 1))  # its slopes give rotation and scale
    changed = np.asarray(jitter(keys(len(planes)), planes, JitterSettings(**{setting: deviation})), np.float64)
    slope_x = (changed[:, 16, 18] - changed[:, 16, 13]) / 5 * 100
    slope_y = (changed[:, 18, 16] - changed[:, 13, 16]) / 5 * 100
    drawn = {
        "rotation_deg": np.rad2deg(np.arctan2(slope_y, slope_x)),
        "scale": -np.log(slope_x),
        "shift_px": -(changed[:, 15, 15] + changed[:, 16, 16] - 1) * 50,
    }[setting]
    assert drawn.mean() == pytest.approx(0, abs=0.1 * deviation)
    assert drawn.std() == pytest.approx(deviation, rel=0.1)


def test_a_negative_range_is_refused():
    with pytest.raises(ValueError, match="jitter shift_px is -1, expected 0 or more"):
        JitterSettings(shift_px=-1)
