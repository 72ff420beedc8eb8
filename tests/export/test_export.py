"""Exported models against the flax networks that they come from."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support import small_translators
from tests.support.killed import kill_within
from xdesc_jax import cli
from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, stored, unit_rows
from xdesc_jax.export import export
from xdesc_jax.export.quantization import equal, quantized
from xdesc_jax.files import arrays
from xdesc_jax.networks import mlp
from xdesc_jax.train.translators import trained
from xdesc_jax.train.translators.trained import TrainedModel
from xdesc_jax.translation import bundle as model_file
from xdesc_jax.translation import parts
from xdesc_jax.translation.deviation import RowStatistics
from xdesc_jax.translation.translator import Translator

SPECS = {
    "grid": DescriptorSpec("grid", 12, output="relu", storage_dtype="uint8", storage_scale=512.0, hidden=(31, 17)),
    "plain": DescriptorSpec("plain", 9, normalized=False, hidden=(13,)),
    "bits": binary_spec("bits", 19, hidden=(23, 11)),
}


def make_rows(n, seed=1):
    """Canonical rows of each descriptor."""
    rng = np.random.default_rng(seed)
    return {
        "grid": unit_rows(rng.random((n, 12))),
        "plain": (9 * rng.normal(size=(n, 9))).astype(np.float32),
        "bits": rng.random((n, 19)) < 0.4,
    }


@functools.cache
def make_model(kind="encoder_decoder"):
    """Flax networks with random batch norms, their variables, and the same as a TrainedModel."""
    config = ModelConfig(kind=kind, embedding_width=8)
    networks = mlp.build_networks(SPECS, config)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda key: mlp.init_variables(networks, key), jax.random.key(0))
    # Weights of unit gain, and variances that are positive.
    draw = {
        1: lambda shape: rng.uniform(0.3, 2, shape),
        2: lambda shape: rng.normal(0, shape[0] ** -0.5, shape),
    }
    variables = jax.tree.map(lambda x: draw[len(x.shape)](x.shape).astype(np.float32), shapes)
    layers = {}
    for name, module in networks.modules.items():
        params, stats = variables["params"][name], variables["batch_stats"][name]
        norms = [params[f"norm{i}"] | stats[f"norm{i}"] for i in range(len(module.hidden))]
        layers[name] = [params[f"linear{i}"] | norm for i, norm in enumerate([*norms, {}])]
        for layer in layers[name][:-1]:  # layers before a norm have no bias of their own
            layer["bias"] = np.zeros(layer["kernel"].shape[1], np.float32)
    rows = make_rows(64)
    model = TrainedModel(
        kind=kind,
        specs=SPECS,
        embedding_width=8 if kind == "encoder_decoder" else 0,
        networks=layers,
        statistics={n: RowStatistics(x.mean(axis=0), x.std(axis=0) + 1e-3) for n, x in rows.items()},
        samples={n: stored(x, SPECS[n]) for n, x in rows.items()},
        config={"epochs": 5},
        provenance={"steps": 780},
    )
    return networks, variables, model


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run directory whose model is hand-made."""
    monkeypatch.setattr(trained, "load_model", lambda run, which="best": make_model()[2])
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.mark.parametrize(
    "kind, source, target",
    [("encoder_decoder", s, t) for s in SPECS for t in SPECS]
    + [("pair", *p) for p in itertools.permutations(SPECS, 2)],
)
def test_numpy_translates_as_flax(tmp_path, kind, source, target):
    networks, variables, model = make_model(kind)
    translator = Translator.load(export.to_bundle(model).save(tmp_path / "model.safetensors"))
    x = make_rows(41, seed=3)[source]
    with jax.default_matmul_precision("highest"):
        expected = mlp.translate(networks, variables, np.asarray(x, np.float32), source, target)
    found = translator.translate(x, source, target)
    if target == "bits":
        np.testing.assert_array_equal(found, np.asarray(expected) > 0)
    else:
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("source", SPECS)
def test_numpy_embeds_as_flax(source):
    networks, variables, model = make_model()
    x = make_rows(41, seed=3)[source]
    with jax.default_matmul_precision("highest"):
        expected = mlp.embed(networks, variables, np.asarray(x, np.float32), source)
    np.testing.assert_allclose(Translator(export.to_bundle(model)).embed(x, source), expected, atol=1e-5)


