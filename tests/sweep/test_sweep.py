"""Sweeps: members end as they would alone, resume after a kill, and are chosen at rungs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.support import toy_records as toy
from tests.support.root import ROOT
from tests.support.stopped import Stopped
from xdesc_jax.config import OptimizerConfig, load_config
from xdesc_jax.export.export import export
from xdesc_jax.sweep import run as sweep_run
from xdesc_jax.sweep.config import SweepConfig, expand
from xdesc_jax.sweep.results import read_results
from xdesc_jax.sweep.stage import sweep
from xdesc_jax.train import operands
from xdesc_jax.train.checkpoint import Checkpoints
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.trained import load_model
from xdesc_jax.translation.translator import Translator

BASE = dataclasses.replace(toy.toy_config(), epochs=2)
TWO = dataclasses.replace(BASE, descriptors=("toy-bits", "toy-unit"))  # compiled in half the time
MEMBERS = (
    {},
    {"seed": 3, "loss.alpha": 0.4, "optimizer.schedule": "constant"},
    {"optimizer.learning_rate": 5e-3, "optimizer.warmup_steps": 0, "loss.margin": 0.5, "optimizer.schedule": "linear"},
    {"descriptors": ("toy-bits", "toy-unit"), "seed": 1},
    {"optimizer.learning_rate": 1e30},
)


def config_file(folder: Path, settings: SweepConfig) -> Path:
    """A configuration file; `TESTED` names the settings here."""
    path = folder / "sweep.py"
    path.write_text(
        "from pathlib import Path, PosixPath\n"
        "from xdesc_jax.config import *\nfrom xdesc_jax.sweep.config import *\n\n\n"
        f"def get_config():\n    return {settings!r}\n"
    )
    return path


def read(path: Path) -> SweepConfig:
    return load_config(path, SweepConfig)


@pytest.fixture(scope="module")
def swept(toy_folder, tmp_path_factory) -> Path:
    """Five members: three that differ in numbers, one of two descriptors, one that diverges."""
    folder = tmp_path_factory.mktemp("swept")
    config = config_file(folder, SweepConfig(BASE, members=MEMBERS))
    return sweep(config=read(config), data=toy_folder, workdir=folder / "w", steps_per_dispatch=2)


def weights(run: Path, which: str = "latest") -> list[np.ndarray]:
    return jax.tree.leaves(load_model(run, which).networks)


def results(workdir: Path) -> dict[str, dict]:
    return {entry["member"]: entry for entry in read_results(workdir)}


@pytest.mark.parametrize("variant", ["quadratic", "linear"])
def test_members_equal_trainings_of_their_own(toy_folder, tmp_path, swept, variant):
    loss = dataclasses.replace(BASE.loss, variant=variant)
    settings = SweepConfig(
        dataclasses.replace(BASE, loss=loss), members=MEMBERS[:4] if variant == "quadratic" else MEMBERS[0:4:3]
    )
    if variant == "quadratic":
        workdir = swept
    else:
        workdir = sweep(config=read(config_file(tmp_path, settings)), data=toy_folder, workdir=tmp_path / "w")
    for member in expand(settings)[1::2]:
        alone = train(member.config, toy_folder, tmp_path / member.name)
        together = workdir / "members" / member.name
        for a, b in zip(weights(together), weights(alone), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-3)
        figures = [json.loads((run / "validation.json").read_text()) for run in (together, alone)]
        for mine, its in zip(*figures, strict=True):
            assert mine["translation_error"] == pytest.approx(its["translation_error"], rel=1e-3)
            assert mine["mean_rank1"] == pytest.approx(its["mean_rank1"], abs=5e-3)


def test_the_other_form_and_other_optimisers_train_as_alone(toy_folder, tmp_path):
    """Members that differ in numbers of the optimiser, on four devices; those with an average are apart."""
    members = (
        {"optimizer.b1": 0.8, "optimizer.clip_norm": 0.5, "optimizer.weight_decay": 0.05},
        {"optimizer.clip_norm": 2.0, "optimizer.weight_decay": 0.01},
        {"optimizer.ema": 0.9},
    )
    settings = SweepConfig(TWO, members=members)
    workdir = sweep(config=settings, data=toy_folder, workdir=tmp_path / "w", backend="sharded")
    assert sorted(entry["members_together"] for entry in read_results(workdir)) == [1, 2, 2]
    for member in expand(settings)[::2]:
        alone, together = train(member.config, toy_folder, tmp_path / member.name), workdir / "members" / member.name
        for a, b in zip(weights(together), weights(alone), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-3)


def test_a_run_and_a_sweep_validate_with_the_operands_that_were_measured(toy_folder, tmp_path, monkeypatch):
    """At a rate under which no weight moves, so that figures differ by the operands of the validation alone."""
    monkeypatch.setattr(operands, "seconds_of_products", lambda *_: {"float32": 2.0, "bfloat16": 1.0})
    base = dataclasses.replace(
        TWO, epochs=1, model=dataclasses.replace(BASE.model, matmul="auto"),
        optimizer=OptimizerConfig(1e-12),
    )  # fmt: skip
    workdir = sweep(config=SweepConfig(base, members=({},)), data=toy_folder, workdir=tmp_path / "w")
    given = dataclasses.replace(base, model=dataclasses.replace(base.model, matmul="float32"))
    [together] = (workdir / "members").iterdir()
    alone, other = train(base, toy_folder, tmp_path / "alone"), train(given, toy_folder, tmp_path / "other")
    found, expected, otherwise = (
        np.array(list(json.loads((run / "validation.json").read_text())[-1]["translation_error"].values()))
        for run in (together, alone, other)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.abs(otherwise / expected - 1).max() > 1e-5


def test_a_member_that_diverges_is_frozen_and_reported(swept):
    entries = read_results(swept)
    lost = next(entry for entry in entries if entry["fields"] == {"optimizer.learning_rate": 1e30})
    assert lost["status"] == "diverged" and "not finite in step" in lost["reason"]
    assert lost["mean_rank1"] is None and lost["epoch"] == 0
    assert [entry["status"] for entry in entries].count("finished") == 4
    assert (swept / "results.parquet").exists() and len((swept / "results.jsonl").read_text().splitlines()) == 5


def test_a_member_is_exported_as_any_run(swept, tmp_path):
    member = expand(SweepConfig(BASE, members=MEMBERS[3:4]))[0]
    export(swept / "members" / member.name, tmp_path / "m.safetensors")
    translator = Translator.load(tmp_path / "m.safetensors")
    assert set(translator.specs) == {"toy-bits", "toy-unit"}


def test_finished_members_are_not_trained_again(swept, toy_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_run, "train_group", lambda *_: pytest.fail("trained again"))
    workdir = Path(shutil.copytree(swept, tmp_path / "w"))
    lines = (workdir / "results" / "0-of-1.jsonl").read_bytes()
    sweep(config=read(swept.parent / "sweep.py"), data=toy_folder, workdir=workdir)
    assert (workdir / "results" / "0-of-1.jsonl").read_bytes() == lines


def test_a_killed_sweep_ends_as_an_uninterrupted_one(swept, toy_folder, tmp_path):
    """SIGKILL as the group's third checkpoint is due, and then, of the sweep that goes on, as the second result is."""
    script = f"""
import os, signal, sys
sys.path[:0] = [{str(ROOT)!r}]
from pathlib import Path
from xdesc_jax.config import OptimizerConfig, load_config
from xdesc_jax.sweep import run
from xdesc_jax.sweep.config import SweepConfig
from xdesc_jax.train.checkpoint import Checkpoints
save, append, seen = Checkpoints.save, run.append_result, []
def killing(what, of):
    def replaced(*arguments):
        seen.append(1)
        if len(seen) == of:
            os.kill(os.getpid(), signal.SIGKILL)
        return what(*arguments)
    return replaced
if sys.argv[1] == "result":
    run.append_result = killing(append, 2)
else:
    die = killing(save, 3)
    def chosen(self, *arguments):
        return (die if self.directory.parent.parent.name == "groups" else save)(self, *arguments)
    Checkpoints.save = chosen
settings = load_config({str(swept.parent / "sweep.py")!r}, SweepConfig)
run.run_sweep(settings, Path({str(toy_folder)!r}), Path({str(tmp_path / "w")!r}), steps_per_dispatch=2)
"""
    for deadly in ("group", "result"):
        ended = subprocess.run([sys.executable, "-c", script, deadly], capture_output=True, text=True, env=os.environ)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    sweep(config=read(swept.parent / "sweep.py"), data=toy_folder, workdir=tmp_path / "w", steps_per_dispatch=2)
    expected, found = results(swept), results(tmp_path / "w")
    assert found.keys() == expected.keys()
    for name, entry in expected.items():
        assert found[name]["status"] == entry["status"] and found[name]["history"] == entry["history"]
        if entry["status"] == "finished":
            for which in ("latest", "best"):
                for a, b in zip(
                    weights(tmp_path / "w" / "members" / name, which),
                    weights(swept / "members" / name, which),
                    strict=True,
                ):
                    np.testing.assert_array_equal(a, b)


