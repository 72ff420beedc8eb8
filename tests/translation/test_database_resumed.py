"""Translations of COLMAP databases that were stopped, killed or done before."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from tests.support.databases import SPECS, interrupt, make_4, run, sift_rows, state, tables
from xdesc_jax import cli
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.translation.stream import Stream
from xdesc_jax.translation.translate import translate
from xdesc_jax.translation.translator import Translator


def test_an_interrupted_run_goes_on_and_ends_as_if_it_had_not_been(model, tmp_path, monkeypatch, capsys):
    source = make_4(tmp_path / "map.db")
    arguments = ("--target", "plain", "--model", model)
    assert run(source, tmp_path / "whole.db", *arguments) == 0
    with monkeypatch.context() as patched:
        interrupt(patched, 4)
        assert run(source, tmp_path / "out.db", *arguments) == 130
    assert not (tmp_path / "out.db").exists() and (tmp_path / ".out.db.partial").exists()
    translated = []
    with monkeypatch.context() as patched:
        call = Stream.__call__
        patched.setattr(Stream, "__call__", lambda self, x, **named: translated.append(1) or call(self, x, **named))
        assert run(source, tmp_path / "out.db", *arguments) == 0
    assert len(translated) == 2
    assert "4 of 6 images are translated" in capsys.readouterr().err
    assert tables(tmp_path / "out.db") == tables(tmp_path / "whole.db")
    whole, resumed = (json.loads((tmp_path / f"{n}.db.json").read_text()) | {"seconds": 0} for n in ("whole", "out"))
    assert resumed == whole
    assert not [p.name for p in tmp_path.iterdir() if "partial" in p.name]


def test_a_killed_run_goes_on(model, database, tmp_path):
    program = (
        "import os, signal, sys\n"
        "from xdesc_jax import cli\n"
        "from xdesc_jax.translation import database as translate_database\n"
        "from xdesc_jax.colmap.database_writer import DatabaseWriter\n"
        "translate_database.COMMIT_SECONDS = 0\n"
        "write, seen = DatabaseWriter.set_descriptors, []\n"
        "def kill(self, *arguments):\n"
        "    write(self, *arguments)\n"
        "    seen.append(1)\n"
        "    if len(seen) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"  # before the second image is kept
        "DatabaseWriter.set_descriptors = kill\n"
        "cli.main(sys.argv[1:])\n"
    )
    words = ["translate", database, tmp_path / "out.db", "--target", "plain", "--model", model]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program, *map(str, words)], capture_output=True, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "out.db").exists()
    assert cli.main([str(w) for w in words]) == 0
    whole = translate(database, tmp_path / "whole.db", target="plain", model=model)
    assert tables(tmp_path / "out.db") == tables(whole)
    assert not [p.name for p in tmp_path.iterdir() if "partial" in p.name]


@pytest.mark.parametrize("left", ["other settings", "garbage", "nothing"])
def test_a_partial_file_of_something_else_is_not_gone_on_with(model, tmp_path, monkeypatch, left):
    source, partial = make_4(tmp_path / "map.db"), tmp_path / ".out.db.partial"
    if left == "other settings":
        with monkeypatch.context() as patched:
            interrupt(patched, 2)
            assert run(source, tmp_path / "out.db", "--target", "bits", "--model", model) == 130
        assert partial.exists()
    else:
        partial.write_bytes(b"no database at all" * 99 if left == "garbage" else b"")
    out = translate(source, tmp_path / "out.db", target="plain", model=model)
    whole = translate(source, tmp_path / "whole.db", target="plain", model=model)
    assert tables(out) == tables(whole)


def test_two_runs_do_not_make_the_same_file(model, tmp_path, capsys):
    source = make_4(tmp_path / "map.db")
    translate(source, tmp_path / "out.db", target="plain", model=model)
    key = json.loads((tmp_path / "out.db.json").read_text())["config_hash"]
    with DatabaseReader(source) as reader, DatabaseWriter(reader, tmp_path / "out.db", resume=key):
        assert run(source, tmp_path / "out.db", "--target", "plain", "--model", model, "--overwrite") == 2
        assert "another run is making" in capsys.readouterr().err
    assert (tmp_path / "out.db").exists()


def test_finished_work_is_skipped_and_other_work_refused(model, database, tmp_path, capsys):
    out = tmp_path / "out.db"
    assert run(database, out, "--target", "plain", "--model", model) == 0
    before = out.read_bytes()
    assert run(database, out, "--target", "plain", "--model", model) == 0
    assert "up to date" in capsys.readouterr().out
    assert run(database, out, "--target", "bits", "--model", model) == 2
    assert "made with another configuration (target: plain -> bits)" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert run(database, out, "--target", "bits", "--model", model, "--overwrite") == 0
    with DatabaseReader(out) as reader:
        assert reader.spec(reader.names[0]) == SPECS["bits"]


def test_rows_still_in_the_write_ahead_log_are_translated(model, database_3, tmp_path):
    other = sqlite3.connect(database_3)
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("UPDATE descriptors SET data = ? WHERE image_id = 3", (sift_rows(3, 99).tobytes(),))
    other.commit()
    before = state(database_3.parent)
    out = translate(database_3, tmp_path / "out.db", target="plain", model=model)
    assert state(database_3.parent) == before
    other.close()
    expected = Translator.load(model).stream("colmap-sift", "plain", storage=True)(sift_rows(3, 99))
    with DatabaseReader(out) as reader:
        np.testing.assert_array_equal(reader.descriptors("sub/é.jpg"), expected)
