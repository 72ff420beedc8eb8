"""The command line: what a person sees who types something wrong, and the ways to bring one's own descriptor."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.support.root import ROOT
from xdesc_jax import cli

OWN = """
from xdesc_jax import DescriptorSpec, register
register(DescriptorSpec("mean-rows", 32, normalized=False), lambda patches: patches.mean(axis=2))
"""


def test_no_words_list_the_stages(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    assert all(" ".join(words) in shown for words in cli.STAGES)


def test_an_unknown_stage_is_an_error(capsys):
    assert cli.main(["extrakt", "x"]) == 2
    assert "unknown stage 'extrakt x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["extract", "{tmp}/none", "{tmp}/out"], "none"),
        (["records", "{tmp}/out", "--paired", "{tmp}/none.h5", "{tmp}/too.h5"], "none.h5"),
        (["train", "--data", "{tmp}/none", "--workdir", "{tmp}/run"], "none: no such records folder"),
        (["train", "--config", "{tmp}/c.py", "--data", "d", "--workdir", "r"], "c.py: no such configuration file"),
        (["export", "{tmp}", "{tmp}/m.safetensors"], "not a run directory"),
        (
            ["translate", "{tmp}/a.npy", "{tmp}/b.npy", "--target", "sift", "--model", "{tmp}/m.safetensors"],
            "a.npy: no such file",
        ),
        (["match", "{tmp}/a.h5", "{tmp}/b.h5", "--pairs", "exhaustive"], "a.h5: no such feature file"),
        (["calibrate", "{tmp}/m.safetensors", "{tmp}/none"], "m.safetensors: no such model file"),
        (["evaluate", "homography", "{tmp}/none", "--out", "{tmp}/out"], "none"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_missing_file_is_one_line_that_names_it_and_nothing_is_written(words, message, tmp_path, capsys):
    assert cli.main([word.format(tmp=tmp_path) for word in words]) == 2
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown
    assert not list(tmp_path.iterdir())


def test_configuration_fields_are_settings_of_train(tmp_path, monkeypatch):
    config = tmp_path / "mine.py"
    config.write_text("from xdesc_jax.config import TrainConfig\ndef get_config():\n    return TrainConfig(epochs=7)\n")
    seen = {}
    monkeypatch.setattr(
        "xdesc_jax.train.translators.run.train", lambda settings, data, workdir, **_: seen.update(c=settings)
    )
    words = ["train", "--config", str(config), "--data", "d", "--workdir", "r", "--loss.alpha", "0.3", "--seed", "4"]
    assert cli.main(words) == 0
    assert (seen["c"].epochs, seen["c"].loss.alpha, seen["c"].seed) == (7, 0.3, 4)


def test_a_plugin_file_brings_an_own_descriptor(tmp_path):
    """In a process of its own, since the registry is one per process."""
    (tmp_path / "own.py").write_text(OWN)
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    from PIL import Image

    noise = rng.integers(0, 255, (30, 40), dtype=np.uint8)
    Image.fromarray(noise).resize((320, 240), Image.Resampling.BICUBIC).save(tmp_path / "photos" / "noise.png")
    words = ["--plugin", str(tmp_path / "own.py"), "extract", str(tmp_path / "photos"), str(tmp_path / "out")]
    words += ["--descriptors", "mean-rows", "--keypoints", "opencv"]
    done = subprocess.run([sys.executable, "-m", "xdesc_jax.cli", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    from xdesc_jax.features.store import FeatureStore

    with FeatureStore(tmp_path / "out" / "mean-rows.h5") as store:  # needs no registry: the file says what it holds
        assert store.spec.width == 32 and store.read("noise.png").valid.any()


def test_a_plugin_that_is_not_there_is_an_error(tmp_path, capsys, monkeypatch):
    from xdesc_jax import descriptors

    monkeypatch.setenv(descriptors.PLUGINS, "")
    descriptors.load_plugins.cache_clear()
    assert cli.main(["--plugin", "no_such_module", "extract", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "no_such_module" in capsys.readouterr().err
    monkeypatch.setenv(descriptors.PLUGINS, "")
    descriptors.load_plugins.cache_clear()
