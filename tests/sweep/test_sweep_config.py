"""Lists, grids and random draws over fields of a configuration."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig
from xdesc_jax.sweep.config import Choice, LogUniform, SweepConfig, Uniform, expand, override


def test_every_entry_meets_every_point():
    sweep = SweepConfig(members=({"seed": 1}, {"seed": 2}), grid={"loss.alpha": (0, 0.5), "epochs": [3]})
    found = [(m.config.seed, m.config.loss.alpha, m.config.epochs) for m in expand(sweep)]
    assert found == [(1, 0.0, 3), (1, 0.5, 3), (2, 0.0, 3), (2, 0.5, 3)]
    assert sweep.fields == ["seed", "loss.alpha", "epochs"]


def test_draws_are_within_bounds_and_the_same_each_time():
    random = {
        "optimizer.learning_rate": LogUniform(1e-4, 1e-2),
        "loss.alpha": Uniform(0.2, 0.3),
        "seed": Choice((4, 7)),
    }
    sweep = SweepConfig(random=random, draws=200, seed=5)
    members = expand(sweep)
    rates = np.array([m.config.optimizer.learning_rate for m in members])
    assert rates.min() >= 1e-4 and rates.max() <= 1e-2 and 0.4 < np.mean(rates < 1e-3) < 0.6
    assert all(0.2 <= m.config.loss.alpha <= 0.3 for m in members) and {m.config.seed for m in members} == {4, 7}
    assert members == expand(sweep) != expand(dataclasses.replace(sweep, seed=6))


def test_equal_configurations_are_one_member(monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr("xdesc_jax.sweep.config.warn", shown.append)
    assert len(expand(SweepConfig(grid={"loss.alpha": (0.1, 0.1, 0.2)}))) == 2
    assert "1 of 3" in shown[0]


def test_values_take_the_types_of_their_fields():
    config, typed = override(
        TrainConfig(), {"model.hidden_learned": [64], "loss.margin": 2, "descriptors": ["brief"], "resident": True}
    )
    assert config == TrainConfig(
        descriptors=("brief",), resident=True, model=ModelConfig(hidden_learned=(64,)), loss=LossConfig(margin=2.0)
    )
    assert typed == {"model.hidden_learned": (64,), "loss.margin": 2.0, "descriptors": ("brief",), "resident": True}


def test_fields_of_one_part_change_together():
    config, _ = override(TrainConfig(), {"optimizer.schedule": "cosine", "optimizer.warmup_steps": 5})
    assert config.optimizer == OptimizerConfig(schedule="cosine", warmup_steps=5)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("loss.alhpa", 1.0, r"unknown field 'loss.alhpa'; did you mean loss.alpha\?"),
        ("loss", 1.0, "unknown field 'loss'"),
        ("zzz", 1.0, "unknown field 'zzz'; fields are descriptors, "),
        ("seed", 1.5, "seed is 1.5, expected int"),
        ("seed", True, "seed is True, expected int"),
        ("resident", 1, "resident is 1, expected bool"),
        ("loss.variant", "cubic", "loss.variant is 'cubic', expected 'quadratic', 'autoencoder', 'linear'"),
        ("model.hidden_learned", 64, "model.hidden_learned is 64, expected tuple"),
        ("model.hidden_learned", (6.5,), "model.hidden_learned is 6.5, expected int"),
        ("loss.alpha", -1, "loss.alpha is -1.0, expected at least 0"),
        ("epochs", 0, "epochs is 0, expected at least 1"),
    ],
)
def test_what_a_field_cannot_be_is_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        override(TrainConfig(), {field: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"halving": 1}, "halving is 1"),
        ({"draws": 3}, "draws is 3 with 0 random fields"),
        ({"random": {"seed": Choice((1,))}}, "draws is 0 with 1 random fields"),
        ({"grid": {"seed": 3}}, "'seed' is 3, expected a sequence"),
        ({"grid": {"loss.variant": "linear"}}, "'loss.variant' is 'linear', expected a sequence"),
        ({"grid": {"seed": (1,)}, "members": ({"seed": 2},)}, r"\['seed'\] are given twice"),
        ({"first_rung": 0}, "first_rung is 0"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SweepConfig(**settings)


def test_a_logarithm_needs_positive_bounds():
    with pytest.raises(ValueError, match=r"LogUniform\(0, 1\)"):
        LogUniform(0, 1)