def test_members_killed_before_their_checkpoints_are_written_go_on(toy_folder, tmp_path, monkeypatch):
    """As the second epoch has ended and its figures are measured."""
    settings, workdir = SweepConfig(TWO, grid={"seed": (0, 1)}), tmp_path / "w"
    write = Checkpoints._write

    def killed(self, tree, position, metrics):
        if self.directory.parent.parent.name == "members" and position.epoch == 2:
            raise Stopped
        return write(self, tree, position, metrics)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Checkpoints, "_write", killed)
        sweep(config=settings, data=toy_folder, workdir=workdir)
    sweep(config=settings, data=toy_folder, workdir=workdir)
    for member in expand(settings):
        run = workdir / "members" / member.name
        assert load_model(run, "latest").provenance["steps"] == results(workdir)[member.name]["steps"]


def test_halving_keeps_the_best_and_they_end_as_alone(toy_folder, tmp_path):
    settings = SweepConfig(TWO, grid={"optimizer.learning_rate": (1e-6, 2e-2, 1e-5, 1e-2)}, halving=2)
    workdir = sweep(config=read(config_file(tmp_path, settings)), data=toy_folder, workdir=tmp_path / "w", population=3)
    found = results(workdir)
    assert sorted(entry["epoch"] for entry in found.values()) == [1, 1, 2, 2]
    best = [entry for entry in found.values() if entry["status"] == "finished"]
    assert {entry["fields"]["optimizer.learning_rate"] for entry in best} == {2e-2, 1e-2}
    member = next(m for m in expand(settings) if m.name == best[0]["member"])
    alone = train(member.config, toy_folder, tmp_path / "alone")
    for a, b in zip(weights(workdir / best[0]["run"]), weights(alone), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)
    again = sweep(config=read(tmp_path / "sweep.py"), data=toy_folder, workdir=workdir, population=3)
    assert results(again) == found


