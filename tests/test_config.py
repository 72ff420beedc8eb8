"""Configurations: files, hashes and differences."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.root import ROOT
from xdesc_jax import cli
from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig, load_config
from xdesc_jax.files.fields import differences, from_dict
from xdesc_jax.sweep.config import SweepConfig, expand
from xdesc_jax.train.descriptors.config import DescriptorConfig

CONFIGS = sorted((ROOT / "configs").glob("*.py"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_shipped_configurations_load_and_say_how_to_run(path):
    text = path.read_text()
    stages = {"xdesc train-descriptor": DescriptorConfig, "xdesc sweep": SweepConfig, "xdesc train": TrainConfig}
    kind = next(kind for words, kind in stages.items() if words in text)
    assert isinstance(load_config(path, kind), kind)
    assert f"--config configs/{path.name}" in text


def test_a_shipped_configuration_is_found_by_its_name_and_a_file_of_that_name_goes_first(tmp_path, monkeypatch):
    assert load_config("best") == load_config(ROOT / "configs" / "best.py")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "best").write_text("not the shipped one")
    with pytest.raises(ValueError, match="best: not a Python file"):
        load_config("best")
    with pytest.raises(FileNotFoundError, match=r"worst: no such configuration file .*ship are .*best"):
        load_config("worst")
    with pytest.raises(FileNotFoundError, match=r"tny: no such configuration file; did you mean tiny\?"):
        load_config("tny")


def test_all_shipped_configurations_are_listed_with_their_stage(capsys):
    assert cli.main(["configs"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[::2]] == [path.stem for path in CONFIGS]
    assert "best (xdesc train)" in shown and "sosnet (xdesc train-descriptor)" in shown
    assert "sweep_loss (xdesc sweep)\n    The loss ablation" in shown


def test_the_best_recipe_is_a_member_of_the_sweep_that_found_it():
    best = load_config(CONFIGS[0].with_name("best.py"))
    recipe = load_config(CONFIGS[0].with_name("sweep_recipe.py"), SweepConfig)
    assert best.hash in [member.name for member in expand(recipe)]


def test_the_paper_configuration_is_the_papers():
    config = load_config(next(p for p in CONFIGS if p.stem == "paper"))
    assert (config.epochs, config.batch_size, config.optimizer.learning_rate) == (5, 1024, 1e-3)
    assert (config.loss.alpha, config.loss.margin, config.loss.variant) == (0.1, 1.0, "quadratic")
    assert (config.model.embedding_width, config.model.hidden_handcrafted) == (128, (1024, 1024))


def test_a_configuration_survives_json():
    config = TrainConfig(descriptors=("a", "b"), model=ModelConfig(hidden_learned=(3,)))
    fields = dataclasses.asdict(config) | {"descriptors": ["a", "b"]}
    assert from_dict(fields, TrainConfig) == config and from_dict(fields, TrainConfig).hash == config.hash


def test_differences_name_nested_fields():
    a, b = TrainConfig(), TrainConfig(epochs=6, loss=LossConfig(margin=0.5))
    assert differences(dataclasses.asdict(a), dataclasses.asdict(b)) == ["epochs: 5 -> 6", "loss.margin: 1.0 -> 0.5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("x = 1\n", "defines no get_config"), ("def get_config():\n    return 3\n", "returned int, expected TrainConfig")],
)
def test_a_file_without_a_configuration_is_named(tmp_path, text, message):
    (tmp_path / "c.py").write_text(text)
    with pytest.raises(ValueError, match=f"c.py.*{message}"):
        load_config(tmp_path / "c.py")


GOOD = "from xdesc_jax.config import LossConfig, ModelConfig, TrainConfig\n\n\ndef get_config():\n    return {}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PK\x03\x04 no Python\n", "c.py: .*SyntaxError"),
        ("\0", "c.py: .*null bytes"),
        ("x = 1\nraise KeyError('a')\n", "c.py: line 2: KeyError: 'a'"),
        ("import sys\nsys.exit(0)\n", "c.py: line 2: SystemExit: 0"),
        ("def get_config():\n    return 1 / 0\n", "c.py: line 2: ZeroDivisionError: division by zero"),
        (GOOD.format("TrainConfig(epoch=3)"), "c.py: line 5: TypeError: .*'epoch'"),
        (GOOD.format("TrainConfig(batch_size=8.5)"), "c.py: batch_size is 8.5, expected int"),
        (GOOD.format("TrainConfig(epochs='five')"), "c.py: line 5: TypeError"),
        (GOOD.format("TrainConfig(descriptors='sift')"), r"c.py: descriptors is 'sift', expected tuple\[str, ...\]"),
        (GOOD.format("TrainConfig(resident=1)"), "c.py: resident is 1, expected bool"),
        (GOOD.format("TrainConfig(model=None)"), "c.py: model is None, expected ModelConfig"),
        (
            GOOD.format("TrainConfig(model=ModelConfig(hidden_learned=(3, 'x')))"),
            r"c.py: model.hidden_learned is \(3, 'x'\)",
        ),
        (
            GOOD.format("TrainConfig(model=ModelConfig(matmul='int8'))"),
            "c.py: model.matmul is 'int8', expected Literal",
        ),
        (GOOD.format("TrainConfig(loss=LossConfig(alpha=True))"), "c.py: loss.alpha is True, expected float"),
    ],
)
def test_a_file_that_is_no_configuration_is_told_with_file_and_reason(tmp_path, text, message):
    (tmp_path / "c.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_config(tmp_path / "c.py")


def test_whole_numbers_are_floats_too(tmp_path):
    (tmp_path / "c.py").write_text(GOOD.format("TrainConfig(loss=LossConfig(alpha=1))"))
    assert load_config(tmp_path / "c.py").loss.alpha == 1


def test_a_negative_weight_is_refused():
    with pytest.raises(ValueError, match=r"loss.beta is -1, expected at least 0"):
        LossConfig(beta=-1)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (ModelConfig, {"embedding_width": 0}, "model.embedding_width is 0, expected at least 1"),
        (ModelConfig, {"hidden": (0,)}, r"model.hidden is \(0,\), expected widths of at least 1"),
        (ModelConfig, {"hidden_handcrafted": (64, -1)}, r"model.hidden_handcrafted is \(64, -1\), expected widths"),
        (ModelConfig, {"hidden_learned": (0, 64)}, r"model.hidden_learned is \(0, 64\), expected widths"),
        (ModelConfig, {"harmonics": 0}, "model.harmonics is 0, expected 1 to 64"),
        (ModelConfig, {"harmonics": 65}, "model.harmonics is 65, expected 1 to 64"),
        (OptimizerConfig, {"learning_rate": -1e-3}, "optimizer.learning_rate is -0.001, expected a number from 0"),
        (OptimizerConfig, {"warmup_steps": -1}, "optimizer.warmup_steps is -1, expected a number from 0"),
    ],
)
def test_numbers_that_no_training_can_have_are_refused(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        kind(**fields)
