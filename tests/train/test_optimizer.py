"""The optimiser against numpy: each of its numbers, away from the defaults."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xdesc_jax.config import OptimizerConfig, TrainConfig
from xdesc_jax.sweep.plan import architecture
from xdesc_jax.train.optimizer import Adam, Numbers, alike, first_moments, numbers_of, update, with_average
from xdesc_jax.train.state import TrainState

STEPS = 7
PLAIN = OptimizerConfig(learning_rate=0.05, schedule="linear", warmup_steps=2)
CASES = {
    "defaults": PLAIN,
    "adam": dataclasses.replace(PLAIN, b1=0.7, b2=0.95, eps=0.03),
    "clipped": dataclasses.replace(PLAIN, clip_norm=1.5),
    "decayed": dataclasses.replace(PLAIN, weight_decay=0.3),
    "averaged": dataclasses.replace(PLAIN, ema=0.4),
    "all": dataclasses.replace(PLAIN, b1=0.8, b2=0.9, eps=1e-3, clip_norm=2.0, weight_decay=0.2, ema=0.25),
}


def first():
    rng = np.random.default_rng(0)
    return {"net": {"kernel": rng.normal(size=(3, 5)), "bias": rng.normal(size=5)}}


def gradients(step):
    rng = np.random.default_rng(10 + step)
    return {"net": {"kernel": rng.normal(size=(3, 5)), "bias": rng.normal(size=5)}}


def stats(step):
    return {"net": {"mean": np.full(5, float(step))}}


def taken(config, l2=0.0):
    """The state after all steps, and its averages after each."""
    single = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)  # noqa: E731
    params = single(first())
    state = TrainState(jnp.zeros((), jnp.int32), params, single(stats(0)), first_moments(params))
    state = with_average(state, config.ema > 0)
    stepping = jax.jit(lambda s, g, b, n: update(s, g, b, n, STEPS, l2))
    for step in range(STEPS):
        state = stepping(state, single(gradients(step)), single(stats(step + 1)), numbers_of(config))
    return jax.device_get(state)


def by_hand(config, l2=0.0):
    """The same from the formulas: Adam (Kingma and Ba), AdamW (Loshchilov and Hutter), in float64."""
    names = ("kernel", "bias")
    p = first()["net"]
    m, v = ({n: np.zeros_like(p[n]) for n in names} for _ in range(2))
    average, mean = {n: p[n].copy() for n in names}, 0.0
    for step in range(STEPS):
        g = gradients(step)["net"]
        norm = np.sqrt(sum(np.sum(g[n] ** 2) for n in names))
        if config.clip_norm and norm > config.clip_norm:
            g = {n: g[n] * config.clip_norm / norm for n in names}
        rate = config.learning_rate * min(1, (step + 1) / 2) * (1 - max(0, (step - 2) / (STEPS - 2)))
        for n in names:
            g[n] = g[n] + l2 * p[n]
            m[n] = config.b1 * m[n] + (1 - config.b1) * g[n]
            v[n] = config.b2 * v[n] + (1 - config.b2) * g[n] ** 2
            unbiased = m[n] / (1 - config.b1 ** (step + 1)), v[n] / (1 - config.b2 ** (step + 1))
            decay = config.weight_decay * p[n] if n == "kernel" else 0
            p[n] = p[n] - rate * (unbiased[0] / (np.sqrt(unbiased[1]) + config.eps) + decay)
            d = min(config.ema, (1 + step) / (10 + step))
            average[n] = d * average[n] + (1 - d) * p[n]
        mean = d * mean + (1 - d) * (step + 1)
    return p, average, mean


@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_the_formulas(name):
    config = CASES[name]
    state, (params, average, mean) = taken(config), by_hand(config)
    for leaf in ("kernel", "bias"):
        np.testing.assert_allclose(state.params["net"][leaf], params[leaf], rtol=2e-5, atol=2e-6)
    if not config.ema:
        assert state.average is None and state.weights["params"] is state.params
        return
    assert state.weights is state.average
    for leaf in ("kernel", "bias"):
        np.testing.assert_allclose(state.weights["params"]["net"][leaf], average[leaf], rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(state.weights["batch_stats"]["net"]["mean"], mean, rtol=1e-6)


def test_decay_in_the_gradient_comes_behind_clipping_and_before_adam():
    config = CASES["clipped"]
    found, (expected, *_) = taken(config, l2=0.2), by_hand(config, l2=0.2)
    np.testing.assert_allclose(found.params["net"]["kernel"], expected["kernel"], rtol=2e-5, atol=2e-6)
    assert np.abs(expected["kernel"] - by_hand(config)[0]["kernel"]).max() > 1e-3


def test_every_case_differs_from_the_defaults():
    plain = by_hand(PLAIN)[0]["kernel"]
    for name in ("adam", "clipped", "decayed"):
        assert np.abs(by_hand(CASES[name])[0]["kernel"] - plain).max() > 1e-3, name


def test_defaults_step_bit_for_bit_as_optax_adam_alone():
    """What runs of earlier versions did."""

    @jax.jit
    def plain(params, moments, gradient, rate):
        updates, moments = optax.scale_by_adam().update(gradient, moments, params)
        return jax.tree.map(lambda p, u: p - rate * u, params, updates), moments

    params = jax.tree.map(jnp.float32, first())
    state = TrainState(jnp.zeros((), jnp.int32), params, {}, first_moments(params))
    moments = state.opt_state
    stepping = jax.jit(lambda s, g, n: update(s, g, {}, n, STEPS))
    for step in range(STEPS):
        gradient = jax.tree.map(jnp.float32, gradients(step))
        state = stepping(state, gradient, numbers_of(OptimizerConfig(learning_rate=0.05)))
        params, moments = plain(params, moments, gradient, 0.05)
    jax.tree.map(np.testing.assert_array_equal, (state.params, state.opt_state), (params, moments))


# --- Populations -----------------------------------------------------------------------------------------


def with_optimizer(**fields):
    return TrainConfig(optimizer=OptimizerConfig(**fields))


def test_numbers_train_together_and_what_changes_the_program_does_not():
    kinds = [
        [with_optimizer(b1=b1, eps=eps) for b1, eps in ((0.9, 1e-8), (0.5, 1e-3))],
        [with_optimizer(clip_norm=norm, b2=0.9) for norm in (0.5, 3.0)],
        [with_optimizer(weight_decay=decay) for decay in (0.1, 0.01)],
        [with_optimizer(ema=ema) for ema in (0.9, 0.999)],
    ]
    hashes = [{architecture(config) for config in kind} for kind in kinds]
    assert [len(found) for found in hashes] == [1] * 4 and len(set.union(*hashes)) == 4


def test_members_that_name_adams_numbers_give_them_to_all():
    default, other = numbers_of(OptimizerConfig()), numbers_of(OptimizerConfig(b1=0.5))
    assert alike([default, default]) == [default, default] and default.adam is None
    assert [n.adam for n in alike([default, other])] == [Adam(0.9, 0.999, 1e-8), Adam(0.5, 0.999, 1e-8)]
    assert isinstance(other, Numbers)


@pytest.mark.parametrize(
    ("field", "value"), [("b1", 1.0), ("b2", -0.1), ("eps", 0.0), ("clip_norm", -1.0), ("weight_decay", float("nan")),
                         ("ema", 1.0)],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(field, value):
    with pytest.raises(ValueError, match=rf"optimizer\.{field} is "):
        OptimizerConfig(**{field: value})
