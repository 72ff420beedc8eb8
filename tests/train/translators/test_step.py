"""The training step: the loss it minimises, and the same on any number of devices."""

import dataclasses
import functools
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.objective_reference import objective
from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.networks import mlp
from xdesc_jax.train import parallel
from xdesc_jax.train.optimizer import SCHEDULES, Numbers, learning_rate_factor
from xdesc_jax.train.translators.inputs import Statistics
from xdesc_jax.train.translators.objective import Triplet, encoder_decoder_loss, pairs_of
from xdesc_jax.train.translators.preparation import step_of
from xdesc_jax.train.translators.step import (
    Hyper,
    Keys,
    canonical_rows,
    create_state,
    hyper_of,
    keys_of,
    read_inputs,
    train_step,
)

SPECS = {
    "bits": binary_spec("bits", 11, hidden=(9, 6)),
    "plain": DescriptorSpec("plain", 5, normalized=False, hidden=(7,)),
    "unit": DescriptorSpec("unit", 8, hidden=(7, 10), output="relu"),
}
SCALES = {"bits": 1.0, "plain": 3.0, "unit": 1.0}
KEYS = Keys(jax.random.key(1), jax.random.key(2))
HYPER = Hyper(Numbers(1e-2), 0.1, 1.0, 0.5, 0.8)


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


# Nothing at its default: three epochs of three batches.
CHOSEN = TrainConfig(
    epochs=3,
    seed=5,
    data_seed=8,
    loss=LossConfig(distance="euclidean", alpha=0.3, margin=0.7, beta=0.6, target_margin=0.4),
    optimizer=OptimizerConfig(2e-2, "linear", 2),
)
FACTORS = (1 / 2, 1, 1, 6 / 7, 5 / 7)  # two steps of warm-up, then in a line to 0 at the ninth


@functools.cache
def plain_step():
    networks = mlp.build_networks(SPECS, ModelConfig(embedding_width=6))
    return networks, jax.jit(step_of(networks, CHOSEN, SPECS, Statistics({}, SCALES, {}), 3))


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
    ({"variant": "linear", "target_matching": True, "frozen": True}, 7),
]


@pytest.mark.parametrize("settings", [{"variant": "quadratic", "target_matching": True}, {"kind": "pair"}], ids=str)
def test_four_devices_equal_one_where_descriptors_lack_rows(settings):
    """One device has no row of 'plain' at all."""
    batch = make_batch(24)
    batch["plain"][6:13] = batch["unit"][11:15] = 0
    (one, metrics_one), (four, metrics_four) = (run_devices(count, batch, **settings) for count in (1, 4))
    close(metrics_one, metrics_four)
    close(one.opt_state.mu, four.opt_state.mu, 2e-5)
    close(one.batch_stats, four.batch_stats)


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
    mapped, _ = run_devices(1, batch, variant="quadratic", target_matching=True)
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


def chosen_step():
    networks, step = plain_step()
    return networks, lambda state, batch: step(state, batch, keys_of(CHOSEN), hyper_of(CHOSEN))


def chosen_objective(params, batch):
    """The terms of the loss by their definition, all descriptors to all."""
    inputs = {name: np.asarray(x) for name, x in read_inputs(batch, SPECS, SCALES).items()}
    every = tuple(itertools.product(SPECS, SPECS))
    return objective(
        SPECS, params, inputs, every, every, margin=0.7, target_margin=0.4, distance="euclidean"
    )  # fmt: skip


def test_the_loss_weighs_translation_matching_and_matching_of_targets_as_configured():
    networks, step = chosen_step()
    state, batch = fresh(networks), make_batch()
    _, metrics = step(state, batch)
    terms = chosen_objective(state.params, batch)
    assert {name: float(metrics[name].mean()) for name in terms} == pytest.approx(terms, rel=1e-4)
    loss = terms["translation"] + 0.3 * terms["matching"] + 0.6 * terms["target_matching"]
    assert float(metrics["loss"].mean()) == pytest.approx(loss, rel=1e-4)


def first_gradient(step, params, networks, batch):
    """The gradient of all parameters, from Adam's first moment after one step, which is a tenth of it."""
    state, _ = step(fresh(networks).replace(params=params), batch)
    return jax.tree.map(lambda x: np.float64(x) / 0.1, state.opt_state.mu)