def test_folding_a_hand_made_norm():
    layer = {
        "kernel": np.array([[2.0, 1.0]]), "bias": np.array([1.0, 0.0]), "scale": np.array([3.0, 1.0]),
        "offset": np.array([5.0, 0.0]), "mean": np.array([2.0, 0.0]), "var": np.array([4 - 1e-5, 1 - 1e-5]),
    }  # fmt: skip
    ((kernel, bias),) = export.fold([layer])
    np.testing.assert_allclose(kernel, [[3, 1]], rtol=1e-6)
    np.testing.assert_allclose(bias, [3.5, 0], rtol=1e-6)


def test_a_run_exports_to_a_model_that_checks_itself(run, tmp_path, capsys):
    assert cli.main(["export", str(run), str(tmp_path / "model.safetensors")]) == 0
    found = model_file.load(tmp_path / "model.safetensors")
    assert found.provenance["steps"] == 780 and found.provenance["checkpoint"] == "best"
    assert found.config == {"epochs": 5}
    assert {len(rows) for rows in found.sample.inputs.values()} == {32}
    assert len(found.sample.embeddings) == 3 and len(found.sample.translations) == 9
    assert Translator(found).self_check() <= 1e-5
    assert json.loads((tmp_path / "model.safetensors.json").read_text())["space_id"] == found.space_id
    assert "encoder/grid" in capsys.readouterr().out


def test_a_model_that_numpy_does_not_reproduce_is_not_written(run, tmp_path, monkeypatch, capsys):
    exact = export.fold
    monkeypatch.setattr(export, "fold", lambda layers: [(k, b + 1e-3) for k, b in exact(layers)])
    assert cli.main(["export", str(run), str(tmp_path / "model.safetensors")]) == 2
    assert "from the training network, expected at most 1e-05" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [run]


def test_finished_work_is_skipped_and_another_model_is_kept(run, tmp_path, monkeypatch, capsys):
    out = tmp_path / "model.safetensors"
    assert cli.main(["export", str(run), str(out)]) == 0
    before = out.stat().st_mtime_ns
    assert cli.main(["export", str(run), str(out)]) == 0
    assert "up to date" in capsys.readouterr().out and out.stat().st_mtime_ns == before
    other = dataclasses.replace(make_model()[2], provenance={"steps": 1560})
    monkeypatch.setattr(trained, "load_model", lambda run, which="best": other)
    assert cli.main(["export", str(run), str(out)]) == 2
    shown = capsys.readouterr().err
    assert "another configuration (" in shown and "provenance.steps: " in shown and " -> 1560" in shown
    assert out.stat().st_mtime_ns == before
    assert cli.main(["export", str(run), str(out), "--overwrite"]) == 0
    assert model_file.load(out).provenance["steps"] == 1560


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert cli.main(["export", str(tmp_path), str(tmp_path / "model.safetensors")]) == 2
    assert "not a run directory" in capsys.readouterr().err


