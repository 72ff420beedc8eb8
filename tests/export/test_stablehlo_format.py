"""StableHLO files, read again, against the definition; their platforms; damaged files."""

from __future__ import annotations

import numpy as np
import pytest
from jax import export

from tests.support.small_translators import SPECS, by_definition, encoder_decoder, pairs, rows
from xdesc_jax.export import stablehlo_format
from xdesc_jax.export.translation_graph import graph
from xdesc_jax.translation.translator import Translator

MODELS = {"encoder_decoder": encoder_decoder(), "pair": pairs()}
ROUTES = [("grid", "embedding"), ("bits", "embedding"), ("embedding", "plain"), ("embedding", "bits")]
ROUTES += [("plain", "grid"), ("bits", "bits")]


def written(path, source, target, kind="encoder_decoder"):
    stablehlo_format.write(path, graph(Translator(MODELS[kind]), source, target, "0123"))
    return stablehlo_format.FORMAT.load(path)


@pytest.mark.parametrize(
    "kind, source, target", [*(("encoder_decoder", *route) for route in ROUTES), ("pair", "grid", "bits")]
)
def test_any_number_of_rows_gives_what_the_definition_gives(tmp_path, kind, source, target):
    run = written(tmp_path / "m.stablehlo", source, target, kind)
    for n in (1, 7):
        x = rows(n, seed=n)[source]
        x[n // 2] = 0
        found, expected = run(x), by_definition(MODELS[kind].networks, x, source, target)
        assert found.keys() == expected.keys()
        np.testing.assert_allclose(found["target"], expected["target"], atol=1e-5)
        if target == "bits":
            assert found["target"].dtype == bool
            np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-5)


def test_one_file_serves_cpu_cuda_and_tpu_and_any_batch(tmp_path):
    written(tmp_path / "m.stablehlo", "grid", "plain")
    found = export.deserialize(bytearray((tmp_path / "m.stablehlo").read_bytes()))
    assert found.platforms == ("cpu", "cuda", "tpu")
    assert str(found.in_avals[0].shape) == "(N, 12)" and found.in_avals[0].shape[1] == SPECS["grid"].width
    assert "stablehlo.dot_general" in found.mlir_module()
