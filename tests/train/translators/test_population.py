"""Members of a population step as they would alone, with masks of descriptors too; one that diverges is frozen."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.networks import mlp
from xdesc_jax.networks.losses import Sum
from xdesc_jax.train import parallel
from xdesc_jax.train.checkpoint import Position, check_finite
from xdesc_jax.train.optimizer import Adam, Numbers, first_moments
from xdesc_jax.train.state import TrainState
from xdesc_jax.train.translators.population import member, population_step, stack, stack_hyper, stack_keys
from xdesc_jax.train.translators.step import Hyper, Keys, create_state, read_inputs, train_step

SPECS = {
    "bits": binary_spec("bits", 11, hidden=(16,)),
    "plain": DescriptorSpec("plain", 5, normalized=False, hidden=(12,)),
    "unit": DescriptorSpec("unit", 8, hidden=(12,), output="relu"),
}
ALL, SOME = np.array([True, True, True]), np.array([True, False, True])
HYPER = [
    Hyper(Numbers(1e-2, 0, 0), 0.1, 1.0, 0.5, 0.8, ALL),
    Hyper(Numbers(3e-3, 1, 2), 0.7, 0.5, 0.2, 0.5, ALL),
    Hyper(Numbers(1e-2, 2, 0), 0.1, 1.0, 0.5, 0.8, SOME),
]
OWN = [
    (Adam(0.8, 0.99, 1e-6), 0.5, 0.1, 0.6),
    (Adam(0.7, 0.9, 1e-3), 5.0, 0.3, 0.2),
    (Adam(0.9, 0.8, 0.1), 0.1, 0.2, 0.9),
]
VARIED = [
    hyper._replace(optimizer=Numbers(*hyper.optimizer[:3], *own)) for hyper, own in zip(HYPER, OWN, strict=True)
]  # fmt: skip
KEYS = [Keys(jax.random.key(i), jax.random.key(9)) for i in range(3)]


def make_batch(seed, size=24):
    rng = np.random.default_rng(seed)
    return {
        "bits": stored(rng.random((size, 11)) > 0.5, SPECS["bits"]),
        "plain": rng.normal(size=(size, 5)).astype(np.float32),
        "unit": unit_rows(rng.random((size, 8))),
        "mask": np.arange(size) < size - 3,
    }


BATCHES = [make_batch(seed) for seed in range(3)]


def make(names, axis_name, kind="encoder_decoder", **settings):
    """Networks of some descriptors, and their step."""
    specs = {name: SPECS[name] for name in names}
    networks = mlp.build_networks(specs, ModelConfig(embedding_width=6, kind=kind), axis_name)
    step = partial(
        train_step, networks=networks, inputs_of=lambda b, key: read_inputs(b, specs, dict.fromkeys(specs, 1.0)),
        distance="squared", total_steps=4, **settings,
    )  # fmt: skip
    return networks, step


def trained_together(count, in_turn, hyper=HYPER, **settings):
    """The population after three steps on `count` devices."""
    averaged = hyper[0].optimizer.ema is not None
    devices = jax.local_devices()[:count]
    networks, step = make(SPECS, parallel.AXIS, **settings)
    states = [jax.device_get(create_state(networks, jax.random.key(i), averaged)) for i in range(len(hyper))]
    state = parallel.replicate(stack(states, [0] * len(hyper)), devices)
    mapped = parallel.pmapped_step(partial(population_step, step=step, in_turn=in_turn), devices)
    for batch in BATCHES:
        state, sums = mapped(state, parallel.split_batch(batch, devices), stack_keys(KEYS), stack_hyper(hyper))
    return jax.device_get((state, sums)), states


def trained_alone(index, names, hyper=HYPER, **settings):
    networks, step = make(names, None, **settings)
    state = create_state(networks, jax.random.key(index), hyper[0].optimizer.ema is not None)
    stepping = jax.jit(step)
    for batch in BATCHES:
        state, sums = stepping(state, batch, KEYS[index], hyper[index]._replace(active=None))
    return jax.device_get((state, sums))


def close(a, b):
    """Equal to rounding and what three of Adam's steps make of it, relative to the length of all leaves together."""
    x, y = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (a, b))
    assert np.linalg.norm(x - y) <= 1e-2 * np.linalg.norm(x)


@pytest.mark.parametrize(
    ("count", "in_turn", "settings"),
    [
        (4, False, {"variant": "quadratic", "negatives": "symmetric"}),
        (1, True, {"variant": "linear", "target_matching": True}),
        (1, False, {"variant": "quadratic", "kind": "pair"}),
        (1, False, {"variant": "autoencoder", "hyper": VARIED}),
        (4, True, {"variant": "quadratic", "hyper": VARIED}),
    ],
    ids=str,
)
def test_members_step_as_they_would_alone(count, in_turn, settings):
    """Losses, gradients (as Adam's moments) and running statistics; the third member leaves out one descriptor."""
    (state, sums), _ = trained_together(count, in_turn, **settings)
    assert int(state.step) == 3 and state.stopped.tolist() == [0, 0, 0]
    for index, names in enumerate((SPECS, SPECS, ("bits", "unit"))):
        alone, its_sums = trained_alone(index, names, **settings)
        for name, expected in its_sums.items():
            found = [part[index] for part in sums[name]]
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)
        own = member(state, index)
        for key in alone.params:
            close(own.opt_state.mu[key], alone.opt_state.mu[key])
            close(own.batch_stats[key], alone.batch_stats[key])
            close(own.weights["params"][key], alone.weights["params"][key])


def test_networks_of_descriptors_left_out_stay_as_they_were():
    (state, _), states = trained_together(1, True, variant="quadratic")
    for key in ("encoder/plain", "decoder/plain"):
        jax.tree.map(np.testing.assert_array_equal, member(state, 2).params[key], states[2].params[key])


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_member_that_turns_non_finite_is_frozen_and_the_others_are_not(in_turn):
    hopeless = HYPER[1]._replace(optimizer=Numbers(np.inf))
    (state, _), states = trained_together(1, in_turn, hyper=[HYPER[0], hopeless, HYPER[2]], variant="quadratic")
    assert state.stopped.tolist() == [0, 1, 0]
    jax.tree.map(np.testing.assert_array_equal, member(state, 1).params, states[1].params)
    (expected, _), _ = trained_together(1, in_turn, variant="quadratic")
    for index in (0, 2):
        jax.tree.map(np.testing.assert_array_equal, member(state, index).params, member(expected, index).params)


def test_a_member_whose_moments_alone_overflow_is_frozen():
    """The square of its gradient is infinite, and its weights are not yet."""

    def step(state, batch, keys, hyper, *, axis_name):
        moments = state.opt_state._replace(nu=hyper.margin * batch["much"])
        return state.replace(params=state.params + 1, opt_state=moments), {"loss": Sum(hyper.alpha, jnp.ones(()))}

    params = np.ones(3, np.float32)
    states = [TrainState(np.zeros((), np.int32), params, {}, first_moments(params)) for _ in range(2)]
    hyper = stack_hyper([HYPER[0]._replace(margin=np.float32(margin)) for margin in (0.1, 100.0)])
    batch, keys = {"much": np.full(3, 3e37, np.float32)}, stack_keys(KEYS[:2])
    state, _ = population_step(stack(states, [0, 0]), batch, keys, hyper, step=step)
    assert state.stopped.tolist() == [0, 1] and state.params[:, 0].tolist() == [2, 1]
    check_finite(state, Position(1, 0, 1))
