"""Files of other run times: what is wrong with one is told with its name."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("onnx", reason="needs the onnx extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")
pytest.importorskip("jax", reason="needs the train extra")

from tests.support.small_translators import encoder_decoder
from xdesc_jax.export.graphs import FORMATS
from xdesc_jax.export.translation_graph import graph
from xdesc_jax.translation.translator import Translator


@pytest.mark.parametrize(
    ("name", "target", "keep", "unreadable"),
    [
        *(("onnx", "bits", keep, "not a readable ONNX file") for keep in (0, 9, -40)),
        *(("stablehlo", "plain", keep, "not a file of jax.export") for keep in (0, 9, 400, -40)),
    ],
)
def test_a_file_cut_short_is_refused_by_name(tmp_path, name, target, keep, unreadable):
    path = tmp_path / f"m.{name}"
    FORMATS[name].write(path, graph(Translator(encoder_decoder()), "grid", target, "0123"))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=f"m.{name}: {unreadable}, or cut short"):
        FORMATS[name].load(path)


@pytest.mark.parametrize(("name", "called"), [("onnx", "ONNX"), ("stablehlo", "StableHLO")])
def test_a_file_that_is_not_there_is_named(tmp_path, name, called):
    with pytest.raises(FileNotFoundError, match=f"m.{name}: no such {called} file"):
        FORMATS[name].load(tmp_path / f"m.{name}")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("onnx", "onnx", "onnx"),
        ("onnx", "onnxruntime", "onnx"),
        ("stablehlo", "jax", "jax"),
        ("stablehlo", "flax", "jax"),
    ],
)
def test_a_missing_package_is_named_with_the_extra(monkeypatch, name, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ValueError, match=rf"m.{name}: .* needs the package '{package}' .*pip install 'xdesc-jax\[{extra}\]'"
    ):
        FORMATS[name].require(f"m.{name}")
