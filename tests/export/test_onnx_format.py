"""ONNX files in onnxruntime against the definition, and what is said of files and packages that are not there."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support.small_translators import ROUTES, SPECS, by_definition, encoder_decoder, pairs, rows
from xdesc_jax.export import onnx_format
from xdesc_jax.export.quantization import quantized
from xdesc_jax.export.translation_graph import graph
from xdesc_jax.translation.translator import Translator

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

MODELS = {"encoder_decoder": encoder_decoder(), "pair": pairs()}


def written(path, source, target, kind="encoder_decoder"):
    made = graph(Translator(MODELS[kind]), source, target, "0123")
    onnx_format.write(path, made)
    return onnx_format.FORMAT.load(path)


@pytest.mark.parametrize(
    "kind, source, target",
    [("encoder_decoder", *route) for route in ROUTES] + [("pair", s, t) for s in SPECS for t in SPECS if s != t],
)
def test_any_number_of_rows_gives_what_the_definition_gives(tmp_path, kind, source, target):
    run = written(tmp_path / "m.onnx", source, target, kind)
    for n in (1, 7, 37):
        x = rows(n, seed=n)[source]
        x[n // 2] = 0
        found, expected = run(x), by_definition(MODELS[kind].networks, x, source, target)
        assert found.keys() == expected.keys()
        np.testing.assert_allclose(found["target"], expected["target"], atol=1e-5)
        if target == "bits":
            assert found["target"].dtype == bool
            np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-5)
    assert run(x[:0])["target"].shape == (0, expected["target"].shape[1])


def test_rows_of_a_unit_length_descriptor_may_have_any_scale(tmp_path):
    run, x = written(tmp_path / "m.onnx", "grid", "plain"), rows(5)["grid"]
    np.testing.assert_allclose(run(512 * x)["target"], run(x)["target"], atol=1e-5)


def test_the_file_says_what_it_is(tmp_path):
    written(tmp_path / "m.onnx", "grid", "bits")
    found = onnx_format.metadata(tmp_path / "m.onnx")
    assert found["format"] == "xdesc-translation" and found["config_hash"] == "0123" and found["version"] == "1"
    assert json.loads(found["source"]) == SPECS["grid"].to_dict() and json.loads(found["target"])["name"] == "bits"
    assert json.loads(found["space_id"]) == MODELS["encoder_decoder"].space_id
    assert json.loads(found["networks"]) == ["encoder/grid", "decoder/bits"] and "weights" not in found


def test_the_graph_of_a_smaller_copy_says_whose_space_it_is_of():
    bundle = encoder_decoder()
    found = graph(Translator(quantized(bundle, "int8")), "grid", "embedding", "0123").metadata
    assert json.loads(found["space_id"]) == bundle.space_id
    assert json.loads(found["weights"]) == "int8, a copy in the joint space of the model that it was made of"


def test_run_times_of_2023_may_read_the_file(tmp_path):
    written(tmp_path / "m.onnx", "grid", "bits")
    model = onnx.load(tmp_path / "m.onnx")
    assert model.ir_version == 8 and [(o.domain, o.version) for o in model.opset_import] == [("", 18)]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
