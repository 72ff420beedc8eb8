"""Configurations as files."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tests.support.root import ROOT
from tests.support.sweep_records import configured
from xdesc_jax.config import TrainConfig, load_config
from xdesc_jax.sweep.config_file import config_source

SHIPPED = [p for p in sorted((ROOT / "configs").glob("*.py")) if "-> TrainConfig" in p.read_text()]
ODD = [
    {},
    {"seed": 3},
    {"loss.alpha": 1},  # an integer hashes otherwise than 1.0
    {"loss.alpha": 0},
    {"loss.margin": 2.5},
    {"optimizer.learning_rate": 1e-12},
    {"descriptors": ["sift"]},
    {"descriptors": ["brief", "sift"], "model.hidden_learned": [3], "loss.variant": "linear"},
    {"model.hidden_learned": []},
    {
        "inputs": "patches",
        "jitter.noise": 0.02,
        "weights": ["a=C:\\new\\x.npz", "b='q'", 'c="q"', "d='\"", "e='''\"\n"],
    },
    {"descriptors": [f"descriptor-number-{i}" for i in range(9)]},
    {"descriptors": ["sift"], "model.hidden_handcrafted": list(range(1000, 1040)), "model.hidden_learned": [64]},
    {"inputs": "patches", "weights": ["long=" + "x" * 200]},
    {"resident": True, "batch_size": 256, "loss.distance": "euclidean", "optimizer.schedule": "cosine"},
]


def random_fields(seed):
    rng = random.Random(seed)
    fields = {"descriptors": [f"type-{i}" for i in range(rng.randrange(14))], "seed": rng.randrange(5)}
    fields |= {"model.hidden_learned": [rng.randrange(1, 2000) for _ in range(rng.randrange(1, 30))]}
    fields |= {"loss.alpha": rng.random(), "optimizer.learning_rate": 10 ** rng.uniform(-8, 0)}
    return {name: value for name, value in fields.items() if rng.random() < 0.7}


CONFIGS = [load_config(p) for p in SHIPPED] + [configured(f) for f in [*ODD, *map(random_fields, range(40))]]


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_the_file_gives_the_same_configuration(tmp_path, config):
    path = tmp_path / "c.py"
    path.write_text(config_source(config, "A configuration."))
    found = load_config(path)
    assert found == config and found.hash == config.hash and repr(found) == repr(config)


def test_only_what_differs_from_the_defaults_is_stated():
    source = config_source(configured({"loss.alpha": 0.5, "seed": 2}), "Best of a sweep.")
    assert source == (
        '"""Best of a sweep."""\n\nfrom xdesc_jax.config import LossConfig, TrainConfig\n\n\n'
        "def get_config() -> TrainConfig:\n    return TrainConfig(seed=2, loss=LossConfig(alpha=0.5))\n"
    )
    assert "return TrainConfig()\n" in config_source(TrainConfig(), "The defaults.")


DOCSTRINGS = [
    "One line.",
    "Two\n\nlines with a trailing space \n    and a command",
    'ends with "quotes"',
    '"starts" with them',
    'has """three""" and \\ a backslash',
    "word " * 60,
    'two\nlines, the last ends with "',
]


@pytest.mark.parametrize("text", DOCSTRINGS, ids=range(len(DOCSTRINGS)))
def test_the_docstring_says_what_was_given(tmp_path, text):
    namespace: dict = {}
    exec(config_source(TrainConfig(), text), namespace)
    assert namespace["__doc__"].split() == text.split()


def test_files_are_as_ruff_wants_them(tmp_path):
    pytest.importorskip("ruff")
    for i, config in enumerate(CONFIGS):
        (tmp_path / f"config_{i}.py").write_text(config_source(config, DOCSTRINGS[i % len(DOCSTRINGS)]))
    settings = ["--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    for command in (["check", "--ignore", "E501"], ["format", "--check", "--diff"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, *settings], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
