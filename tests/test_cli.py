"""The command line: what a person sees who types something wrong, and the ways to bring one's own descriptor."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.called import called
from tests.support.root import ROOT
from xdesc_jax import __version__, cli, console, descriptors
from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig
from xdesc_jax.sweep.config import SweepConfig
from xdesc_jax.train.descriptors.config import AugmentationConfig, DescriptorConfig

OWN = """
from xdesc_jax import DescriptorSpec, register
register(DescriptorSpec("mean-rows", 32, normalized=False), lambda patches: patches.mean(axis=2))
"""


def test_no_words_list_the_stages(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for words in cli.STAGES for word in words[:2])
    places = [shown.index(f"{group.name} ─") for group in dict.fromkeys(stage.group for stage in cli.STAGES.values())]
    assert len(places) == 6


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_help_is_the_same_by_any_name(words, capsys):
    cli.main([])
    expected = capsys.readouterr().out
    assert cli.main(words) == 0 and capsys.readouterr().out == expected


def test_the_version_is_the_package_s(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["xdesc", __version__]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["extrat", "x"], 'Unknown command "extrat". Did you mean "extract"? See `xdesc --help`.'),
        (["evaluate", "homografy"], 'Did you mean "homography"? See `xdesc evaluate --help`.'),
        (
            ["match", "a", "b", "--paris", "x"],
            "Unknown option: --paris. Did you mean --pairs? See `xdesc match --help`.",
        ),
        (["match", "a", "b", "--pairs"], "parameter --pairs requires an argument. See `xdesc match --help`."),
        (
            ["match", "a", "b"],
            "error: xdesc match needs --pairs (usage: xdesc match FEATURES... OUT --pairs PAIRS [OPTIONS]).",
        ),
        (
            ["train", "--data", "d"],
            "xdesc train needs --workdir (usage: xdesc train --data DATA --workdir WORKDIR [OPTIONS]).",
        ),
        (["match", "a", "b", "--pairs", "x", "--mode", "embde"], 'Did you mean "embed"? See `xdesc match --help`.'),
        (["train", "--data", "d", "--workdir", "w", "--epochs", "many"], 'unable to convert "many" into int'),
        (["match", "a", "--pairs", "x"], "xdesc match expects FEATURES... OUT. See `xdesc match --help`."),
        (["inspect"], "xdesc inspect expects PATH. See `xdesc inspect --help`."),
        (["models", "a", "b"], "xdesc models expects no paths, found also a b. See `xdesc models --help`."),
        (["inspect", "a", "b"], "xdesc inspect expects PATH, found also b. See `xdesc inspect --help`."),
        (["plan"], "name a stage: xdesc plan STAGE ..."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_slip_is_one_line_with_what_was_meant_and_where_to_look(words, message, capsys):
    assert cli.main(words) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1


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
        (["retrieve", "{tmp}/a.h5", "{tmp}/pairs.txt"], "a.h5: no such feature file"),
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


def config_file(folder: Path, settings: str, name: str = "config") -> str:
    path = folder / "mine.py"
    path.write_text(f"from xdesc_jax.{name} import *\ndef get_config():\n    return {settings}\n")
    return str(path)


RUN = ["--data", "d", "--workdir", "r"]


def test_an_option_overrides_its_field_of_the_configuration_file_alone(tmp_path, monkeypatch):
    file = config_file(tmp_path, "TrainConfig(epochs=7, resident=True, loss=LossConfig(alpha=0.2, margin=3.0))")
    words = ["train", "--config", file, *RUN, "--loss.alpha", "0.3", "--seed", "4", "--no-resident"]
    found = called(monkeypatch, words)["config"]
    assert found == TrainConfig(epochs=7, seed=4, loss=LossConfig(alpha=0.3, margin=3.0))


def test_configuration_fields_are_options_without_a_file(monkeypatch):
    words = [
        "train",
        *RUN,
        "--optimizer.learning-rate",
        "0.5",
        "--model.hidden-learned",
        "8",
        "9",
        "--descriptors",
        "a",
    ]
    expected = TrainConfig(descriptors=("a",), optimizer=OptimizerConfig(0.5), model=ModelConfig(hidden_learned=(8, 9)))
    assert called(monkeypatch, words)["config"] == expected


def test_help_shows_the_defaults_of_the_configuration_file(tmp_path, capsys):
    file = config_file(tmp_path, "TrainConfig(epochs=77)")
    assert cli.main(["train", f"--config={file}", "--help"]) == 0
    assert re.search(r"--epochs INT +Passes over the training split. \[default: 77\]", capsys.readouterr().out)


def test_a_descriptor_s_training_is_configured_in_the_same_way(tmp_path, monkeypatch):
    file = config_file(tmp_path, "DescriptorConfig(margin=2.0)", "train.descriptors.config")
    words = ["train-descriptor", "--config", file, "--data", "A=0.7", "--data", "B=0.3", "--workdir", "r"]
    found = called(monkeypatch, [*words, "--optimizer.schedule", "constant", "--augmentation.no-flips"])
    assert found["data"] == ("A=0.7", "B=0.3")
    assert found["config"] == DescriptorConfig(
        margin=2.0, optimizer=OptimizerConfig(2e-3, "constant", 100), augmentation=AugmentationConfig(flips=False)
    )


def test_a_sweep_s_base_is_configured_in_the_same_way(tmp_path, monkeypatch):
    file = config_file(tmp_path, "SweepConfig(grid={'seed': (1, 2)})", "sweep.config")
    found = called(monkeypatch, ["sweep", "--config", file, *RUN, "--base.epochs", "2"])["config"]
    assert found == SweepConfig(TrainConfig(epochs=2), grid={"seed": (1, 2)})


def test_a_value_that_a_configuration_refuses_is_one_line(capsys):
    assert cli.main(["train", *RUN, "--loss.alpha", "-1"]) == 2
    assert capsys.readouterr().err == "error: loss.alpha is -1.0, expected at least 0\n"


def test_the_last_of_several_paths_is_the_output(monkeypatch):
    found = called(monkeypatch, ["match", "a.h5", "b.h5", "out.h5", "--pairs", "exhaustive", "--ratio", "None"])
    assert (found["features"], found["out"]) == ((Path("a.h5"), Path("b.h5")), Path("out.h5"))
    assert found["ratio"] is None and "mode" not in found


def test_what_a_file_holds_is_a_descriptor_by_its_older_name_too(monkeypatch, capsys):
    words = ["translate", "a", "b", "--target", "t", "--model", "m"]
    assert called(monkeypatch, [*words, "--source", "sift"]) == called(monkeypatch, [*words, "--descriptor", "sift"])
    assert cli.main([*words, "--source", "sift", "--descriptor", "brief"]) == 2
    assert "--source is an older name of --descriptor: give one of them" in capsys.readouterr().err
    assert cli.main(["translate", "--help"]) == 0
    assert "--source" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["records-beam", "o"], ["plan", "records-beam", "o"], ["-q", "records-beam", "o"]])
def test_a_former_name_of_a_stage_stands_for_its_words_of_now(words, monkeypatch):
    assert called(monkeypatch, words) == {"out": Path("o"), "beam": True}


@pytest.mark.parametrize("words", [["-q", "models"], ["models", "--quiet"], ["--quiet", "models", "-v"]])
def test_global_options_stand_before_or_after_the_stage(words, monkeypatch):
    seen = []
    monkeypatch.setattr(console, "set_verbosity", lambda quiet, verbose: seen.append((quiet, verbose)))
    assert called(monkeypatch, words) == {} and seen[-1] == (True, "-v" in words)


@pytest.mark.parametrize("words", [["-q", "benchmark", "run"], ["benchmark", "-q", "run"], ["benchmark", "run", "-q"]])
def test_the_help_of_a_stage_of_several_words_is_its_own_wherever_global_options_stand(words, capsys):
    assert cli.main([*words, "aachen", "--help"]) == 0
    assert "Usage: xdesc benchmark run aachen " in capsys.readouterr().out


def test_plugins_may_be_several(monkeypatch):
    called(monkeypatch, ["--plugin", "a.py", "models", "--plugin=b"])
    assert os.environ[descriptors.PLUGINS] == os.pathsep.join(["a.py", "b"])


def test_completion_is_installed_and_knows_the_options_of_every_stage(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    script = tmp_path / "xdesc.bash"
    assert cli.main(["--install-completion", "--shell", "bash", "--output", str(script)]) == 0
    assert str(script) in capsys.readouterr().out and str(script) in (tmp_path / ".bashrc").read_text()
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    words = set(re.findall(r"[\w.-]+", script.read_text()))
    assert {word for stage in cli.STAGES for word in stage} <= words
    assert {"--query-features", "--loss.alpha", "--warped.warp.max-tilt", "--base.epochs", "--dry-run"} <= words


def test_a_missing_package_is_one_line_that_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == "pycolmap" else True)
    assert cli.main(["localize", "a", "b", "--features", "c", "--queries", "d"]) == 2
    expected = "error: xdesc localize needs the package 'pycolmap'; install it with: pip install 'xdesc-jax[colmap]'\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("error", [TypeError("two\nlines"), AttributeError("x"), RuntimeError("y")])
def test_an_error_of_our_own_is_one_line_and_a_status_of_its_own(error, monkeypatch, capsys):
    def fail(*_):
        raise error

    monkeypatch.setattr(cli, "_begin", fail)
    assert cli.main(["models"]) == cli.INTERNAL_ERROR
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: internal error in xdesc models: {type(error).__name__}: ")
    assert shown.endswith("(XDESC_DEBUG=1 shows where)\n") and shown.count("\n") == 1
    monkeypatch.setenv("XDESC_DEBUG", "1")
    with pytest.raises(type(error)):
        cli.main(["models"])


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_stopped_stage_clears_away_says_so_in_a_line_and_ends_as_a_shell_has_it(name, status, tmp_path):
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where tests run in the background
        "from xdesc_jax import cli\n"
        "from xdesc_jax.files.whole import atomic\n"
        "def run():\n"
        "    with atomic('out') as temporary:\n"
        "        temporary.touch()\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "cli.main = lambda: cli._status(run, [()])\n"
        "cli.entry()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == status and list(tmp_path.iterdir()) == []
    assert re.fullmatch(r"error: (terminated|interrupted); finished work is kept\n", done.stderr)


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
