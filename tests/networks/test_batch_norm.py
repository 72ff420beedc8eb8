"""Batch norm with ReLU: moments, values and the gradient against float64 differences of the formula in numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.networks.batch_norm import SyncBatchNormRelu, masked_moments, normalized_relu

ROWS, WIDTH, COUNTED = 12, 5, 9


def test_moments_leave_out_masked_rows():
    x = jnp.array([[1.0, 5.0], [3.0, 5.0], [100.0, -7.0]])
    mean, var = masked_moments(x, jnp.array([True, True, False]), None)
    np.testing.assert_allclose(mean, [2, 5])
    np.testing.assert_allclose(var, [1, 0])


def test_moments_survive_a_mean_far_above_the_deviation():
    x = 1e4 + np.random.default_rng(0).normal(0, 0.1, (64, 3)).astype(np.float32)
    _, var = masked_moments(jnp.asarray(x), None, None)
    np.testing.assert_allclose(var, x.astype(np.float64).var(axis=0), rtol=2e-2)


def test_moments_are_synchronised_over_unequal_shards():
    """Shards of means 10, 0, 0, 0 have the mean 2.5 when full; with rows in one shard alone it is that shard's."""
    x = jnp.zeros((4, 6, 1)).at[0].set(10.0)
    moments = jax.pmap(lambda v, m: masked_moments(v, m, "data"), "data", out_axes=None)
    mean, var = moments(x, jnp.ones((4, 6), bool))
    np.testing.assert_allclose((mean[0], var[0]), (2.5, 18.75))
    mean, var = moments(x, jnp.zeros((4, 6), bool).at[0, :5].set(True))
    np.testing.assert_allclose((mean[0], var[0]), (10, 0))


@pytest.mark.parametrize("counted", [0, 4])
def test_a_batch_without_rows_that_count_leaves_the_running_moments(counted):
    """Also where another device has some: 6 rows each, of which this many count on the second."""
    norm, x = SyncBatchNormRelu("data"), jnp.stack([jnp.full((6, 3), 9.0), jnp.arange(18.0).reshape(6, 3)])
    held = jnp.stack([jnp.zeros(6, bool), jnp.arange(6) < counted])
    variables = SyncBatchNormRelu(None).init(jax.random.key(0), x[0], None, False)
    variables["batch_stats"] = {"mean": jnp.full(3, 2.0), "var": jnp.full(3, 5.0)}

    def step(x, mask):
        return norm.apply(variables, x, mask, True, mutable=["batch_stats"])[1]["batch_stats"]

    found = jax.pmap(step, "data")(x, held)
    rows = np.arange(18.0).reshape(6, 3)[:4]
    for device in (0, 1):
        mean, var = found["mean"][device], found["var"][device]
        np.testing.assert_allclose(mean, 0.9 * 2 + 0.1 * rows.mean(axis=0) if counted else np.full(3, 2.0), rtol=1e-6)
        np.testing.assert_allclose(var, 0.9 * 5 + 0.1 * rows.var(axis=0) if counted else np.full(3, 5.0), rtol=1e-6)


def inputs():
    """Rows of which three do not count, means away from 0, scales of either sign, weights of the output."""
    rng = np.random.default_rng(4)
    x, scale, offset = rng.normal(3, 2, (ROWS, WIDTH)), rng.normal(size=WIDTH), rng.normal(0, 0.3, WIDTH)
    weight = np.array([1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1], np.float64)
    return x, scale, offset, weight, rng.normal(size=(ROWS, WIDTH))


def written_out(x, scale, offset, weight):
    """Batch norm by the rows that count, of all rows; then what is below 0 is 0."""
    rows = x[weight > 0]
    assert len(rows) == COUNTED
    return np.maximum((x - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-5) * scale + offset, 0)


def differences(at, function, step=1e-6):
    """The gradient of a function of one array, by central differences."""
    found = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][index] += step
        moved[1][index] -= step
        found[index] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return found


@pytest.fixture(scope="module")
def gradients():
    x, scale, offset, weight, weighed = inputs()
    loss = lambda x, scale, offset: np.sum(weighed * written_out(x, scale, offset, weight))  # noqa: E731
    return (
        differences(x, lambda v: loss(v, scale, offset)),
        differences(scale, lambda v: loss(x, v, offset)),
        differences(offset, lambda v: loss(x, scale, v)),
    )


def test_values_and_gradients_are_those_of_the_formula(gradients):
    x, scale, offset, weight, weighed = (np.float32(v) for v in inputs())
    expected = written_out(*inputs()[:4])
    assert 0.2 < np.mean(expected > 0) < 0.8
    y, mean, var = normalized_relu(x, scale, offset, weight, None)
    np.testing.assert_allclose(y, expected, atol=2e-5)
    np.testing.assert_allclose((mean, var), (x[weight > 0].mean(axis=0), x[weight > 0].var(axis=0)), rtol=1e-5)
    loss = lambda x, s, o: jnp.sum(weighed * normalized_relu(x, s, o, weight, None)[0])  # noqa: E731
    for found, exact in zip(jax.grad(loss, argnums=(0, 1, 2))(x, scale, offset), gradients, strict=True):
        np.testing.assert_allclose(found, exact, atol=3e-4)


def test_gradients_over_four_devices_are_those_of_all_rows(gradients):
    """Three rows a device; of one of them, one counts."""
    x, scale, offset, weight, weighed = (np.float32(v) for v in inputs())

    def on_device(x, weight, weighed):
        loss = lambda x, s, o: jnp.sum(weighed * normalized_relu(x, s, o, weight, "data")[0])  # noqa: E731
        of_x, *of_parameters = jax.grad(loss, argnums=(0, 1, 2))(x, scale, offset)
        return of_x, jax.lax.psum(of_parameters, "data")

    split = [v.reshape(4, 3, *v.shape[1:]) for v in (x, weight, weighed)]
    of_x, of_parameters = jax.pmap(on_device, "data", out_axes=(0, None))(*split)
    np.testing.assert_allclose(np.reshape(of_x, x.shape), gradients[0], atol=3e-4)
    for found, exact in zip(of_parameters, gradients[1:], strict=True):
        np.testing.assert_allclose(found, exact, atol=3e-4)


def test_running_statistics_move_by_a_tenth_and_are_used_outside_training():
    module, rng = SyncBatchNormRelu(), np.random.default_rng(1)
    x = jnp.asarray(rng.normal(2, 3, (20, 4)), jnp.float32)
    held = {"mean": jnp.full(4, 0.5), "var": jnp.full(4, 2.0)}
    variables = {"params": {"scale": jnp.full(4, -1.5), "offset": jnp.full(4, 0.25)}, "batch_stats": held}
    _, changed = module.apply(variables, x, None, True, mutable=["batch_stats"])
    np.testing.assert_allclose(changed["batch_stats"]["mean"], 0.45 + 0.1 * np.mean(x, axis=0), rtol=1e-5)
    np.testing.assert_allclose(changed["batch_stats"]["var"], 1.8 + 0.1 * np.var(x, axis=0), rtol=1e-5)
    expected = np.maximum(-1.5 * (np.asarray(x) - 0.5) / np.sqrt(2 + 1e-5) + 0.25, 0)
    np.testing.assert_allclose(module.apply(variables, x, None, False), expected, rtol=1e-4, atol=1e-6)
