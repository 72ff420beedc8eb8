"""Random numbers of a training: the same for any devices, and never one key for two uses."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
from jax.extend import random as extended

from xdesc_jax.config import JitterConfig, LossConfig, ModelConfig, TrainConfig
from xdesc_jax.features import l2net
from xdesc_jax.networks import mlp
from xdesc_jax.train import parallel
from xdesc_jax.train.descriptors import step as descriptor_step
from xdesc_jax.train.descriptors.run import train_descriptor
from xdesc_jax.train.randomness import Use, key_of, row_keys
from xdesc_jax.train.translators import objective
from xdesc_jax.train.translators import step as translator_step
from xdesc_jax.train.translators.run import train

# --- Devices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4])
def test_keys_of_rows_go_by_their_place_in_the_global_batch(count):
    key, devices = key_of(3, Use.DROPOUT), jax.local_devices()[:count]
    whole = jax.random.key_data(row_keys(key, 12))
    assert len(np.unique(whole, axis=0)) == 12

    def step(state, batch, key, hyper, axis_name):
        rows = jax.random.key_data(row_keys(key, len(batch["x"]), axis_name))
        return state, jax.lax.all_gather(rows, axis_name, tiled=True)

    rows = parallel.split_batches([{"x": np.zeros(12)}], devices)
    _, found = parallel.pmapped_step(step, devices)(0, rows, key, 0)
    np.testing.assert_array_equal(found, whole)


# --- Uses ------------------------------------------------------------------------------------------------


@pytest.fixture
def drawn_with(monkeypatch):
    """Every key that numbers are drawn with from now on, as it is drawn with: a generator that tells."""
    found: list[tuple[int, ...]] = []
    own = extended.threefry_prng_impl

    def random_bits(key, bit_width, shape):
        jax.debug.callback(lambda key: found.append(tuple(np.asarray(key).tolist())), key)
        return own.random_bits(key, bit_width, shape)

    telling = extended.define_prng_impl(
        key_shape=own.key_shape, seed=own.seed, split=own.split, random_bits=random_bits, fold_in=own.fold_in,
        name="telling", tag="tell",
    )  # fmt: skip
    plain = jax.random.key
    monkeypatch.setattr(jax.random, "key", lambda seed: plain(seed, impl=telling))
    return found


@pytest.fixture
def one_device(monkeypatch):
    monkeypatch.setattr(parallel, "choose_devices", lambda required=False: jax.local_devices()[:1])


def tell(found, function, key_at):
    """A function whose key is told, where it is called with one."""

    def telling(*arguments):
        key = arguments[key_at]
        jax.debug.callback(lambda key: found.append(tuple(np.asarray(key).tolist())), jax.random.key_data(key))
        return function(*arguments)

    return telling


LINEAR = TrainConfig(
    descriptors=("brief", "sift"), inputs="patches", epochs=1, batch_size=32, validation_rows=32, seed=0, data_seed=0,
    model=ModelConfig(embedding_width=8, hidden_handcrafted=(16,)), loss=LossConfig(variant="linear"),
    jitter=JitterConfig(rotation_deg=5, noise=0.01),
)  # fmt: skip


def test_keys_of_a_translator_never_meet(one_device, drawn_with, patch_records, tmp_path, monkeypatch):
    """Seeds equal, from the first weights and step 0 on: neither those of a use and a step, nor those drawn with."""
    given: list[tuple[int, ...]] = []
    monkeypatch.setattr(mlp, "init_variables", tell(given, mlp.init_variables, 1))
    monkeypatch.setattr(objective, "random_permutation", tell(given, objective.random_permutation, 1))
    monkeypatch.setattr(translator_step, "row_keys", tell(given, row_keys, 0))
    run = train(LINEAR, patch_records, tmp_path / "run")
    steps = json.loads((run / "validation.json").read_text())[-1]["step"]
    assert steps >= 2 and len(set(given)) == len(given) == 1 + 2 * steps
    # The first weights' four networks, a score of each descriptor in each step, two draws a row.
    assert len(set(drawn_with)) == len(drawn_with) >= 4 + 2 * steps + 2 * 32 * steps


def test_keys_of_a_descriptor_never_meet(one_device, drawn_with, pair_parts, descriptor_config, tmp_path, monkeypatch):
    given: list[tuple[int, ...]] = []
    monkeypatch.setattr(l2net, "init", tell(given, l2net.init, 0))
    monkeypatch.setattr(descriptor_step, "row_keys", tell(given, row_keys, 0))
    config = dataclasses.replace(descriptor_config, epochs=1, rows_per_epoch=16, seed=0)
    train_descriptor(config, pair_parts, tmp_path / "run")
    # Augmentation, and dropout of either view.
    assert len(set(given)) == len(given) == 1 + 3 * 2
    assert len(set(drawn_with)) == len(drawn_with) == 1 + (2 + 2) * 8 * 2


def test_each_use_has_a_key_of_its_own():
    keys = [key_of(0, use) for use in Use]
    assert len({tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys}) == len(Use)
