"""Runs that start from a model file: they compute what it does, and refuse one that does not fit."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.run_log import log_lines
from xdesc_jax.config import OptimizerConfig
from xdesc_jax.descriptors import from_stored
from xdesc_jax.export.export import to_bundle
from xdesc_jax.files.whole import content_hash
from xdesc_jax.networks import mlp
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.step import create_state
from xdesc_jax.train.translators.trained import load_model
from xdesc_jax.train.translators.warmstart import start_from_bundle


@pytest.mark.parametrize("normalization", ["batch", "none"])
def test_a_state_from_a_model_file_computes_the_same(straight, toy_config, normalization):
    bundle = to_bundle(load_model(straight))
    config = dataclasses.replace(toy_config.model, normalization=normalization)
    networks = mlp.build_networks(bundle.specs, config)
    scales = {"toy-bits": 1.0, "toy-plain": 5.0, "toy-unit": 1.0}
    sample = {n: np.asarray(from_stored(x, bundle.specs[n]), np.float32) for n, x in bundle.sample.inputs.items()}
    rows = {n: jnp.asarray(x / scales[n]) for n, x in sample.items()}
    state = start_from_bundle(create_state(networks, jax.random.key(9)), networks, bundle, rows, scales)
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    for (source, target), expected in bundle.sample.translations.items():
        found = mlp.translate(networks, variables, rows[source], source, target) * scales[target]
        if bundle.specs[target].binary:
            found = jax.nn.sigmoid(found)
        np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_state_from_a_model_file_has_the_statistics_of_rows_that_have_the_descriptor(straight, toy_config):
    """Half of the rows lack one of the three, as in records of several folders: no moment is told of those."""
    bundle = to_bundle(load_model(straight))
    networks, scales = mlp.build_networks(bundle.specs, toy_config.model), dict.fromkeys(bundle.specs, 1.0)
    rng = np.random.default_rng(3)
    rows = {n: jnp.asarray(rng.normal(size=(60, spec.width)), jnp.float32) for n, spec in bundle.specs.items()}
    held = jnp.arange(60) % 2 == 0
    rows["toy-unit"] = jnp.where(held[:, None], rows["toy-unit"], 0)
    state = start_from_bundle(create_state(networks, jax.random.key(9)), networks, bundle, rows, scales)

    def computed(name, x, mask):
        """As inference computes it, and as a training step does by the moments of the rows that count."""
        variables = {"params": state.params[name], "batch_stats": state.batch_stats[name]}
        module = networks.modules[name]
        return module.apply(variables, x), module.apply(variables, x, mask, True, mutable=["batch_stats"])[0]

    plain, trained = computed("encoder/toy-unit", rows["toy-unit"], held)
    np.testing.assert_allclose(trained[::2], plain[::2], rtol=1e-3, atol=1e-3)
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    embedded = jnp.concatenate([mlp.embed(networks, variables, rows[n], n) for n in networks.names])
    both = jnp.concatenate([held & held if n == "toy-unit" else held | True for n in networks.names])
    plain, trained = computed("decoder/toy-plain", embedded, both)
    np.testing.assert_allclose(trained[both], plain[both], rtol=1e-3, atol=1e-3)


def test_training_goes_on_from_a_model_file(straight, toy_records, toy_config, tmp_path):
    """A run from a model starts where the model ended."""
    to_bundle(load_model(straight)).save(tmp_path / "model.safetensors")
    once = dataclasses.replace(toy_config, epochs=1, optimizer=OptimizerConfig(1e-4))
    run = train(once, toy_records, tmp_path / "run", init=tmp_path / "model.safetensors")
    first, model_end = log_lines(run)[0]["loss"], log_lines(straight)[-2]["loss"]
    assert first < 1.15 * model_end
    assert load_model(run).provenance["init"] == content_hash(tmp_path / "model.safetensors")


def test_init_from_an_unknown_model_is_refused_before_any_work(toy_records, toy_config, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing-like-it: no such model file, nor one that ships"):
        train(toy_config, toy_records, tmp_path / "run", init="nothing-like-it")
    assert not (tmp_path / "run").exists()


def test_init_from_another_architecture_is_refused(straight, toy_config):
    bundle = to_bundle(load_model(straight))
    wider = dataclasses.replace(toy_config.model, embedding_width=9)
    networks = mlp.build_networks(bundle.specs, wider)
    with pytest.raises(ValueError, match="encoder/toy-bits has layers"):
        start_from_bundle(create_state(networks, jax.random.key(0)), networks, bundle, {}, {})