def test_who_has_ended_is_not_trained_again_in_other_shards_and_populations(swept, toy_folder, tmp_path):
    """Of five members, the results of the first two are kept: the other three train as a population of their own."""
    workdir = Path(shutil.copytree(swept, tmp_path / "w"))
    lines = (workdir / "results" / "0-of-1.jsonl").read_bytes().splitlines(keepends=True)
    (workdir / "results" / "0-of-1.jsonl").write_bytes(b"".join(lines[:2]))
    kept = [json.loads(line)["member"] for line in lines[:2]]
    for member in expand(SweepConfig(BASE, members=MEMBERS)):
        if member.name not in kept:
            shutil.rmtree(workdir / "members" / member.name)
    before = {p: p.stat().st_mtime_ns for name in kept for p in (workdir / "members" / name).rglob("*")}
    sweep(config=read(swept.parent / "sweep.py"), data=toy_folder, workdir=workdir, population=4)
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert {n: e["status"] for n, e in results(workdir).items()} == {n: e["status"] for n, e in results(swept).items()}


def test_shards_share_the_members(toy_folder, tmp_path):
    settings = SweepConfig(dataclasses.replace(TWO, epochs=1), grid={"seed": (0, 1, 2)})
    config = config_file(tmp_path, settings)
    for i in range(2):
        sweep(config=read(config), data=toy_folder, workdir=tmp_path / "w", shard=f"{i}/2")
    assert results(tmp_path / "w").keys() == {member.name for member in expand(settings)}
    assert {path.name for path in (tmp_path / "w" / "results").iterdir()} == {"0-of-2.jsonl", "1-of-2.jsonl"}


def test_other_settings_are_refused_with_the_difference(swept, toy_folder, tmp_path):
    config = config_file(tmp_path, SweepConfig(dataclasses.replace(BASE, epochs=3), members=MEMBERS))
    with pytest.raises(ValueError, match=r"other settings \(base.epochs: 2 -> 3\)"):
        sweep(config=read(config), data=toy_folder, workdir=swept)


def test_a_folder_of_something_else_is_refused(toy_folder, tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "thesis.txt").write_text("mine")
    config = config_file(tmp_path, SweepConfig(BASE))
    with pytest.raises(FileExistsError, match="holds no sweep"):
        sweep(config=read(config), data=toy_folder, workdir=tmp_path / "w", overwrite=True)
    assert (tmp_path / "w" / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": {"descriptors": (("toy-bits", "surf"),)}}, "records lack"),
        ({"grid": {"batch_size": (63,)}}, "batch_size 63 does not divide over 4 devices"),
        ({"grid": {"epochs": (2, 3)}, "halving": 2}, "epochs cannot vary"),
    ],
)
def test_what_cannot_be_trained_fails_before_anything_is(toy_folder, tmp_path, change, message):
    config = config_file(tmp_path, SweepConfig(BASE, **change))
    with pytest.raises(ValueError, match=message):
        sweep(config=read(config), data=toy_folder, workdir=tmp_path / "w")
    assert not (tmp_path / "w").exists()
