"""Exports of encoders that look at a photo's other rows take each row's neighbours as inputs."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from tests.support.context_translators import (
    context_translator,
    decoded_by_definition,
    embedded_by_definition,
    positions,
    turning_translator,
)
from tests.support.framed_translators import SPECS, frames, rows
from tests.support.root import ROOT
from xdesc_jax import cli
from xdesc_jax.descriptors import stored
from xdesc_jax.export.graphs import FORMATS
from xdesc_jax.export.photo_inputs import photo_inputs
from xdesc_jax.export.quantization import quantized
from xdesc_jax.export.translation_graph import deviation, graph
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.translation.translator import Translator

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

BUNDLE, EVERY = context_translator(), context_translator("every")
TRANSLATOR = Translator(BUNDLE)
TAKEN = {"nearest": 3, "larger": 2}
AROUND = ["neighbours", "neighbour_frames", "offsets", "mask"]


def written(path, format, source, target, translator=TRANSLATOR):
    FORMATS[format].write(path, graph(translator, source, target, "0123"))
    return FORMATS[format].load(path)


def photo(n, source, zero=None):
    """Rows of a photo, one of them zero, their frames and positions."""
    x = rows(n, seed=n)[source]
    if zero is not None:
        x[zero] = 0
    return x, frames(n, seed=n), positions(n, seed=n)


def by_definition(x, seen, at, source, target, bundle=BUNDLE):
    """Rows or probabilities; zero rows stay zero."""
    found = embedded_by_definition(bundle.networks, bundle.contexts, x, source, seen, at)
    if target != "embedding":
        found = decoded_by_definition(bundle.networks, found, target, seen)
    return np.where(x.any(axis=1, keepdims=True), found, 0)


@pytest.mark.parametrize(
    ("format", "source", "target", "sizes"),
    [
        ("onnx", "turned", "embedding", (13, 3, 2, 1)),  # 3 rows have fewer than K neighbours, 2 and 1 none
        ("onnx", "turned", "turned-bits", (13, 1)),
        ("onnx", "turned-bits", "upright", (13, 1)),
        ("onnx", "turned-bits", "turned", (13, 1)),
        ("stablehlo", "turned", "turned-bits", (13, 1)),
        ("stablehlo", "turned-bits", "embedding", (13,)),
    ],
)
def test_a_file_gives_what_the_definition_gives(tmp_path, format, source, target, sizes):
    run = written(tmp_path / f"m.{format}", format, source, target)
    output = "probabilities" if target == "turned-bits" else "target"
    for n in sizes:
        x, seen, at = photo(n, source, zero={13: 5, 2: 0}.get(n))
        # Rows of unit length may have any scale.
        given = photo_inputs(3 * x if source == "turned" else x, seen, at, **TAKEN)
        gone = ~given["mask"]
        assert gone.any() and (given["mask"].any() or n < 3)
        for name in ("neighbours", "neighbour_frames", "offsets"):  # what is not there may be anything
            given[name][gone] = np.nan if given[name].dtype == np.float32 else True
        found = run(*given.values())
        np.testing.assert_allclose(found[output], by_definition(x, seen, at, source, target), atol=1e-5)
        if 1 in sizes:  # any part of the photo by itself
            part = run(*(a[-1:] for a in given.values()))
            np.testing.assert_allclose(part[output], found[output][-1:], atol=1e-6)


@pytest.mark.parametrize(
    ("format", "target", "names"),
    [
        ("onnx", "embedding", ["source", "neighbours", "offsets", "mask"]),
        ("onnx", "turned", ["source", "frames", "neighbours", "offsets", "mask"]),  # whose decoder takes frames
        ("stablehlo", "embedding", ["source", "neighbours", "offsets", "mask"]),
        ("stablehlo", "turned", ["source", "frames", "neighbours", "offsets", "mask"]),
    ],
)
def test_rows_without_frames_look_at_their_nearest_neighbours(tmp_path, format, target, names):
    translator = Translator(EVERY)
    made = graph(translator, "upright", target, "0123")
    assert list(made.given) == names and json.loads(made.metadata["context"]) == {"nearest": 3, "larger": 0}
    run = written(tmp_path / f"m.{format}", format, "upright", target, translator)
    assert deviation(made, run, "m", FORMATS[format].least_rows) < 1e-5
    x, seen, at = photo(13, "upright", zero=5)
    given = photo_inputs(x, None, at, nearest=3, larger=0) | {"frames": seen}
    found = run(*(given[name] for name in names))["target"]
    np.testing.assert_allclose(found, by_definition(x, seen, at, "upright", target, EVERY), atol=1e-5)


@pytest.mark.parametrize(
    ("format", "source", "target"),
    [("onnx", "turned", "embedding"), ("onnx", "turned-bits", "turned"), ("stablehlo", "turned", "turned-bits")],
)
def test_in_a_space_of_turned_patches_a_file_takes_frames_for_its_neighbours(tmp_path, format, source, target):
    bundle = turning_translator()
    translator = Translator(bundle)
    made = graph(translator, source, target, "0123")
    assert list(made.given) == ["source", "frames", *AROUND]
    run = written(tmp_path / f"m.{format}", format, source, target, translator)
    assert deviation(made, run, "m", FORMATS[format].least_rows) < 1e-5
    x, seen, at = photo(13, source, zero=5)
    found = run(*photo_inputs(x, seen, at, **TAKEN).values())
    expected = embedded_by_definition(bundle.networks, bundle.contexts, x, source, seen, at, turning=True)
    if target != "embedding":
        expected = decoded_by_definition(bundle.networks, expected, target, None)
    expected = np.where(x.any(axis=1, keepdims=True), expected, 0)
    np.testing.assert_allclose(found["probabilities" if target == "turned-bits" else "target"], expected, atol=1e-5)


def test_a_photo_without_rows_has_none(tmp_path):
    given = photo_inputs(*photo(0, "turned"), **TAKEN)
    assert [a.shape for a in given.values()] == [(0, 12), (0, 2), (0, 5, 12), (0, 5, 2), (0, 5, 2), (0, 5)]
    for target, width in [("embedding", 8), ("turned-bits", 19)]:
        run = written(tmp_path / "m.onnx", "onnx", "turned", target)
        assert run(*given.values())["target"].shape == (0, width)


@pytest.mark.parametrize("dtype", [np.float64, np.bool_])
def test_neighbours_are_gathered_as_counted_by_hand(dtype):
    """Keypoints on a line at 0, 3, 10, 12 and 30 px; the row at 10 is zero, and nobody's neighbour."""
    x = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 1, 0]], dtype)
    seen = np.array([[1, 0.1], [1.5, 0.2], [9, 0.3], [2, 0.4], [4, 0.5]])
    at = np.array([[0, 7], [3, 7], [10, 7], [12, 7], [30, 7]])
    given = photo_inputs(x, seen, at, nearest=2, larger=1)
    assert list(given) == ["source", "frames", *AROUND]
    # Sigmas of 1 and 1.5 are of one octave; of 2 and of 4 each of another.
    none = -1
    expected = np.array([[1, 3, 3], [0, 3, 3], [none] * 3, [1, 0, 4], [3, 1, none]])
    np.testing.assert_array_equal(given["mask"], expected != none)
    for i, j in np.ndindex(*expected.shape):
        other, there = expected[i, j], expected[i, j] != none
        np.testing.assert_array_equal(given["neighbours"][i, j], x[other] if there else np.zeros(3))
        frame = np.float32(seen[other]) if there else [1, 0]
        np.testing.assert_array_equal(given["neighbour_frames"][i, j], frame)
        np.testing.assert_array_equal(given["offsets"][i, j], at[other] - at[i] if there else [0, 0])
    row_type = np.bool_ if dtype == np.bool_ else np.float32
    assert {name: a.dtype for name, a in given.items()} == {
        "source": row_type, "frames": np.float32, "neighbours": row_type, "neighbour_frames": np.float32,
        "offsets": np.float32, "mask": np.bool_,
    }  # fmt: skip


