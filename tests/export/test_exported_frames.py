"""Exports of a model of frame 'image' take frames as an input, where a network on the way takes them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support.framed_translators import FRAMED, ROUTES, by_definition, framed_translator, frames, rows
from xdesc_jax import cli
from xdesc_jax.export.graphs import FORMATS
from xdesc_jax.export.translation_graph import graph
from xdesc_jax.translation.translator import Translator

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TRANSLATOR = Translator(framed_translator())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("source", "target"), [*ROUTES[:3], ("turned-bits", "turned"), ("embedding", "turned")])
def test_a_file_gives_what_the_definition_gives(tmp_path, format, source, target):
    made, file = graph(TRANSLATOR, source, target, "0123"), tmp_path / f"m.{format}"
    FORMATS[format].write(file, made)
    x, seen = rows(7)[source], frames(7)
    takes = any(name in FRAMED for name in TRANSLATOR.route(source, target))
    found = FORMATS[format].load(file)(*([x, seen] if takes else [x]))["target"]
    expected = by_definition(TRANSLATOR.bundle.networks, x, source, target, seen)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_whole_model_says_which_files_take_frames(tmp_path):
    model = TRANSLATOR.bundle.save(tmp_path / "m.safetensors")
    assert cli.main(["export", str(model), str(tmp_path / "all"), "--format", "onnx"]) == 0
    files = json.loads((tmp_path / "all" / "manifest.json").read_text())["files"]
    assert {name.removesuffix(".onnx") for name, about in files.items() if "frames" in about["inputs"]} == FRAMED
    held = files["encoder/turned.onnx"]["inputs"]["frames"]
    assert (held["dtype"], held["shape"]) == ("float32", ["N", 2]) and "radians" in held["holds"]
    assert max(about["parity_deviation"] for about in files.values()) < 1e-5


def test_one_translation_keeps_the_frames_of_its_sample(tmp_path):
    model = TRANSLATOR.bundle.save(tmp_path / "m.safetensors")
    words = ["export", str(model), str(tmp_path / "one.npz"), "--source", "turned", "--target", "upright"]
    assert cli.main(words + ["--format", "npz"]) == 0
    one = Translator.load(tmp_path / "one.npz")
    assert one.self_check() < 1e-5 and set(one.bundle.sample.frames) == {"turned"}
    x, seen = rows(7)["turned"], frames(7)
    expected = TRANSLATOR.translate(x, "turned", "upright", frames=seen)
    np.testing.assert_array_equal(one.translate(x, "turned", "upright", frames=seen), expected)


def test_the_format_of_others_is_refused(tmp_path, capsys):
    model = TRANSLATOR.bundle.save(tmp_path / "m.safetensors")
    assert cli.main(["export", str(model), str(tmp_path / "m.pth"), "--format", "pth"]) == 2
    assert "its networks take the frames of keypoints" in capsys.readouterr().err
