"""The step of descriptor training: augmentation, and the same on any number of devices."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.features import l2net
from xdesc_jax.train import parallel
from xdesc_jax.train.descriptors.step import (
    DescriptorHyper,
    augment,
    create_state,
    describe,
    keys_of,
    network_of,
    train_step,
)
from xdesc_jax.train.optimizer import Numbers
from xdesc_jax.train.randomness import row_keys

HYPER = DescriptorHyper(Numbers(1e-3), 1.0)
KEYS = keys_of(1)
AUGMENT = partial(augment, flips=True, gamma=0.3, contrast=0.3)

pytestmark = pytest.mark.usefixtures("thin_network")


def make_batch(size=12, padding=5):
    """Two rows of one point; of four devices the last has padding only, and the third two rows of it."""
    rng = np.random.default_rng(0)
    coarse = rng.random((size, 8, 8)).repeat(4, 1).repeat(4, 2)
    views = [np.uint8(255 * np.clip(coarse + 0.1 * rng.normal(size=coarse.shape), 0, 1)) for _ in range(2)]
    point = np.arange(size, dtype=np.int32)
    point[1] = 0
    return {"patch": views[0], "pair": views[1], "point": point, "mask": np.arange(size) < size - padding}


def augment_wide(keys, patches):
    """In float64, so that no ReLU and no hardest negative turns on the rounding of a sum over devices."""
    return AUGMENT(keys, patches.astype(jnp.float64))


@functools.cache
def mapped_step(count, loss):
    step = partial(train_step, kind="hardnet", loss=loss, augmentation=augment_wide, weight_decay=1e-4)
    return parallel.pmapped_step(step, jax.local_devices()[:count])


def fresh():
    return create_state(jax.jit(l2net.init)(jax.random.key(0)))


def run_devices(count, batch, loss="sosnet"):
    devices = jax.local_devices()[:count]
    with jax.enable_x64(True):
        state = parallel.replicate(fresh(), devices)
        step = mapped_step(count, loss)
        return jax.device_get(step(state, parallel.split_batch(batch, devices), KEYS, HYPER))


def close(a, b, tolerance=1e-10):
    """Equal to rounding, relative to the length of all leaves together."""
    x, y = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (a, b))
    assert np.linalg.norm(x - y) <= tolerance * np.linalg.norm(x)


@pytest.fixture(scope="module")
def one():
    """State and metrics after a step on one device."""
    return run_devices(1, make_batch())


def test_four_devices_equal_one(one):
    """Losses, gradients (as Adam's first moments) and running statistics, with augmentation."""
    four, metrics = run_devices(4, make_batch())
    close(one[1], metrics)
    close(one[0].opt_state.mu, four.opt_state.mu)
    close(one[0].batch_stats, four.batch_stats)


def test_padding_does_not_count(one):
    """Whatever it holds: here the first patches once more."""
    batch = make_batch()
    for name in ("patch", "pair"):
        batch[name][7:] = batch[name][:5]
    other, metrics = run_devices(1, batch)
    close(one[1], metrics)
    close(one[0].opt_state.mu, other.opt_state.mu)


def test_metrics_are_the_loss_and_its_parts(one):
    state, metrics = one
    assert metrics.keys() == {"loss", "triplet", "second_order"}
    assert metrics["triplet"].count == metrics["second_order"].count == 7
    parts = metrics["triplet"].mean() + metrics["second_order"].mean()
    assert float(metrics["loss"].total) == pytest.approx(float(parts), rel=1e-6)
    assert state.step == 1


def test_running_statistics_are_those_of_both_views_together(one):
    """The first layer, without augmentation's draws: its input is normalised, so only the mean of both can match."""
    stats = one[0].batch_stats["layer0"]
    with jax.enable_x64(True):
        patches = jnp.stack([make_batch()["patch"], make_batch()["pair"]]).astype(jnp.float32) / 255
        keys = row_keys(jax.random.fold_in(KEYS.augmentation, 0), 12)
        inputs = l2net.normalize_hardnet(augment_wide(keys, patches)[:, :7].reshape(14, 32, 32))
        raw = np.asarray(l2net.convolve(inputs[..., None], fresh().params["layer0"], 1, 1))
    np.testing.assert_allclose(stats["mean"], 0.1 * raw.mean((0, 1, 2)), atol=1e-6)
    np.testing.assert_allclose(stats["variance"], 0.9 + 0.1 * raw.var((0, 1, 2)), rtol=1e-5)


def test_a_state_holds_its_network():
    net = l2net.init(jax.random.key(3))
    state = create_state(net)
    jax.tree.map(np.testing.assert_array_equal, network_of(state.params, state.batch_stats), net)


@pytest.mark.parametrize(("kind", "by_hand"), [("hardnet", l2net.describe_hardnet), ("sosnet", l2net.describe_sosnet)])
def test_descriptors_are_those_of_the_library(kind, by_hand):
    net, patches = l2net.init(jax.random.key(3)), make_batch()["patch"][:3]
    expected = jax.jit(by_hand)(net, jnp.asarray(np.float32(patches) / 255))
    np.testing.assert_allclose(describe(net, patches, kind=kind), expected, atol=1e-6)


# --- Augmentation ----------------------------------------------------------------------------------------


def test_both_patches_of_a_pair_are_turned_alike_in_all_eight_ways():
    patch = np.random.default_rng(2).random((32, 32)).astype(np.float32)
    pairs = jnp.asarray(np.stack([np.tile(patch, (64, 1, 1)), np.tile(1 - patch, (64, 1, 1))]))
    turned = np.asarray(augment(row_keys(KEYS.augmentation, 64), pairs, flips=True, gamma=0.0, contrast=0.0))
    np.testing.assert_allclose(turned[0] + turned[1], 1, atol=1e-6)
    eight = {np.rot90(p, k).tobytes() for p in (patch, patch.T) for k in range(4)}
    assert {p.tobytes() for p in turned[0]} == eight


def test_each_patch_gets_its_own_light_within_the_gray_range():
    ramp = jnp.asarray(np.tile(np.linspace(0, 1, 32, dtype=np.float32), (2, 9, 32, 1)))
    lit = np.asarray(augment(row_keys(KEYS.augmentation, 9), ramp, flips=False, gamma=0.3, contrast=0.3))
    assert lit.min() >= 0 and lit.max() <= 1
    assert len({p.tobytes() for p in lit.reshape(18, 32, 32)}) == 18
    assert (np.diff(lit, axis=-1) >= 0).all()  # darker stays darker
    same = augment(row_keys(KEYS.augmentation, 9), ramp, flips=False, gamma=0.0, contrast=0.0)
    np.testing.assert_array_equal(same, ramp)