def test_a_photo_that_does_not_fit_is_refused():
    x, seen, at = photo(4, "turned")
    for changed, message in [
        ((x[0], seen, at), r"rows have shape \(12,\), expected \[N, D\]"),
        ((x, seen[:3], at), r"frames have shape \(3, 2\)"),
        ((x, seen * [0, 1], at), "sigma over 0"),
        ((x, seen, at[:3]), r"positions have shape \(3, 2\), expected \(4, 2\)"),
        ((x, seen, at * np.nan), "keypoint 0 is at"),
    ]:
        with pytest.raises(ValueError, match=message):
            photo_inputs(*changed, **TAKEN)


@pytest.mark.parametrize("bundle", [BUNDLE, dataclasses.replace(BUNDLE, sample=type(BUNDLE.sample)())])
@pytest.mark.parametrize("change", range(4))
def test_each_layer_is_checked_with_a_sample_or_without(tmp_path, bundle, change):
    made = graph(Translator(bundle), "turned", "embedding", "0123")
    assert not made.given["source"][-1].any() and made.given["mask"][:-1].any(axis=1).all()
    assert deviation(made, written(tmp_path / "m.onnx", "onnx", "turned", "embedding"), "m") < 1e-5
    other = [(kernel, bias + 0.01 * (i == change)) for i, (kernel, bias) in enumerate(made.context)]
    FORMATS["onnx"].write(tmp_path / "m.onnx", dataclasses.replace(made, context=other))
    with pytest.raises(ValueError, match="m: output 'target' of 10 rows is off|m: output 'target' of 33 rows is off"):
        deviation(made, FORMATS["onnx"].load(tmp_path / "m.onnx"), "m")


