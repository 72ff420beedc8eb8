"""Model files whose encoders look at the photo's other rows: what goes in comes out, in every form, and all else is
refused; files without context are written as before."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tests.support.context_translators import CONTEXT, TOLD, context_translator, turning_translator
from tests.support.framed_translators import framed_translator
from tests.support.small_translators import layers
from tests.translation.test_bundle import rewrite
from xdesc_jax import pretrained
from xdesc_jax.config import ContextConfig
from xdesc_jax.export.export import selected
from xdesc_jax.export.quantization import quantized
from xdesc_jax.inspection.inspect import inspect
from xdesc_jax.translation.bundle import load
from xdesc_jax.translation.copies import inherit_space
from xdesc_jax.translation.translator import Translator


@pytest.fixture(scope="module")
def bundle():
    return context_translator()


def header(path):
    with safe_open(path, "numpy") as file:
        return file.metadata()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_saved_model_loads_equal_and_checks_itself(bundle, dtype, suffix, tmp_path):
    held = bundle if dtype == "float32" else quantized(bundle, dtype)
    found = load(held.save(tmp_path / f"m.{suffix}", dtype))
    assert found.context == CONTEXT and found.space_id == bundle.space_id
    assert [found.takes_context(name) for name in sorted(found.networks)] == [False] * 3 + [True, True, False]
    weights = held.weights()
    assert (
        found.weights().keys() == weights.keys() == bundle.networks.keys() | {"context/turned", "context/turned-bits"}
    )
    for name, expected in weights.items():
        for layer, expected_layer in zip(found.weights()[name], expected, strict=True):
            for array, expected_array in zip(layer, expected_layer, strict=True):
                np.testing.assert_array_equal(array, expected_array)
    for name, at in bundle.sample.positions.items():
        np.testing.assert_array_equal(found.sample.positions[name], at)
    assert Translator(found).self_check() < 1e-5
    broken = dataclasses.replace(found.sample, positions={n: x[::-1] for n, x in found.sample.positions.items()})
    with pytest.raises(ValueError, match="is off by"):
        Translator(dataclasses.replace(found, sample=broken)).self_check()


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_weights_are_those_of_contexts_too(bundle, dtype, tmp_path):
    small = quantized(bundle, dtype)
    for (kernel, bias), (kernel0, bias0) in zip(small.contexts["turned"], bundle.contexts["turned"], strict=True):
        step = np.abs(kernel0).max(axis=0) / (127 if dtype == "int8" else 1024)
        assert np.abs(kernel - kernel0).max() > 0 and (np.abs(kernel - kernel0) <= 0.51 * step).all()
        assert (np.array_equal(bias, bias0)) == (dtype == "int8")
    sizes = {
        d: m.save(tmp_path / d / "m.safetensors", d).stat().st_size
        for d, m in {"float32": bundle, dtype: small}.items()
    }
    assert sizes[dtype] < sizes["float32"]
    assert (small.provenance["weights"]["largest_change"] > 1e-5) and Translator(small).self_check() < 1e-5


def test_files_are_of_the_oldest_version_that_holds_them(bundle, tmp_path):
    of_context = header(bundle.save(tmp_path / "m.safetensors", "int8"))
    assert of_context["version"] == "4"
    assert json.loads(of_context["context"]) == {"nearest": 3, "larger": 2, "width": 6, "heads": 2}
    every = context_translator("every")
    assert header(every.save(tmp_path / "every.safetensors"))["version"] == "5"
    held = load(tmp_path / "every.safetensors")
    assert held.context == every.context and held.takes_context("encoder/upright")
    assert Translator(held).self_check() < 1e-5
    # No encoder has context: `context` says nothing.
    framed = dataclasses.replace(framed_translator(), context=CONTEXT)
    assert framed.context is None
    of_frames = header(framed.save(tmp_path / "m.safetensors", "int8"))
    assert of_frames["version"] == "3" and "context" not in of_frames


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_context_in_a_space_of_turned_patches_has_a_version_of_its_own(dtype, tmp_path):
    model = turning_translator()
    held = model if dtype == "float32" else quantized(model, dtype)
    told = header(held.save(tmp_path / "m.safetensors", dtype))
    assert told["version"] == "6" and json.loads(told["frame"]) == {"space": "keypoint", "harmonics": 3}
    found = load(tmp_path / "m.safetensors")
    assert (found.frame, found.harmonics, found.context) == ("keypoint", 3, CONTEXT)
    assert Translator(found).self_check() < 1e-5


@pytest.mark.parametrize("name", ["opencv", "mixed"])
def test_models_that_ship_are_written_as_they_are(name, tmp_path):
    """In the oldest form that holds them: without frames, and with context."""
    shipped = Path(pretrained.path(name, "translator"))
    assert load(shipped).save(tmp_path / "m.safetensors", "float16").read_bytes() == shipped.read_bytes()


def test_the_joint_space_is_that_of_its_context(bundle):
    kernel, bias = bundle.contexts["turned"][2]
    other = {
        **bundle.contexts,
        "turned": [*bundle.contexts["turned"][:2], (kernel, bias + 1), bundle.contexts["turned"][3]],
    }
    ids = {
        bundle.space_id,
        dataclasses.replace(bundle, contexts=other, space_id=None).space_id,
        dataclasses.replace(bundle, context=dataclasses.replace(CONTEXT, nearest=4), space_id=None).space_id,
    }
    assert len(ids) == 3
    decoders = {n: [(k + 1, b) for k, b in x] if n.startswith("decoder") else x for n, x in bundle.networks.items()}
    assert dataclasses.replace(bundle, networks=decoders, space_id=None).space_id == bundle.space_id
    # How it was trained is no matter of the space.
    trained = dataclasses.replace(CONTEXT, least_share=0.9)
    assert dataclasses.replace(bundle, context=trained, space_id=None).space_id == bundle.space_id


def test_a_model_bears_the_space_of_another_with_the_same_contexts_alone(bundle):
    specs = {n: s for n, s in bundle.specs.items() if n != "turned-bits"}
    networks = {n: x for n, x in bundle.networks.items() if not n.endswith("-bits")}
    contexts = {"turned": bundle.contexts["turned"]}
    base = dataclasses.replace(
        bundle, specs=specs, networks=networks, contexts=contexts, sample=type(bundle.sample)(), space_id=None
    )  # fmt: skip
    assert base.space_id != bundle.space_id
    assert inherit_space(bundle, base).space_id == base.space_id
    kernel, bias = contexts["turned"][0]
    changed = {**bundle.contexts, "turned": [(kernel, bias * 2), *contexts["turned"][1:]]}
    with pytest.raises(ValueError, match=f"network 'context/turned' differs from that of space {base.space_id}"):
        inherit_space(dataclasses.replace(bundle, contexts=changed), base)
    wider = dataclasses.replace(bundle, context=dataclasses.replace(CONTEXT, larger=1))
    with pytest.raises(ValueError, match=r"context is .*'larger': 1.* expected .*'larger': 2.* as in space"):
        inherit_space(wider, base)


def test_one_translation_keeps_the_context_that_it_needs(bundle):
    encoder, decoder = (selected(bundle, *ends, "m") for ends in (("turned", "embedding"), ("embedding", "turned")))
    assert set(encoder.contexts) == {"turned"} and encoder.sample.positions.keys() == {"turned"}
    assert Translator(encoder).self_check() < 1e-5
    assert decoder.contexts == {} and decoder.context is None and decoder.space_id == bundle.space_id


def test_inspect_tells_of_the_context_and_counts_its_values(bundle, tmp_path, capsys):
    found = inspect(bundle.save(tmp_path / "m.safetensors"))
    shown = " ".join(capsys.readouterr().out.split())
    assert "looks at 3 nearest and 2 larger neighbours (encoders of turned, turned-bits)" in shown
    assert found["context"] == {"nearest": 3, "larger": 2, "width": 6, "heads": 2, "of": ["turned", "turned-bits"]}
    # 19 and 26 values wide with their frame: row, geometry, token and query, each with its bias.
    of_contexts = sum(wide * 6 + 6 + 8 * 6 + 6 + 6 * 6 + 6 + wide * 12 + 12 for wide in (19, 26))
    of_networks = sum(k.size + b.size for x in bundle.networks.values() for k, b in x)
    assert found["parameters"] == of_networks + of_contexts
    assert "context" not in inspect(framed_translator().save(tmp_path / "framed.safetensors"))


def of(bundle, **changes):
    return dataclasses.replace(bundle, space_id=None, **changes)


def test_contexts_that_do_not_fit_are_refused(bundle):
    rng, turned = np.random.default_rng(0), list(bundle.contexts["turned"])
    nan = [*turned[:3], (turned[3][0], np.full_like(turned[3][1], np.nan))]
    for changes, message in [
        ({"context": None}, "context is None, expected whole numbers nearest, larger, width, heads"),
        ({"context": dataclasses.replace(CONTEXT, nearest=2.5)}, "'nearest': 2.5"),
        ({"context": dataclasses.replace(CONTEXT, nearest=10**9)}, "'nearest': 1000000000.* at most 4096 neighbours"),
        ({"context": dataclasses.replace(CONTEXT, width=7)}, r"context/turned: kernels and biases \[\(\(19, 6\)"),
        ({"context": dataclasses.replace(CONTEXT, heads=1)}, r"context/turned: .*expected .*\(\(19, 6\), \(6,\)\)\]"),
        ({"contexts": {"turned": turned[:3]}}, r"context/turned: kernels"),
        ({"contexts": {"turned": nan}}, "context/turned holds a value that is not finite"),
        ({"contexts": {"upright": turned}}, r"context/upright: kernels .* expected \[\(\(7, 6\), \(6,\)\)"),
        ({"contexts": {"absent": turned}}, "context of 'absent', expected .*: encoder/turned, encoder/turned-bits"),
        ({"frame": "keypoint"}, r"context/turned: kernels .* expected \[\(\(12, 6\), \(6,\)\), \(\(14, 6\), "),
        ({"contexts": {}}, rf"encoder/turned/0: kernel \({19 + TOLD}, 17\).* expected \(19, 17\)"),
        ({"networks": bundle.networks | {"encoder/turned": layers(rng, 19, 17, 8)}}, rf"expected \({19 + TOLD}, 17\)"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            of(bundle, **changes)


def test_files_that_do_not_fit_are_refused_by_name(bundle, tmp_path):
    path = bundle.save(tmp_path / "m.safetensors")
    whole = path.read_bytes()
    form = {"nearest": 3, "larger": 2, "width": 6, "heads": 2}
    for change, message in [
        ({"drop": ["context/turned/2/bias"]}, "tensor 'context/turned/2/bias' is missing"),
        ({"drop": ["context/turned/0/kernel"]}, "does not name: .*context/turned/0/bias"),
        ({"tensors": {"context/turned/4/bias": np.zeros(6, np.float32)}}, "does not name: .*context/turned/4/bias"),
        ({"tensors": {"context/turned/2/bias": np.zeros(6)}}, "has dtype float64"),
        ({"tensors": {"sample/turned/positions": np.zeros((9, 3), "f4")}}, r"positions has shape \(9, 3\), .*\(9, 2\)"),
        ({"header": {"context": "{}"}}, "damaged model file .KeyError: 'nearest'"),
        ({"header": {"context": "[]"}}, "damaged model file"),
        ({"header": {"context": "null"}}, "context is None"),
        ({"header": {"context": json.dumps(form | {"nearest": 10**12})}}, "at most 4096"),
        ({"header": {"context": json.dumps(form | {"larger": "2"})}}, "damaged model file"),
        ({"header": {"context": json.dumps(form | {"heads": 0})}}, "heads is 0, expected at least 1"),
    ]:  # fmt: skip
        path.write_bytes(whole)
        with pytest.raises(ValueError, match=f"m.safetensors: .*{message}"):
            load(rewrite(path, **change))


def test_a_sample_without_positions_or_of_other_numbers_is_named_by_the_self_check(bundle, tmp_path):
    path = bundle.save(tmp_path / "m.safetensors")
    rewrite(path, drop=["sample/turned/positions"])
    with pytest.raises(ValueError, match="m.safetensors: sample: rows of 'turned' come without the positions"):
        Translator.load(path).self_check()
    for key, message in (
        ("positions", "keypoint 0 is at .nan, nan."),
        ("frames", "the frame of keypoint 0 is .nan, nan."),
    ):
        bundle.save(path)
        rewrite(path, tensors={f"sample/turned/{key}": np.full((9, 2), np.nan, np.float32)})
        with pytest.raises(ValueError, match=f"m.safetensors: sample: {message}"):
            Translator.load(path).self_check()


def test_settings_of_training_are_not_kept(bundle, tmp_path):
    trained = of(bundle, context=ContextConfig("keypoint", 3, 2, 6, 2, least_share=0.75))
    assert load(trained.save(tmp_path / "m.npz")).context == CONTEXT