def test_the_gradient_is_the_slope_of_the_loss():
    """Along a random direction, against a difference quotient of the definition in float64."""
    networks, step = chosen_step()
    params, batch = jax.tree.map(np.float64, fresh(networks).params), make_batch()
    rng = np.random.default_rng(1)
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape), params)

    def loss(distance):
        terms = chosen_objective(jax.tree.map(lambda x, d: x + distance * d, params, direction), batch)
        return terms["translation"] + 0.3 * terms["matching"] + 0.6 * terms["target_matching"]

    gradient = first_gradient(step, fresh(networks).params, networks, batch)
    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: float(np.sum(g * d)), gradient, direction)))
    assert slope == pytest.approx((loss(1e-6) - loss(-1e-6)) / 2e-6, rel=1e-3)


def test_steps_are_adams_at_the_rate_of_the_schedule():
    """Kingma and Ba 2015, algorithm 1, in float64, with the weights of the paper: 0.9 and 0.999."""
    networks, step = chosen_step()
    state = fresh(networks)
    first = second = jax.tree.map(lambda x: np.zeros(x.shape), state.params)
    for t, factor in enumerate(FACTORS, start=1):
        batch = make_batch(seed=t)
        gradient = first_gradient(step, state.params, networks, batch)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, gradient)

        def moved(m, v, t=t, factor=factor):
            return -2e-2 * factor * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)

        before = state.params
        state, _ = step(state, batch)
        change = jax.tree.map(lambda a, b: np.float64(a) - np.float64(b), state.params, before)
        close(jax.tree.map(moved, first, second), change, 1e-4)


class Given(Exception):
    """What a step hands to `inputs_of`."""


def key_of_inputs(step_number, keys):
    """The bits of the key that augmentation gets in a step."""

    def refuse(*given):
        raise Given(given)

    networks, step = make_step(None)
    state = fresh(networks).replace(step=jnp.int32(step_number))
    with pytest.raises(Given) as found:
        step(state, make_batch(), keys, HYPER, inputs_of=refuse)
    (given,) = found.value.args
    return [
        jax.random.key_data(x).tolist()
        for x in given
        if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    ]


def test_augmentation_draws_anew_in_every_step_and_the_same_for_all_members():
    keys = keys_of(CHOSEN)
    found = [key_of_inputs(number, keys) for number in (0, 1, 2, 3)]
    assert len({str(bits) for bits in found}) == 4 and all(found)
    assert key_of_inputs(2, keys) == found[2]
    assert key_of_inputs(2, keys_of(dataclasses.replace(CHOSEN, seed=6))) == found[2]
    assert key_of_inputs(2, keys_of(dataclasses.replace(CHOSEN, data_seed=9))) != found[2]


def test_each_seed_decides_its_own_key():
    def bits(**changes):
        return [jax.random.key_data(key).tolist() for key in keys_of(dataclasses.replace(CHOSEN, **changes))]

    member, data = bits()
    assert bits(seed=6)[0] != member and bits(seed=6)[1] == data
    assert bits(data_seed=9)[0] == member and bits(data_seed=9)[1] != data
    assert bits(seed=8)[0] != bits(seed=8)[1]  # seed and data seed equal


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
    found = [jax.device_get(mapped(state, placed, KEYS, h)) for h in (HYPER, Hyper(Numbers(1e-2), 0.1, 1.0))]
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


def test_pairs_of_frozen_descriptors_that_the_linear_variant_draws_do_not_count():
    networks, _ = make_step(None, frozen=True)
    state, batch, counts = fresh(networks), make_batch(24, padding=7), set()
    inputs, triplet = read_inputs(batch, SPECS, SCALES), Triplet(1.0, 1.0, "squared", False, None)
    loss = jax.jit(
        lambda key: encoder_decoder_loss(
            networks, state.params, state.batch_stats, inputs, batch["mask"], key, "linear", triplet
        )[0]
    )
    for number in range(12):
        _, pairs = pairs_of(networks, "linear", jax.random.key(number))
        expected = 17 * sum(pair != [1, 1] for pair in pairs.tolist())  # 'plain' with itself
        sums = loss(jax.random.key(number))
        assert sums["translation"].count == expected and sums["matching"].count == expected
        counts.add(expected)
    assert counts == {2 * 17, 3 * 17}


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