def test_smaller_weights_go_into_a_file(tmp_path):
    small = Translator(quantized(BUNDLE, "int8"))
    x, seen, at = photo(9, "turned")
    found = written(tmp_path / "m.onnx", "onnx", "turned", "embedding", small)
    found = found(*photo_inputs(x, seen, at, **TAKEN).values())["target"]
    np.testing.assert_allclose(found, small.embed(x, "turned", frames=seen, positions=at), atol=1e-5)
    assert np.abs(found - by_definition(x, seen, at, "turned", "embedding")).max() > 1e-4


def test_a_whole_model_says_which_files_take_neighbours(tmp_path, capsys):
    model = BUNDLE.save(tmp_path / "m.safetensors")
    assert cli.main(["export", str(model), str(tmp_path / "all"), "--format", "onnx"]) == 0
    assert "3 nearest and 2 larger neighbours (encoders of turned, turned-bits)" in " ".join(
        capsys.readouterr().out.split()
    )
    files = json.loads((tmp_path / "all" / "manifest.json").read_text())["files"]
    assert {n for n, about in files.items() if about.get("context")} == {
        "encoder/turned.onnx", "encoder/turned-bits.onnx",
    }  # fmt: skip
    assert max(about["parity_deviation"] for about in files.values()) < 1e-5
    about = files["encoder/turned-bits.onnx"]
    assert about["context"] == TAKEN and list(about["inputs"]) == ["source", "frames", *AROUND]
    shapes = {name: (held["dtype"], held["shape"]) for name, held in about["inputs"].items()}
    assert shapes == {
        "source": ("bool", ["N", 19]), "frames": ("float32", ["N", 2]), "neighbours": ("bool", ["N", 5, 19]),
        "neighbour_frames": ("float32", ["N", 5, 2]), "offsets": ("float32", ["N", 5, 2]), "mask": ("bool", ["N", 5]),
    }  # fmt: skip
    assert "higher octave" in about["inputs"]["neighbours"]["holds"] and "px" in about["inputs"]["offsets"]["holds"]
    assert list(files["encoder/upright.onnx"]["inputs"]) == ["source"]
    assert list(files["decoder/turned.onnx"]["inputs"]) == ["source", "frames"]


