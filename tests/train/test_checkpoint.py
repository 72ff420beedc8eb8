"""Checkpoints on a full disk: what failed is named, and the run goes on once there is room."""

from __future__ import annotations

import dataclasses
import gc
import shutil
import subprocess
import sys
import tempfile
import threading

import jax
import numpy as np
import pytest

from tests.support.root import ROOT
from tests.support.stopped import Calls
from xdesc_jax.train import checkpoint
from xdesc_jax.train.checkpoint import Checkpoints, Position
from xdesc_jax.train.state import TrainState
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.trained import load_model


def test_a_full_disk_names_the_folder_and_spares_the_checkpoint_before(toy_records, toy_config, tmp_path):
    """Files of a process that may be no larger than a log fail as they do on a full disk."""
    run, config = tmp_path / "run", dataclasses.replace(toy_config, epochs=3)
    script = f"""
import resource, signal, sys
sys.path[:0] = [{str(ROOT)!r}]
from pathlib import Path
from xdesc_jax.config import TrainConfig
from xdesc_jax.files.fields import from_dict
from xdesc_jax.train import checkpoint
from xdesc_jax.train.translators import run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
save = checkpoint.Checkpoints.save
def save_while_there_is_room(self, state, position, metrics=None):
    if position.step > 3:
        self.verify()
        sys.dont_write_bytecode = True  # of which half would be written
        resource.setrlimit(resource.RLIMIT_FSIZE, (16384, resource.RLIM_INFINITY))
    save(self, state, position, metrics)
checkpoint.Checkpoints.save = save_while_there_is_room
try:
    run.train(from_dict({dataclasses.asdict(config)!r}, TrainConfig), Path({str(toy_records)!r}), Path({str(run)!r}))
except OSError as error:
    print(f"error: {{error}}")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"{run / 'checkpoints'}: a checkpoint cannot be written (File too large)" in done.stdout, done.stderr
    assert load_model(run, "latest").provenance["steps"] == 3
    other = train(config, toy_records, tmp_path / "other")
    train(config, toy_records, run)
    found, expected = (jax.tree.leaves(load_model(path, "latest").networks) for path in (run, other))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # orbax leaves its event loop behind
@pytest.mark.parametrize("how", ["cut", "noise"])
@pytest.mark.parametrize("file", ["state/manifest.ocdbt", "state/_METADATA", "state/d/*", "meta/metadata"])
def test_a_damaged_checkpoint_is_passed_over_in_one_line(straight, tmp_path, capfd, caplog, file, how):
    run, last = damaged(straight, tmp_path / "run", file, how)
    capfd.readouterr()
    assert load_model(run, "latest").provenance["steps"] < int(last.name)
    told = "".join("".join(record.getMessage() for record in caplog.records).split())
    assert "Traceback" not in capfd.readouterr().err and not [record for record in caplog.records if record.exc_info]
    assert told.count("cannotbeused,tryinganother") == 1
    assert f"{run / 'checkpoints'}:checkpointofstep{int(last.name)}cannotbeused" in told
    gc.collect()  # so that the warning is told here


def test_a_good_checkpoint_is_read_without_collecting_garbage(straight, monkeypatch):
    """Which takes as long as reading it, in a process that has imported jax."""
    monkeypatch.setattr(gc, "collect", lambda *_: pytest.fail("collected"))
    assert load_model(straight, "latest").provenance["steps"] == 48


def damaged(straight, run, file, how):
    """A copy of a run whose last checkpoint has a damaged file, and that checkpoint's folder."""
    shutil.copytree(straight, run)
    last = max(path for path in (run / "checkpoints").iterdir() if path.name.isdecimal())
    [path] = last.glob(file)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if how == "cut" else bytes(len(content)))
    return run, last


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # orbax leaves its event loop behind
def test_a_run_with_a_damaged_metrics_file_is_read_and_goes_on(straight, tmp_path, capfd, caplog, toy_config):
    run, last = damaged(straight, tmp_path / "run", "metrics/metrics", "cut")
    for which in ("latest", "best"):
        assert load_model(run, which).provenance["steps"] < int(last.name)
    assert last.exists()
    capfd.readouterr()
    Checkpoints(run, toy_config.hash).close()
    told = "".join("".join(record.getMessage() for record in caplog.records).split())
    assert "metrics/metrics:notvalidJSON" in told and f"step{int(last.name)}isnotused" in told and not last.exists()
    assert [path.name.split("-")[0] for path in (run / "unusable").iterdir()] == [last.name]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # orbax leaves its event loop behind
def test_what_reads_a_state_is_closed_with_the_folder_that_leaves_out_damaged_ones(straight, tmp_path, monkeypatch):
    run, _ = damaged(straight, tmp_path / "run", "metrics/metrics", "cut")
    views = tmp_path / "views"
    views.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(views))
    opened, restore = [], Checkpoints.restore
    monkeypatch.setattr(Checkpoints, "restore", lambda self, *a: opened.append(self) or restore(self, *a))
    closed = Calls(monkeypatch, checkpoint.ocp.CheckpointManager, "close")
    load_model(run, "latest")
    assert len(opened) == closed.done == 1 and list(views.iterdir()) == []


def test_a_state_is_hashed_and_read_back_beside_the_training(tmp_path, monkeypatch):
    """Twice each, and never by the thread that saves; what is saved is the state as it was, whatever becomes of it."""
    threads, digest = [], checkpoint.digest
    monkeypatch.setattr(checkpoint, "digest", lambda tree: threads.append(threading.current_thread()) or digest(tree))
    checkpoints = Checkpoints(tmp_path / "run", "hash")
    weights = np.arange(6, dtype=np.float32)
    state = TrainState(np.int32(3), {"net": weights[:4]}, {}, {})
    checkpoints.save(state, Position(3, 0, 3))
    weights[:] = -1
    checkpoints.verify()
    assert len(threads) == 2 and threading.current_thread() not in threads
    found, position = checkpoints.restore(state)
    assert found.params["net"].tolist() == [0, 1, 2, 3] and position == Position(3, 0, 3)
    checkpoints.close()
