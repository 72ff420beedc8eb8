"""Random numbers of a training: the same for any devices, and never one key for two uses."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
from jax.extend import random as extended

from tests.support.eight_devices import lines_of
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


# Runs in a process of its own, which has eight devices: 16 rows of patches, of which 3 are padding, with jitter; and as
# many pairs with dropout and augmentation, in a network of a sixteenth of the channels. Gradients are Adam's first
# moments after a step. In float64, so that no ReLU and no hardest negative turns on the rounding of a sum over devices.
DEVICES = """
import functools, json
from functools import partial
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from tests.support.thin_network import make_thin
from tests.train.descriptors import test_step as pairs
from xdesc_jax.config import ContextConfig, JitterConfig, ModelConfig, TrainConfig
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features import l2net
from xdesc_jax.networks import mlp
from xdesc_jax.train import parallel
from xdesc_jax.train.descriptors.step import train_step as descriptor_step
from xdesc_jax.train.translators import inputs, step as translators

make_thin()
BATCH = pairs.make_batch(16, padding=3)
SPECS = {name: get_spec(name) for name in ("sift", "brief")}
CONFIG = TrainConfig(
    descriptors=tuple(SPECS), inputs="patches", model=ModelConfig(embedding_width=6, hidden_handcrafted=(9,)),
    jitter=JitterConfig(10.0, 0.1, 1.0, 0.05, 0.1, 0.02),
)

@functools.cache
def first_state():
    state = translators.first_state(mlp.build_networks(SPECS, CONFIG.model), CONFIG)
    return jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, state)

def translator(axis):
    step = partial(
        translators.train_step, networks=mlp.build_networks(SPECS, CONFIG.model, axis), variant="linear",
        distance="squared", inputs_of=inputs.inputs_function(CONFIG, SPECS, dict.fromkeys(SPECS, 1.0), augment=True),
    )
    own = {name: BATCH[name] for name in ("patch", "mask")}
    return step, first_state(), own, translators.keys_of(CONFIG), translators.hyper_of(CONFIG)

NEAR = np.random.default_rng(0)
AROUND = {name: get_spec(name) for name in ("colmap-sift", "xfeat")}
LOOKING = TrainConfig(
    descriptors=tuple(AROUND), resident=True,
    model=ModelConfig(embedding_width=6, hidden_handcrafted=(9,), context=ContextConfig("keypoint", 2, 1, 5, 2, 0.3)),
)
KEYPOINTS = np.concatenate([NEAR.uniform(1, 50, (16, 4, 3)), NEAR.uniform(-3, 3, (16, 4, 1))], axis=2)
ROWS = {
    "colmap-sift": NEAR.integers(0, 255, (16, 128)).astype(np.uint8), "xfeat": NEAR.normal(size=(16, 64)),
    "keypoint": KEYPOINTS[:, 3], "mask": BATCH["mask"], "neighbours/keypoint": KEYPOINTS[:, :3],
    "neighbours/colmap-sift": NEAR.integers(0, 255, (16, 3, 128)).astype(np.uint8),
    "neighbours/mask": NEAR.random((16, 3)) < 0.8,
}

def context(axis):
    step = partial(
        translators.train_step, networks=mlp.build_networks(AROUND, LOOKING.model, axis), variant="quadratic",
        distance="squared", inputs_of=inputs.inputs_function(LOOKING, AROUND, dict.fromkeys(AROUND, 1.0), augment=True),
    )
    state = translators.first_state(mlp.build_networks(AROUND, LOOKING.model), LOOKING)
    state = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, state)
    return step, state, ROWS, translators.keys_of(LOOKING), translators.hyper_of(LOOKING)

def descriptor(axis):
    step = partial(
        descriptor_step, kind="hardnet", loss="hardnet", augmentation=pairs.augment_wide, dropout=0.2,
        convolution=l2net.convolve_columns,
    )
    return step, pairs.fresh(), BATCH, pairs.KEYS, pairs.HYPER

def run(make, form, count):
    backend, devices = parallel.BACKENDS[form], jax.local_devices()[:count]
    step, state, rows, keys, hyper = make(backend.axis_name)
    mapped = backend.step(step, devices)
    state, metrics = mapped(backend.replicate(state, devices), backend.split([rows], devices), keys, hyper)
    leaves = [np.ravel(x) for x in jax.tree.leaves(jax.device_get(state.opt_state.mu))]
    assert all(x.dtype == np.float64 for x in leaves)
    return np.concatenate(leaves), float(metrics["loss"].total)

for make in (translator, context, descriptor):
    one, loss = run(make, "pmap", 1)
    for form, count in CASES:
        found, found_loss = run(make, form, count)
        off = np.linalg.norm(found - one) / np.linalg.norm(one)
        print(json.dumps([make.__name__, form, count, float(off), abs(found_loss / loss - 1)]))
"""
CASES = [("pmap", 8), ("sharded", 1), ("sharded", 8)]


@pytest.fixture(scope="module")
def deviations() -> dict[tuple[str, str, int], list[float]]:
    """Of gradients and loss from those of one device, relative to their size."""
    lines = lines_of(f"CASES = {CASES}\n{DEVICES}")
    found = [json.loads(line) for line in lines if line.startswith("[")]
    return {(kind, form, count): off for kind, form, count, *off in found}


@pytest.mark.parametrize(("form", "count"), CASES)
@pytest.mark.parametrize("kind", ["translator", "context", "descriptor"])
def test_gradients_with_jitter_and_dropout_are_the_same_on_any_devices(deviations, kind, form, count):
    assert max(deviations[kind, form, count]) <= 1e-6


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
