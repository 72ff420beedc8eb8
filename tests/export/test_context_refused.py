"""Formats that take one row at a time refuse encoders that look at a photo's other rows, and say what to use."""

from __future__ import annotations

import json

import pytest

from tests.support.context_translators import context_translator
from xdesc_jax import cli
from xdesc_jax.export.translation_graph import graph
from xdesc_jax.translation.translator import Translator


@pytest.fixture
def model(tmp_path):
    return context_translator().save(tmp_path / "m.safetensors")


def refused(capsys, *words):
    assert cli.main(["export", *map(str, words)]) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("format", ["onnx", "stablehlo"])
def test_graphs_of_its_encoders_and_of_the_whole_model_are_refused(model, tmp_path, capsys, format):
    told = (
        "looks at the photo's other rows, which a graph does not take: embed rows of 'turned' with xdesc_jax.Translator"
    )
    one = refused(
        capsys, model, tmp_path / f"one.{format}", "--format", format, "--source", "turned", "--target", "upright"
    )
    assert f"encoder/turned {told}" in one
    assert told in refused(capsys, model, tmp_path / "all", "--format", format)
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_graphs_of_its_decoders_are_made():
    translator = Translator(context_translator())
    made = graph(translator, "embedding", "upright", "0123")
    assert list(made.networks) == ["decoder/upright"] and made.frames is None


def test_the_format_of_others_is_refused(model, tmp_path, capsys):
    told = refused(capsys, model, tmp_path / "m.pth", "--format", "pth")
    assert "its encoders of turned, turned-bits look at the photo's other rows" in told and ".safetensors" in told


@pytest.mark.parametrize("format", ["safetensors", "npz"])
def test_formats_of_our_own_hold_it_whole_and_its_values_are_told(model, tmp_path, format):
    out = tmp_path / f"small.{format}"
    assert cli.main(["export", str(model), str(out), "--format", format, "--dtype", "int8"]) == 0
    assert Translator.load(out).self_check() < 1e-5
    figures = json.loads(out.with_name(out.name + ".json").read_text())["weights"]
    kernels = [(19, 6), (8, 6), (6, 6), (19, 12)]
    assert figures["context/turned"] == sum(a * b + b for a, b in kernels)