def test_what_is_neither_run_nor_model_and_a_name_of_another_format_are_told(tmp_path, capsys):
    assert cli.main(["export", "opncv", str(tmp_path / "model.safetensors")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert (
        "opncv: no such run directory or model file, nor one that ships with the package; did you mean opencv?" in told
    )
    assert cli.main(["export", "opencv", str(tmp_path / "model.npz")]) == 2
    assert "found '.npz'; did you mean --format npz?" in capsys.readouterr().err


def test_half_precision_halves_the_weights_and_computes_what_the_file_says(run, tmp_path):
    whole = export.export(run, tmp_path / "whole.safetensors")
    half = export.export(run, tmp_path / "half.safetensors", dtype="float16")
    rows = make_rows(7)["grid"]
    a, b = (Translator.load(path) for path in (whole, half))
    weights = sum(k.nbytes + v.nbytes for layers in model_file.load(whole).networks.values() for k, v in layers)
    assert whole.stat().st_size - half.stat().st_size == pytest.approx(weights / 2, rel=0.05)
    assert b.self_check() < 1e-5
    changed = np.abs(a.translate(rows, "grid", "plain") - b.translate(rows, "grid", "plain")).max()
    assert 0 < changed < 0.1
    assert 0 < model_file.load(half).provenance["rounding"] < 0.1
    assert a.space_id == b.space_id


def test_weights_beyond_half_precision_are_refused(run, tmp_path, monkeypatch):
    model = make_model()[2]
    first = {**model.networks["encoder/grid"][-1]}
    first["bias"] = np.full_like(first["bias"], 1e5)
    networks = {**model.networks, "encoder/grid": [*model.networks["encoder/grid"][:-1], first]}
    monkeypatch.setattr(trained, "load_model", lambda *_: dataclasses.replace(model, networks=networks))
    with pytest.raises(ValueError, match=r"encoder/grid: a weight is 100000, beyond the 65504"):
        export.export(run, tmp_path / "half.safetensors", dtype="float16")
    assert not (tmp_path / "half.safetensors").exists()


def test_a_model_added_to_another_is_rounded_in_the_space_of_both(run, tmp_path, monkeypatch):
    model = make_model()[2]
    base = export.to_bundle(model)
    monkeypatch.setattr(trained, "load_model", lambda *_: dataclasses.replace(model, base=base))
    half = model_file.load(export.export(run, tmp_path / "half.safetensors", dtype="float16"))
    assert half.space_id == base.space_id == half.provenance["weights"]["space_of"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("format", ["safetensors", "npz"])
def test_a_model_file_becomes_one_of_another_form(tmp_path, capsys, format, dtype):
    bundle = small_translators.encoder_decoder()
    model, out = bundle.save(tmp_path / "model.safetensors"), tmp_path / f"m.{format}"
    words = ["export", str(model), str(out), "--format", format, "--dtype", dtype]
    assert cli.main(words) == 0
    found, x = Translator.load(out), small_translators.rows(7)
    change = np.abs(
        found.translate(x["grid"], "grid", "plain") - Translator(bundle).translate(x["grid"], "grid", "plain")
    )
    assert change.max() == 0 if dtype == "float32" else 0 < change.max() < 0.1
    assert found.space_id == bundle.space_id
    record = json.loads((tmp_path / f"m.{format}.json").read_text())
    assert record["loss"] == found.bundle.provenance.get("weights") and record["parity_deviation"] < 1e-5
    shown = capsys.readouterr().out
    assert ("loss of" in shown) == ("a copy in the joint space of the model" in shown) == (dtype != "float32")
    assert cli.main(words) == 0
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize("format", ["safetensors", "npz"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_weights_stay_as_the_model_stores_them_unless_another_dtype_is_asked_for(tmp_path, capsys, format, dtype):
    small = small_translators.encoder_decoder()
    small = quantized(small, dtype) if dtype != "float32" else small
    model, out = small.save(tmp_path / "model.safetensors", dtype), tmp_path / f"m.{format}"
    words = ["export", str(model), str(out), "--format", format]
    assert cli.main(words) == 0
    assert {held.dtype.name for held in kernels(out)} == {dtype}
    found = model_file.load(out)
    assert found.storage == dtype and found.provenance == small.provenance
    assert all(map(equal, found.networks.values(), small.networks.values()))
    # The same weights in another dtype are another file.
    assert cli.main([*words, "--dtype", "float32"]) == (0 if dtype == "float32" else 2)
    told = f"another configuration (dtype: {dtype} -> float32"
    assert (told in capsys.readouterr().err) == (dtype != "float32")
    assert cli.main([*words, "--dtype", "float32", "--overwrite"]) == 0
    assert {held.dtype.name for held in kernels(out)} == {"float32"}
    assert all(map(equal, model_file.load(out).networks.values(), small.networks.values()))


def test_a_model_that_was_calibrated_anew_is_another_and_its_file_may_be_calibrated(tmp_path, capsys):
    bundle = small_translators.encoder_decoder()
    model, held = bundle.save(tmp_path / "model.safetensors"), bundle.ratios
    words = ["export", str(model), str(tmp_path / "m.npz"), "--format", "npz"]
    assert cli.main(words) == 0
    model_file.save_ratios(tmp_path / "m.npz", tmp_path / "m.npz", held | {"grid": 0.7})
    assert cli.main(words) == 0 and "up to date" in capsys.readouterr().out
    model_file.save_ratios(model, model, held | {"grid": 0.8})
    assert cli.main(words) == 2 and "another configuration (ratios.grid: 0.7 -> 0.8)" in capsys.readouterr().err
    assert cli.main([*words, "--overwrite"]) == 0 and cli.main(words) == 0
    assert Translator.load(tmp_path / "m.npz").ratio("grid", "grid") == 0.8 and "up to date" in capsys.readouterr().out


def test_one_encoder_of_an_int8_model_is_int8(tmp_path):
    small = quantized(small_translators.encoder_decoder(), "int8")
    model, sizes = small.save(tmp_path / "model.safetensors", "int8"), {}
    for name, words in {"own": {}, "whole": {"dtype": "float32"}}.items():
        out = tmp_path / f"{name}.npz"
        export.export(model, out, format="npz", source="grid", target="embedding", **words)
        sizes[name] = sum(held.nbytes for held in kernels(out))
    assert sizes["whole"] == 4 * sizes["own"]


def kernels(path):
    """The kernels of a model file, as it stores them."""
    tensors = load_file(path) if path.suffix == ".safetensors" else arrays.read(path)[1]
    return [held for name, held in tensors.items() if name.endswith("/kernel")]


@pytest.mark.parametrize(
    "kind, source, target, networks, samples",
    [
        ("encoder_decoder", "grid", "embedding", {"encoder/grid"}, (1, 1, 0)),
        ("encoder_decoder", "embedding", "bits", {"decoder/bits"}, (0, 0, 0)),
        ("encoder_decoder", "grid", "bits", {"encoder/grid", "decoder/bits"}, (1, 1, 1)),
        ("pair", "grid", "bits", {"pair/grid/bits"}, (1, 0, 1)),
    ],
)
def test_one_translation_alone_keeps_its_space_and_sample(tmp_path, kind, source, target, networks, samples):
    bundle = {"encoder_decoder": small_translators.encoder_decoder, "pair": small_translators.pairs}[kind]()
    model, out = bundle.save(tmp_path / "model.safetensors"), tmp_path / "m.npz"
    assert cli.main(["export", str(model), str(out), "--format", "npz", "--source", source, "--target", target]) == 0
    found = Translator.load(out)
    assert set(found.bundle.networks) == networks and set(found.names) == {source, target} - {"embedding"}
    assert found.space_id == bundle.space_id
    held = found.bundle.sample
    assert (len(held.inputs), len(held.embeddings), len(held.translations)) == samples
    assert found.bundle.ratios == ({"grid->bits": 0.8} if {source, target} == {"grid", "bits"} else {})
    assert found.bundle.provenance["selected"] == [source, target]
    x = small_translators.rows(7)[source]
    np.testing.assert_array_equal(
        found.translate(x, source, target), Translator(bundle).translate(x, source, target)
    )  # fmt: skip


def test_smaller_selections_share_the_space_of_their_model(tmp_path):
    model = small_translators.encoder_decoder().save(tmp_path / "model.safetensors")
    device = export.export(
        model, tmp_path / "device.npz", format="npz", dtype="int8", source="bits", target="embedding"
    )  # fmt: skip
    server = export.export(model, tmp_path / "server.safetensors", dtype="int8")
    assert {model_file.load(p).space_id for p in (device, server)} == {model_file.load(model).space_id}


def test_a_file_that_reads_otherwise_is_not_written(tmp_path, monkeypatch, capsys):
    model = small_translators.encoder_decoder().save(tmp_path / "model.safetensors")
    exact = parts.from_int8
    monkeypatch.setattr(parts, "from_int8", lambda q, scale: exact(q, scale) * 2)
    assert cli.main(["export", str(model), str(tmp_path / "m.npz"), "--format", "npz", "--dtype", "int8"]) == 2
    assert "m.npz: network" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


KILLED = """
import os, signal, sys
from xdesc_jax.files import whole
with getattr(whole, sys.argv[1])(sys.argv[2]) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("writes", ["atomic", "staged"])
def test_what_a_killed_export_left_goes_with_the_next_one(tmp_path, writes):
    model, out = small_translators.encoder_decoder().save(tmp_path / "model.safetensors"), tmp_path / "new" / "m.npz"
    kill_within(KILLED, writes, out)
    assert len(list(out.parent.iterdir())) == 1
    export.export(model, out, format="npz")
    assert sorted(path.name for path in out.parent.iterdir()) == ["m.npz", "m.npz.json"]
