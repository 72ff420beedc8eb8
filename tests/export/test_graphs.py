"""The stage `xdesc export` to ONNX and StableHLO: what it writes, when it does not, and what it says of bad input."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys

import numpy as np
import pytest

from tests.support.small_translators import by_definition, encoder_decoder, pairs, rows
from xdesc_jax import cli
from xdesc_jax.export import graphs, stablehlo_format

MISSING = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
ONNX = pytest.param("onnx", marks=pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"))


@pytest.fixture
def model(tmp_path):
    return encoder_decoder().save(tmp_path / "model.safetensors")


@pytest.mark.parametrize("format", [ONNX, "stablehlo"])
@pytest.mark.parametrize(
    "source, target, networks",
    [
        ("grid", "embedding", ["encoder/grid"]),
        ("embedding", "bits", ["decoder/bits"]),
        ("bits", "grid", ["encoder/bits", "decoder/grid"]),
    ],
)
def test_one_translation_becomes_one_file(model, tmp_path, capsys, format, source, target, networks):
    out = tmp_path / "new" / f"m.{format}"
    words = ["export", str(model), str(out), "--format", format, "--source", source, "--target", target]
    assert cli.main(words) == 0
    x = rows(5)[source]
    expected = by_definition(encoder_decoder().networks, x, source, target)
    found = graphs.FORMATS[format].load(out)(x)
    np.testing.assert_allclose(found["target"], expected["target"], atol=1e-5)
    record = json.loads((tmp_path / "new" / f"m.{format}.json").read_text())
    assert record["networks"] == networks and record["parity_deviation"] <= 1e-5
    assert record["inputs"]["source"]["shape"] == ["N", x.shape[1]] and record["outputs"].keys() == expected.keys()
    assert record["provenance"] == {"steps": 780}
    assert sorted(p.name for p in out.parent.iterdir()) == [f"m.{format}", f"m.{format}.json"]
    before = out.stat().st_mtime_ns
    assert cli.main(words) == 0
    assert "up to date" in capsys.readouterr().out and out.stat().st_mtime_ns == before


@pytest.mark.parametrize("format", [ONNX, "stablehlo"])
@pytest.mark.parametrize("make", [encoder_decoder, pairs])
def test_a_whole_model_becomes_a_folder(tmp_path, capsys, make, format):
    bundle, out = make(), tmp_path / "all"
    model = bundle.save(tmp_path / "model.safetensors")
    assert cli.main(["export", str(model), str(out), "--format", format]) == 0
    files = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    assert files == {"manifest.json", *(f"{name}.{format}" for name in bundle.networks)}
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["files"].keys() == files - {"manifest.json"}
    assert cli.main(["export", str(model), str(out), "--format", format]) == 0
    assert "up to date" in capsys.readouterr().out


def test_a_folder_whose_file_changed_is_not_up_to_date(model, tmp_path, capsys):
    out = tmp_path / "all"
    words = ["export", str(model), str(out), "--format", "stablehlo"]
    out.mkdir()  # an empty one may be filled
    assert cli.main(words) == 0
    (out / "encoder" / "grid.stablehlo").write_bytes(b"cut")
    assert cli.main(words) == 2
    assert "no record of what made it fits it" in capsys.readouterr().err
    assert cli.main([*words, "--overwrite"]) == 0
    assert len((out / "encoder" / "grid.stablehlo").read_bytes()) > 3


def test_another_model_is_kept(model, tmp_path, capsys):
    out = tmp_path / "m.stablehlo"
    words = ["--format", "stablehlo", "--source", "grid", "--target", "embedding"]
    assert cli.main(["export", str(model), str(out), *words]) == 0
    other = dataclasses.replace(encoder_decoder(), provenance={"steps": 1}).save(tmp_path / "other.safetensors")
    assert cli.main(["export", str(other), str(out), *words]) == 2
    assert "another configuration (model: other content)" in capsys.readouterr().err
    assert cli.main(["export", str(other), str(out), *words, "--overwrite"]) == 0


def test_a_folder_of_others_is_not_overwritten(model, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    assert cli.main(["export", str(model), str(tmp_path / "mine"), "--format", "stablehlo", "--overwrite"]) == 2
    assert "a folder without manifest.json" in capsys.readouterr().err
    assert (tmp_path / "mine" / "thesis.tex").exists()


@pytest.mark.parametrize("words", [["m.stablehlo", "--source", "grid", "--target", "plain"], ["all"]])
def test_a_file_that_computes_something_else_does_not_appear(model, tmp_path, monkeypatch, capsys, words):
    exact = stablehlo_format.write

    def wrong(path, graph):
        networks = {name: [(k, b + 1e-3) for k, b in layers] for name, layers in graph.networks.items()}
        exact(path, dataclasses.replace(graph, networks=networks))

    monkeypatch.setitem(graphs.FORMATS, "stablehlo", dataclasses.replace(stablehlo_format.FORMAT, write=wrong))
    out, *words = words
    assert cli.main(["export", str(model), str(tmp_path / out), "--format", "stablehlo", *words]) == 2
    assert "from numpy's, expected at most 1e-05" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


ONE = ["--source", "grid", "--target", "bits"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{t}/m.onnx", "--format", "onnx"], "m.onnx: is a file, but a whole model in onnx is a folder"),
        (["{t}/all", "--format", "onnx", *ONE], "end in .onnx for --format onnx, found ''"),
        (["{t}/m.npz", *ONE], "end in .safetensors for --format safetensors, found '.npz'"),
        (["{t}/m.onnx", "--format", "onnx", "--source", "grid"], "--source grid needs --target beside it"),
        (["{t}/m.onnx", "--format", "onnx", "--target", "grid"], "--target grid needs --source beside it"),
        (["{t}/m.onnx", "--format", "onnx", "--source", "gird", "--target", "bits"], "did you mean grid"),
        (["{t}/m.npz", "--format", "npz", "--source", "gird", "--target", "bits"], "did you mean grid"),
        (["{t}/m.onnx", "--format", "onnx", "--source", "embedding", "--target", "embedding"], "both the joint space"),
        (["{t}/m.onnx", "--format", "onnx", "--dtype", "int8", *ONE], "--dtype int8 is for --format safetensors or"),
        (["{t}/m.pth", "--format", "pth", *ONE], "are not for --format pth"),
    ],
)  # fmt: skip
def test_bad_words_are_refused_by_name(model, tmp_path, capsys, words, message):
    assert cli.main(["export", str(model), *(word.format(t=tmp_path) for word in words)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("format", ["safetensors", "npz", "onnx", "stablehlo"])
def test_bad_models_are_refused_by_name_in_every_format(model, tmp_path, capsys, format):
    out = str(tmp_path / f"m.{format}")
    pair = str(pairs().save(tmp_path / "pair.safetensors"))
    for words, message in [
        ([pair, out, "--source", "grid", "--target", "embedding"], "pair networks have no joint space"),
        ([pair, out, "--source", "grid", "--target", "grid"], "makes no 'grid' of 'grid'"),
        ([str(tmp_path / "none"), out, *ONE], "none"),
    ]:
        assert cli.main(["export", *words, "--format", format]) == 2
        assert message in capsys.readouterr().err
    model.write_bytes(model.read_bytes()[:-1])
    assert cli.main(["export", str(model), out, *ONE, "--format", format]) == 2
    assert "model.safetensors: not a safetensors file, or cut short" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.safetensors", "pair.safetensors"]


@pytest.mark.parametrize("format, package, extra", [("onnx", "onnxruntime", "onnx"), ("stablehlo", "jax", "jax")])
def test_a_missing_package_is_named_with_its_extra(model, tmp_path, monkeypatch, capsys, format, package, extra):
    if format == "onnx" and "onnx" in MISSING:
        package = "onnx"
    monkeypatch.setitem(sys.modules, package, None)
    out = tmp_path / f"m.{format}"
    assert cli.main(["export", str(model), str(out), "--format", format, *ONE]) == 2
    text = capsys.readouterr().err
    assert f"needs the package '{package}'" in text and f"pip install 'xdesc-jax[{extra}]'" in text
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
