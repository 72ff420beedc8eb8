"""Exported weights: they are the run's, in float16, and their card says how they came about."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors

from xdesc_jax.features import l2net
from xdesc_jax.train.descriptors.config import AugmentationConfig, DescriptorConfig
from xdesc_jax.train.descriptors.export import (
    FLOAT16_DEVIATION,
    export_descriptor,
    float16_weights,
    load_descriptor,
    sample_patches,
    training_command,
)

pytestmark = pytest.mark.usefixtures("thin_network")


@pytest.fixture(scope="module")
def exported(descriptor_run, tmp_path_factory):
    return export_descriptor(descriptor_run, tmp_path_factory.mktemp("export") / "w.safetensors", which="latest")


def test_weights_are_the_runs_in_float16(exported, descriptor_run):
    net, found = load_descriptor(descriptor_run, "latest").net, l2net.load_hardnet(exported)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(net), strict=True):
        np.testing.assert_array_equal(a, np.float16(b))
    patches = jnp.asarray(np.float32(sample_patches()[:16]) / 255)
    rows, narrow = l2net.describe_hardnet(net, patches), l2net.describe_hardnet(found, patches)
    assert np.linalg.norm(rows - narrow, axis=1).max() <= FLOAT16_DEVIATION
    with safetensors.safe_open(exported, "np") as file:
        assert file.metadata()["name"] == "hardnet-xdesc"


def test_the_card_tells_how_the_weights_came_about(exported):
    card = json.loads(exported.with_suffix(".json").read_text())
    assert card["name"] == "hardnet-xdesc" and card["file"]["bytes"] == exported.stat().st_size
    assert card["steps"] == 8 and card["pairs_of_this_run"] == card["pairs"] == 64
    assert card["records"]["one"]["weight"] == 0.75 and card["records"]["two"]["rows_a_batch"] == 2
    assert card["validation"]["step"] == 8 and "rank1" in card["validation_at_start"]
    assert card["command"].startswith("xdesc train-descriptor --data one=0.75 --data two=0.25 --workdir RUN --epochs 2")


def test_the_same_export_again_is_left_alone_and_another_refused(exported, descriptor_run):
    before = exported.stat().st_mtime_ns
    export_descriptor(descriptor_run, exported, which="latest")
    assert exported.stat().st_mtime_ns == before
    card = exported.with_suffix(".json")
    text = card.read_text()
    card.write_text(json.dumps(json.loads(text) | {"export_hash": "other"}))
    with pytest.raises(FileExistsError, match="another configuration"):
        export_descriptor(descriptor_run, exported, which="latest")
    card.write_text(text)


def test_what_float16_does_not_hold_is_refused():
    net = l2net.init(jax.random.key(0))

    def changed(layer, **values):
        statistics = list(net.statistics)
        statistics[layer] = statistics[layer]._replace(
            **{k: jnp.full_like(statistics[layer][0], v) for k, v in values.items()}
        )
        return net._replace(statistics=tuple(statistics))

    with pytest.raises(ValueError, match=r"features.7.running_var' has values up to 70000, float16 ends at 65504"):
        float16_weights(changed(2, variance=7e4), "hardnet", "w")
    with pytest.raises(ValueError, match=r"layers.11.running_var' has values down to 1e-09, which float16 makes 0"):
        float16_weights(changed(3, variance=1e-9), "sosnet", "w")
    kernels = tuple(k * 1e-5 if i == 1 else k for i, k in enumerate(net.kernels))
    narrow = changed(1, variance=1e-7)._replace(kernels=kernels)
    with pytest.raises(ValueError, match=r"float16 moves descriptors by .* at most 0.01"):
        float16_weights(narrow, "hardnet", "w")


def test_only_runs_of_descriptors_are_exported(straight, tmp_path):
    with pytest.raises(ValueError, match=r"not of `xdesc train-descriptor`, lacks"):
        export_descriptor(straight, tmp_path / "w.safetensors")
    with pytest.raises(FileNotFoundError, match="not a run directory"):
        export_descriptor(tmp_path, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="end in .safetensors"):
        export_descriptor(straight, tmp_path / "w.npz")


def test_the_command_names_what_differs_from_the_defaults():
    config = DescriptorConfig("sosnet", "sosnet", resident=True, augmentation=AugmentationConfig(flips=False))
    settings = {"data": {"a": {"weight": 2.0}}, "init": "0", "started_from": {"name": "hardnet-xdesc"}}
    assert training_command(config, settings) == (
        "xdesc train-descriptor --data a=2 --workdir RUN --init hardnet-xdesc "
        "--network sosnet --loss sosnet --resident --augmentation.no-flips"
    )
