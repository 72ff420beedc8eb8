"""Operands that the configuration leaves open: the faster ones, for the whole of a run."""

from __future__ import annotations

import dataclasses
import json

import pytest

from xdesc_jax.config import ModelConfig
from xdesc_jax.train import operands
from xdesc_jax.train.translators import run

OPEN = ModelConfig(matmul="auto", hidden_handcrafted=(48, 32))


@pytest.mark.parametrize(("float32", "bfloat16"), [(0.2, 0.1), (0.1, 0.2)])
def test_the_faster_operands_are_taken_and_kept(tmp_path, monkeypatch, float32, bfloat16):
    asked = []

    def seconds(rows, width):
        asked.append((rows, width))
        return {"float32": float32, "bfloat16": bfloat16}

    monkeypatch.setattr(operands, "seconds_of_products", seconds)
    faster = "bfloat16" if bfloat16 < float32 else "float32"
    for _ in range(2):  # the second finds what the first measured
        assert operands.settled(OPEN, 24, tmp_path) == dataclasses.replace(OPEN, matmul=faster)
    assert asked == [(24, 48)]
    kept = json.loads((tmp_path / operands.FILE).read_text())
    assert kept == {"matmul": faster, "seconds": {"float32": float32, "bfloat16": bfloat16}}


def test_operands_that_are_given_are_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(operands, "seconds_of_products", lambda *_: pytest.fail("measured"))
    for given in ("float32", "bfloat16"):
        assert operands.settled(dataclasses.replace(OPEN, matmul=given), 24, tmp_path).matmul == given
    assert not list(tmp_path.iterdir())


def test_both_are_measured(monkeypatch):
    found = operands.seconds_of_products(16, 32)
    assert list(found) == ["float32", "bfloat16"] and all(seconds > 0 for seconds in found.values())


def test_the_step_of_a_run_has_the_operands_that_were_measured(toy_records, toy_config, tmp_path, monkeypatch):
    class Built(Exception):
        pass

    def build(specs, model, *axis, original=run.build_networks):
        if axis:
            raise Built(model.matmul)
        return original(specs, model)

    monkeypatch.setattr(operands, "seconds_of_products", lambda *_: {"float32": 2.0, "bfloat16": 1.0})
    monkeypatch.setattr(run, "build_networks", build)
    config = dataclasses.replace(toy_config, model=dataclasses.replace(toy_config.model, matmul="auto"))
    with pytest.raises(Built, match="bfloat16"):
        run.train(config, toy_records, tmp_path / "run")
    assert (tmp_path / "run" / operands.FILE).exists()
