"""The training step: the loss it minimises, and the same on any number of devices."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.networks import mlp
from xdesc_jax.train import parallel
from xdesc_jax.train.state import SCHEDULES, learning_rate_factor
from xdesc_jax.train.translators.objective import pairs_of
from xdesc_jax.train.translators.step import Hyper, Keys, canonical_rows, create_state, read_inputs, train_step

SPECS = {
    "bits": binary_spec("bits", 11, hidden=(9, 6)),
    "plain": DescriptorSpec("plain", 5, normalized=False, hidden=(7,)),
    "unit": DescriptorSpec("unit", 8, hidden=(7, 10), output="relu"),
}
SCALES = {"bits": 1.0, "plain": 3.0, "unit": 1.0}
KEYS = Keys(jax.random.key(1), jax.random.key(2))
HYPER = Hyper(1e-2, 0.1, 1.0, 0.5, 0.8)


def make_batch(size=24, padding=0, seed=0):
    rng = np.random.default_rng(seed)
    rows = {
        "bits": stored(rng.random((size, 11)) > 0.5, SPECS["bits"]),
        "plain": 3 * rng.normal(size=(size, 5)).astype(np.float32),
        "unit": unit_rows(rng.random((size, 8))),
    }
    for x in rows.values():
        x[size - padding :] = 0
    return rows | {"mask": np.arange(size) < size - padding}


def random_layers(rng, *widths):
    shapes = zip(widths, widths[1:], strict=False)
    return [{"kernel": rng.normal(size=s).astype(np.float32), "bias": np.ones(s[1], np.float32)} for s in shapes]


def make_step(axis_name, **settings):
    config = ModelConfig(embedding_width=6, kind=settings.pop("kind", "encoder_decoder"))
    networks = mlp.build_networks(SPECS, config, axis_name)
    if settings.pop("frozen", False):
        rng, shapes = np.random.default_rng(5), {"encoder/plain": (5, 7, 6), "decoder/plain": (6, 7, 5)}
        networks = mlp.freeze(networks, {n: random_layers(rng, *widths) for n, widths in shapes.items()})
    settings = {"variant": "quadratic", "distance": "euclidean"} | settings
    step = partial(train_step, networks=networks, inputs_of=lambda b, key: read_inputs(b, SPECS, SCALES), **settings)
    return networks, step


@functools.cache
def mapped_step(count, settings):
    networks, step = make_step(parallel.AXIS, **dict(settings))
    return networks, parallel.pmapped_step(step, jax.local_devices()[:count])


def run_devices(count, batch, **settings):
    """State and metrics after one step on `count` devices."""
    networks, mapped = mapped_step(count, tuple(settings.items()))
    devices = jax.local_devices()[:count]
    state = parallel.replicate(fresh(networks), devices)
    return jax.device_get(mapped(state, parallel.split_batch(batch, devices), KEYS, HYPER))


@functools.cache
def plain_step():
    networks, step = make_step(None)
    return networks, jax.jit(step)


def fresh(networks):
    """Weights under which no anchor has two negatives that are equally near but for rounding, as so few units allow."""
    return jax.jit(partial(create_state, networks))(jax.random.key(5))


def close(a, b, tolerance=5e-6):
    """Equal to rounding, relative to the length of all leaves together."""
    x, y = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (a, b))
    assert np.linalg.norm(x - y) <= tolerance * np.linalg.norm(x)


# padding 7 of 24 rows: of four devices one has no row, and one has five of six.
CASES = [
    ({"variant": "quadratic"}, 0),
    ({"variant": "quadratic", "distance": "squared"}, 7),
    ({"variant": "autoencoder"}, 7),
    ({"variant": "linear"}, 7),
    ({"kind": "pair"}, 7),
    ({"variant": "quadratic", "target_matching": True}, 7),
    ({"variant": "linear", "target_matching": True, "distance": "squared"}, 7),
    ({"kind": "pair", "target_matching": True}, 7),
    ({"variant": "quadratic", "target_matching": True, "frozen": True}, 7),
]


@pytest.mark.parametrize(("settings", "padding"), CASES, ids=str)
def test_four_devices_equal_one(settings, padding):
    """Losses, gradients (as Adam's first moments after one step) and running statistics."""
    batch = make_batch(24, padding)
    one, metrics_one = run_devices(1, batch, **settings)
    four, metrics_four = run_devices(4, batch, **settings)
    close(metrics_one, metrics_four)
    close(one.opt_state.mu, four.opt_state.mu)
    close(one.batch_stats, four.batch_stats)


def test_the_mapped_step_equals_the_plain_one():
    batch = make_batch()
    networks, step = plain_step()
    plain, _ = step(fresh(networks), batch, KEYS, HYPER)
    mapped, _ = run_devices(1, batch, variant="quadratic")
    close(plain.opt_state.mu, mapped.opt_state.mu)
    close(plain.batch_stats, mapped.batch_stats)


def test_padding_changes_nothing():
    padded, short = make_batch(24, padding=8), make_batch(24, padding=8)
    short = {name: x[:16] for name, x in short.items()}
    (with_padding, metrics), (without, metrics_without) = (
        run_devices(1, padded, variant="quadratic"),
        run_devices(1, short, variant="quadratic"),
    )
    close(metrics, metrics_without)
    close(with_padding.opt_state.mu, without.opt_state.mu)


def test_quadratic_translation_loss_is_the_mean_over_all_pairs():
    """Against the definition: encoders and decoders with batch statistics written out in numpy."""
    batch = make_batch()
    networks, step = plain_step()
    state = fresh(networks)
    _, metrics = step(state, batch, KEYS, HYPER)
    inputs = {k: np.asarray(v) for k, v in read_inputs(batch, SPECS, SCALES).items()}

    def network(name, x):
        params, i = state.params[name], 0
        while f"norm{i}" in params:
            x = x @ params[f"linear{i}"]["kernel"]
            x = np.maximum((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), 0)
            i += 1
        return x @ params[f"linear{i}"]["kernel"] + params[f"linear{i}"]["bias"]

    z = [unit_rows(network(f"encoder/{n}", inputs[n])) for n in SPECS]
    errors = []
    for name, spec in SPECS.items():
        raw = network(f"decoder/{name}", np.concatenate(z)).reshape(3, 24, -1)
        if spec.output == "relu":
            raw = np.maximum(raw, 0)
        if spec.normalized:
            raw = unit_rows(raw.reshape(-1, spec.width)).reshape(raw.shape)
        if spec.binary:
            p = 1 / (1 + np.exp(-raw))
            bce = -(inputs[name] * np.log(p) + (1 - inputs[name]) * np.log(1 - p))
            errors.append(bce.mean(-1))
        else:
            errors.append(np.linalg.norm(raw - inputs[name], axis=-1))
    assert float(metrics["translation"].mean()) == pytest.approx(np.mean(errors), rel=1e-4)
    loss = metrics["translation"].mean() + HYPER.alpha * metrics["matching"].mean()
    assert float(metrics["loss"].total) == pytest.approx(float(loss), rel=1e-6)


@pytest.mark.parametrize(
    "settings", [{"variant": v} for v in ("quadratic", "autoencoder", "linear")] + [{"kind": "pair"}]
)
def test_matching_in_the_targets_space_adds_to_the_loss_and_reaches_every_network(settings):
    batch = make_batch()
    without, metrics_without = run_devices(1, batch, **settings)
    found, metrics = run_devices(1, batch, **settings, target_matching=True)
    assert "target_matching" not in metrics_without
    expected = metrics_without["loss"].total + HYPER.beta * metrics["target_matching"].mean()
    assert float(metrics["loss"].total) == pytest.approx(float(expected), rel=1e-5)
    for name in found.params:
        moments = [np.concatenate(list(map(np.ravel, jax.tree.leaves(s.opt_state.mu[name])))) for s in (without, found)]
        assert np.abs(moments[0] - moments[1]).max() > 1e-4, name
    close(without.batch_stats, found.batch_stats)


def test_without_target_matching_its_weight_and_margin_change_nothing():
    batch, (networks, mapped) = make_batch(), mapped_step(1, (("variant", "quadratic"),))
    devices = jax.local_devices()[:1]
    placed, state = parallel.split_batch(batch, devices), parallel.replicate(fresh(networks), devices)
    found = [jax.device_get(mapped(state, placed, KEYS, h)) for h in (HYPER, Hyper(1e-2, 0.1, 1.0))]
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_the_step_learns():
    networks, step = plain_step()
    state, history = fresh(networks), []
    for _ in range(200):
        state, metrics = step(state, make_batch(), KEYS, HYPER)
        history.append(float(metrics["loss"].total))
    assert history[-1] < 0.6 * history[0]


def test_pairs_of_frozen_descriptors_are_left_out():
    networks, _ = make_step(None, frozen=True)
    frozen = mlp.freeze(networks, networks.frozen | dict.fromkeys(("encoder/unit", "decoder/unit"), ()))
    chosen, pairs = pairs_of(frozen, "quadratic", jax.random.key(0))
    found = {name: np.arange(3)[of].tolist() for name, of in chosen.items()}
    assert found == {"bits": [0, 1, 2], "plain": [0], "unit": [0]}
    assert pairs.tolist() == [[0, 0], [0, 1], [0, 2]]
    chosen, pairs = pairs_of(frozen, "autoencoder", jax.random.key(0))
    assert chosen == {"bits": slice(0, 1)} and pairs.tolist() == [[0, 0], [0, 1], [0, 2]]
    with pytest.raises(ValueError, match="'linear', expected"):
        pairs_of(frozen, "linear", jax.random.key(0))


def test_linear_permutation_changes_with_the_step_and_not_with_the_call():
    networks, mapped = mapped_step(1, (("variant", "linear"),))
    batch, losses = parallel.split_batch(make_batch(), jax.local_devices()[:1]), []
    for number in (0, 1, 2, 3, 0):
        state = fresh(networks).replace(step=jnp.int32(number))
        _, metrics = mapped(parallel.replicate(state, jax.local_devices()[:1]), batch, KEYS, HYPER)
        losses.append(float(metrics["loss"].total))
    assert losses[0] == losses[4]
    assert len(set(losses)) > 1


def test_stored_forms_become_canonical_rows():
    bits = np.random.default_rng(0).random((4, 11)) > 0.5
    np.testing.assert_array_equal(canonical_rows(stored(bits, SPECS["bits"]), SPECS["bits"], 1.0), bits)
    quantised = DescriptorSpec("q", 3, storage_dtype="uint8", storage_scale=512.0)
    rows = canonical_rows(np.array([[3, 0, 4], [0, 0, 0]], np.uint8), quantised, 1.0)
    np.testing.assert_allclose(rows, [[0.6, 0, 0.8], [0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(canonical_rows(np.array([[6.0, 3.0]]), SPECS["plain"], 3.0), [[2, 1]])


def test_schedules():
    def factors(schedule, warmup, steps):
        code = SCHEDULES.index(schedule)
        return [float(learning_rate_factor(jnp.int32(s), code, warmup, 12)) for s in steps]

    np.testing.assert_allclose(factors("cosine", 4, (0, 3, 4, 8, 12)), [0.25, 1, 1, 0.5, 0], atol=1e-6)
    np.testing.assert_allclose(factors("linear", 4, (0, 3, 6, 8, 12)), [0.25, 1, 0.75, 0.5, 0], atol=1e-6)
    assert factors("constant", 0, (0, 9)) == [1, 1]


@pytest.mark.parametrize("count", [1, 4])
def test_several_steps_of_a_dispatch_are_the_steps_one_by_one(count):
    """20 steps in dispatches of 5 against the plain form; the last batch is padded."""
    devices = jax.local_devices()[:count]
    networks, step = make_step(parallel.AXIS)
    one = parallel.pmapped_step(step, devices)
    several = parallel.pmapped_step(step, devices, together=5, donate=True)
    batches = [make_batch(seed=i, padding=5 * (i == 19)) for i in range(20)]
    state, losses = parallel.replicate(fresh(networks), devices), []
    for batch in batches:
        state, metrics = one(state, parallel.split_batch(batch, devices), KEYS, HYPER)
        losses.append(float(metrics["loss"].total))
    held, found = parallel.replicate(fresh(networks), devices), []
    for i in range(0, 20, 5):
        held, metrics = several(held, parallel.split_batches(batches[i : i + 5], devices), KEYS, HYPER)
        found += np.asarray(metrics["loss"].total).tolist()
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    assert int(held.step) == 20
    for a, b in zip(jax.tree.leaves(held.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)
