"""Smaller weights: what the files hold, what they cost, and that old readers refuse them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.small_translators import SPECS, encoder_decoder, pairs, rows
from xdesc_jax.descriptors import DescriptorSpec, binary_spec
from xdesc_jax.export.quantization import accuracy_loss, equal, quantized
from xdesc_jax.matching.nearest import match
from xdesc_jax.translation import bundle as model_file
from xdesc_jax.translation import copies
from xdesc_jax.translation.bundle import ParitySample, load
from xdesc_jax.translation.translator import Translator


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("make", [encoder_decoder, pairs])
def test_a_file_computes_what_its_smaller_weights_stand_for(tmp_path, make, dtype, suffix):
    small = quantized(make(), dtype)
    found = load(small.save(tmp_path / f"m.{suffix}", dtype))
    for name, layers in small.networks.items():
        for expected, loaded in zip(layers, found.networks[name], strict=True):
            np.testing.assert_array_equal(loaded[0], expected[0])
            np.testing.assert_array_equal(loaded[1], expected[1])
    assert found.space_id == small.space_id and found.provenance == small.provenance
    assert Translator(found).self_check() < 1e-5


@pytest.mark.parametrize("dtype, low, high", [("float16", 1e-5, 5e-3), ("int8", 1e-4, 0.2)])
def test_the_cost_is_measured_on_the_sample(dtype, low, high):
    bundle = encoder_decoder()
    small = quantized(bundle, dtype)
    assert low < small.provenance["rounding"] < high
    held = small.provenance["weights"]
    assert held["dtype"] == dtype and held["largest_change"] == small.provenance["rounding"]
    assert 0 < held["cosine_distance"] < 1e-2 and 0 <= held["bits_flipped"] < 0.05
    x = rows(6, seed=2)["plain"]
    changed = Translator(small).translate(x, "plain", "grid") - Translator(bundle).translate(x, "plain", "grid")
    assert 0 < np.abs(changed).max() <= small.provenance["rounding"] + 1e-6


def test_the_cost_of_hand_made_rows():
    specs = {"real": DescriptorSpec("real", 2), "bits": binary_spec("bits", 4)}
    a, b = (np.array(x, np.float32) for x in ([[1, 0], [1, 0]], [[1, 0], [0, 1]]))
    p, q = (np.array([x], np.float32) for x in ([0.6, 0.4, 0.9, 0.1], [0.4, 0.4, 0.8, 0.1]))
    found = accuracy_loss(
        ParitySample({}, {"real": a}, {("real", "bits"): p}),
        ParitySample({}, {"real": b}, {("real", "bits"): q}),
        specs,
    )
    assert found == {"largest_change": 1.0, "cosine_distance": 0.5, "bits_flipped": 0.25}
    assert set(accuracy_loss(ParitySample(), ParitySample(), specs).values()) == {None}


def test_a_model_without_a_sample_has_no_figures():
    small = quantized(encoder_decoder(sample=False), "int8")
    assert small.provenance["rounding"] is None and small.provenance["weights"]["dtype"] == "int8"


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_copy_keeps_the_space_of_its_model_and_says_so(dtype):
    bundle = encoder_decoder()
    small = quantized(bundle, dtype)
    assert not equal(small.networks["encoder/grid"], bundle.networks["encoder/grid"])
    assert small.space_id == bundle.space_id == small.provenance["weights"]["space_of"]
    assert copies.described(small) == f"{dtype}, a copy in the joint space of the model that it was made of"
    assert copies.described(bundle) is None
    assert quantized(small, dtype) is small


def test_a_copy_of_a_copy_is_of_the_same_space():
    bundle = encoder_decoder()
    again = quantized(quantized(bundle, "float16"), "int8")
    assert again.space_id == bundle.space_id and copies.rounded_to(again) == "int8"


def test_a_copy_of_pair_networks_has_no_space():
    small = quantized(pairs(), "int8")
    assert small.space_id is None and copies.described(small) == "int8"


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_embeddings_of_a_copy_match_those_of_its_model(tmp_path, dtype):
    x = rows(40)["grid"]
    whole = Translator(encoder_decoder())
    small = Translator.load(quantized(whole.bundle, dtype).save(tmp_path / "small.npz", dtype))
    a, b = whole.embed(x, "grid"), small.embed(x, "grid")
    assert np.abs(a - b).max() > 0 and small.embedding_spec == whole.embedding_spec
    np.testing.assert_array_equal(match(a, b).indices, np.stack([np.arange(40)] * 2, axis=1))
    # Either decodes what the other has embedded.
    name = whole.embedding_spec.name
    np.testing.assert_allclose(small.translate(a, name, "plain"), whole.translate(b, name, "plain"), atol=0.2)


def test_a_copy_of_before_is_read_and_told_where_spaces_differ(tmp_path):
    bundle = encoder_decoder()
    small = quantized(bundle, "int8")
    about = {k: v for k, v in small.provenance["weights"].items() if k != "space_of"}
    old = dataclasses.replace(small, space_id=None, provenance={**small.provenance, "weights": about})
    found = Translator.load(old.save(tmp_path / "old.npz", "int8"))
    assert found.space_id not in (None, bundle.space_id)
    assert copies.described(found.bundle) == "int8, a copy of an older version, whose joint space may be its own"
    with pytest.raises(ValueError, match="its int8 weights were exported by an older version.*export them again"):
        found.spec(bundle.embedding_spec.name)
    with pytest.raises(ValueError) as error:
        Translator(bundle).spec(found.embedding_spec.name)
    assert "older" not in str(error.value)


def test_int8_files_hold_int8_and_biases_as_they_were(tmp_path):
    bundle = quantized(encoder_decoder(), "int8")
    tensors = load_file(bundle.save(tmp_path / "m.safetensors", "int8"))
    kernel, scale = tensors["encoder/bits/0/kernel"], tensors["encoder/bits/0/scale"]
    assert kernel.dtype == np.int8 and kernel.shape == (19, 17) and scale.shape == (17,)
    np.testing.assert_array_equal(kernel.astype(np.float32) * scale, bundle.networks["encoder/bits"][0][0])
    np.testing.assert_array_equal(tensors["encoder/bits/0/bias"], encoder_decoder().networks["encoder/bits"][0][1])
    assert tensors["statistics/bits/photo_covariance"].dtype == np.float16


def test_readers_of_before_refuse_int8_by_its_version_and_read_all_else(tmp_path, monkeypatch):
    bundle = encoder_decoder()
    whole = bundle.save(tmp_path / "whole.safetensors")
    small = bundle.save(tmp_path / "small.safetensors", "int8")
    monkeypatch.setattr(model_file, "VERSION", 1)
    assert load(whole).space_id == bundle.space_id
    with pytest.raises(ValueError, match="small.safetensors: format version is '2', this package reads up to 1"):
        load(small)


def test_ratios_are_added_to_int8_files_as_they_are(tmp_path):
    path = quantized(encoder_decoder(), "int8").save(tmp_path / "m.npz", "int8")
    model_file.save_ratios(path, tmp_path / "n.npz", {"bits->grid": 0.7})
    found, before = load(tmp_path / "n.npz"), load(path)
    assert found.ratios == {"bits->grid": 0.7}
    assert dataclasses.replace(found, ratios=before.ratios).space_id == before.space_id
    assert abs((tmp_path / "n.npz").stat().st_size - path.stat().st_size) < 100


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"encoder/bits/0/scale": np.ones(16, np.float32)}, r"scale \(16,\), expected int8 \[in, out\] and \[out\]"),
        ({"encoder/bits/0/kernel": np.ones((19, 17), np.float32)}, "kernel float32"),
        ({"encoder/bits/0/scale": np.full(17, np.inf, np.float32)}, "not finite"),
        ({"encoder/bits/0/kernel": None}, "kernel float64"),
        ({"encoder/bits/0/scale": None}, "dtype int8, expected float32 or float16"),
    ],
)  # fmt: skip
def test_int8_tensors_that_do_not_fit_are_refused_by_name(tmp_path, changed, message):
    path = encoder_decoder().save(tmp_path / "m.npz", "int8")
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **{k: v for k, v in (arrays | changed).items() if v is not None})
    with pytest.raises(ValueError, match=f"m.npz: .*encoder/bits/0.*{message}"):
        load(path)


def test_weights_beyond_half_precision_are_refused():
    bundle = encoder_decoder()
    kernel, bias = bundle.networks["decoder/grid"][-1]
    networks = {**bundle.networks, "decoder/grid": [*bundle.networks["decoder/grid"][:-1], (kernel, bias + 1e5)]}
    with pytest.raises(ValueError, match="decoder/grid: a weight is 10000"):
        quantized(dataclasses.replace(bundle, networks=networks), "float16")
    assert set(SPECS) == set(bundle.specs)
