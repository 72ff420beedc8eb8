"""One process at a time works on a result: who does is told, and a dead one's lock is taken over."""

import fcntl
import json
import os
import socket
import subprocess
import sys

import pytest

from tests.support.killed import kill_within
from tests.support.root import ROOT
from xdesc_jax.files import claim, dry_run
from xdesc_jax.files.claim import InUse, beside, claimed, holder, inside

HOLDING = """
import sys
from pathlib import Path
from xdesc_jax.files.claim import claimed, inside
folder = Path(sys.argv[1])
with claimed(inside(folder), "xdesc train", folder):
    print("held", flush=True)
    {then}
"""


def test_another_process_is_told_which_one_where_and_since_when(tmp_path):
    run = tmp_path / "run"
    code = HOLDING.format(then="sys.stdin.read()")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, run], env=environment, **pipes) as other:
        assert other.stdout.readline() == "held\n"
        told = rf"^{run}: another process works on it: xdesc train, process {other.pid} on {socket.gethostname()}, "
        with (
            pytest.raises(InUse, match=told + r"since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$"),
            claimed(inside(run), "xdesc train", run),
        ):
            pytest.fail("two of them")
        assert holder(inside(run)).process == other.pid
        other.stdin.close()
    with claimed(inside(run), "xdesc train", run):
        assert holder(inside(run)).process == os.getpid()


def test_a_dead_ones_lock_is_taken_over_and_told(tmp_path, caplog):
    kill_within(HOLDING.format(then="import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), tmp_path)
    assert inside(tmp_path).exists() and holder(inside(tmp_path)) is None
    with caplog.at_level("INFO", "xdesc_jax"), claimed(inside(tmp_path), "xdesc sweep", tmp_path):
        assert holder(inside(tmp_path)).work == "xdesc sweep"
    assert "taken over from a process that did not end in good order (xdesc train, process" in caplog.text
    assert not inside(tmp_path).exists()


def test_what_a_killed_process_left_half_written_goes_and_nothing_else(tmp_path):
    (tmp_path / ".out.db.12.partial" / "raw").mkdir(parents=True)
    others = [".other.db.12.partial", ".out.12.partial", ".out.db.5.old", ".out.db.partial"]
    for name in (".out.db.345.partial-wal", *others):
        (tmp_path / name).touch()
    with claimed(beside(tmp_path / "out.db"), "xdesc translate", tmp_path / "out.db"):
        kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == sorted([*others, ".out.db.lock"])


def test_nothing_is_left_of_work_that_made_nothing(tmp_path):
    run = tmp_path / "new" / "run"
    with pytest.raises(ValueError, match="no data"), claimed(inside(run), "xdesc train", run):
        raise ValueError("no data")
    assert not run.parent.exists()
    with claimed(inside(run), "xdesc train", run):
        (run / "config.json").write_text("{}")
    assert [path.name for path in run.iterdir()] == ["config.json"]


def test_a_lock_that_its_holder_removes_is_taken_anew(tmp_path, monkeypatch):
    """Between opening and locking, the other one ends: the file that was opened is no lock any more."""
    lock, real, removed = beside(tmp_path / "out.h5"), fcntl.flock, []

    def late(file, how):
        if not removed:
            removed.append(lock.unlink())
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with claimed(lock, "xdesc match", tmp_path / "out.h5"):
        monkeypatch.undo()
        assert holder(lock).process == os.getpid()
        with pytest.raises(InUse), claimed(lock, "xdesc match", tmp_path / "out.h5"):
            pytest.fail("two of them")


@pytest.mark.parametrize(
    ("process", "host", "free"), [("this", "here", False), ("none", "here", True), ("this", "far", True)]
)
def test_without_locks_the_note_tells_of_a_process_of_the_same_host(tmp_path, monkeypatch, caplog, process, host, free):
    def unsupported(file, how):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    note = {"work": "xdesc train", "since": "2026-01-01 00:00:00 UTC", "host": host}
    note["process"] = os.getpid() if process == "this" else 2**22 + 1  # beyond what Linux gives
    note["host"] = socket.gethostname() if host == "here" else "far"
    inside(tmp_path).write_text(json.dumps(note))
    if not free:
        assert holder(inside(tmp_path)) is not None
        with pytest.raises(InUse, match="xdesc train, process"), claimed(inside(tmp_path), "xdesc train", tmp_path):
            pytest.fail("two of them")
        return
    with caplog.at_level("INFO", "xdesc_jax"), claimed(inside(tmp_path), "xdesc train", tmp_path):
        assert json.loads(inside(tmp_path).read_text())["host"] == socket.gethostname()
    assert "has no locks" in caplog.text and f"since {note['since']}" in caplog.text


def test_a_dry_run_says_who_works_there_and_writes_nothing(tmp_path):
    run = tmp_path / "run"
    with dry_run.planning(), claimed(inside(run), "xdesc train", run):
        assert not run.exists()
    with claimed(inside(run), "xdesc train", run), dry_run.planning(), pytest.raises(InUse):
        with claimed(inside(run), "xdesc train", run):
            pytest.fail("two of them")


def test_a_folder_that_cannot_be_written_is_left_to_the_stage(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(claim, "_take", refused)
    with claimed(inside(tmp_path), "xdesc localize", tmp_path):
        assert list(tmp_path.iterdir()) == []