@pytest.mark.parametrize("format", FORMATS)
def test_one_translation_is_run_by_what_lies_beside_it(tmp_path, capsys, format):
    model, out = BUNDLE.save(tmp_path / "m.safetensors"), tmp_path / f"one.{format}"
    words = ["--format", format, "--source", "turned", "--target", "upright"]
    assert cli.main(["export", str(model), str(out), *words]) == 0
    assert "3 nearest and 2 larger neighbours (encoders of turned)" in " ".join(capsys.readouterr().out.split())
    about = json.loads((tmp_path / f"one.{format}.json").read_text())
    x, seen, at = photo(11, "turned")
    given = photo_inputs(x, seen, at, **about["context"])
    assert list(given) == list(about["inputs"])
    found = FORMATS[format].load(out)(*given.values())["target"]
    expected = TRANSLATOR.translate(x, "turned", "upright", frames=seen, positions=at)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    """With small descriptors in the place of its own."""
    page = (ROOT / "docs" / "export.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "photo_inputs" in block)
    (words,) = re.findall(r"^xdesc (export model.*?) +#", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    BUNDLE.save("model.safetensors")
    x, seen, at = photo(15, "turned")
    held = ImageFeatures(at, stored(x, SPECS["turned"]), np.ones(15, bool), (200, 150), seen[:, 0], seen[:, 1])
    with StoreWriter("turned.h5", SPECS["turned"]) as store:
        store.write("a.png", held)

    def small(text):
        return text.replace("colmap-sift", "turned").replace('"xfeat"', '"upright"').replace(" xfeat", " upright")

    assert cli.main(small(words).split()) == 0
    names = {}
    exec(small(block), names)
    assert names["found"].shape == (15, 7) and np.abs(names["found"]).max() > 0.1


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_one_translation_in_a_file_of_our_own_keeps_its_context(tmp_path, capsys, dtype):
    model, out = BUNDLE.save(tmp_path / "m.safetensors"), tmp_path / "one.npz"
    words = ["--format", "npz", "--dtype", dtype, "--source", "turned", "--target", "upright"]
    assert cli.main(["export", str(model), str(out), *words]) == 0
    assert "3 nearest and 2 larger neighbours (encoders of turned)" in " ".join(capsys.readouterr().out.split())
    one, whole = Translator.load(out), Translator(quantized(BUNDLE, dtype) if dtype != "float32" else BUNDLE)
    x, seen, at = photo(11, "turned")
    found, expected = (t.translate(x, "turned", "upright", frames=seen, positions=at) for t in (one, whole))
    np.testing.assert_array_equal(found, expected)


def test_the_format_of_others_is_refused_with_what_holds_it(tmp_path, capsys):
    model = BUNDLE.save(tmp_path / "m.safetensors")
    assert cli.main(["export", str(model), str(tmp_path / "m.pth"), "--format", "pth"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "encoders of turned, turned-bits look at the photo's other rows" in told and "--format onnx" in told
    assert not (tmp_path / "m.pth").exists()


@pytest.mark.parametrize("format", ["safetensors", "npz"])
def test_formats_of_our_own_hold_a_whole_model_and_its_values_are_told(tmp_path, format):
    model, out = BUNDLE.save(tmp_path / "m.safetensors"), tmp_path / f"small.{format}"
    assert cli.main(["export", str(model), str(out), "--format", format, "--dtype", "int8"]) == 0
    assert Translator.load(out).self_check() < 1e-5
    figures = json.loads(out.with_name(out.name + ".json").read_text())["weights"]
    assert figures["context/turned"] == sum(a * b + b for a, b in [(19, 6), (8, 6), (6, 6), (19, 12)])
