"""A few hostile inputs of every reader, and what it takes for a failure; `python -m tests.fuzz` tries more."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from tests.fuzz.mutators import change_bytes
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.trials import FAILED, REFUSED, TAKEN, UNCHANGED, attempt, make_changed, make_valid
from tests.support.root import ROOT

INPUTS, SLOW_INPUTS = 25, 4
SEED = 7


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_a_hostile_file_or_refuses_it_in_one_line(name, tmp_path):
    reader = READERS[name]
    valid = make_valid(reader, tmp_path / "work")
    for number in range(SLOW_INPUTS if reader.slow else INPUTS):
        outcome = attempt(reader, valid, SEED, number, tmp_path / str(number))
        assert outcome.kind != FAILED, f"{number}: {outcome}"


def test_an_input_is_the_same_each_time(tmp_path):
    for name in ("features", "database-3", "npz-model", "records"):
        valid = make_valid(READERS[name], tmp_path / name)
        first, again = (make_changed(READERS[name], valid, 1, 3, tmp_path / f"{name}-{i}") for i in range(2))
        assert first[1] == again[1]
        files = [sorted(f for f in (path, *path.rglob("*")) if f.is_file()) for path in (first[0], again[0])]
        for a, b in zip(*files, strict=True):
            assert a.read_bytes() == b.read_bytes()


def _reader(read) -> Reader:
    def make(folder):
        (folder / "a.txt").write_bytes(bytes(range(200)))
        return folder / "a.txt"

    return Reader("odd", make, read, {".txt": (change_bytes,)})


def _refuses(path):
    raise ValueError(f"{path}: damaged")


def _refuses_without_its_name(path):
    raise ValueError("damaged")


def _stumbles(path):
    raise TypeError(f"{path}: NoneType")


@pytest.mark.parametrize(
    ("read", "kind"),
    [(lambda path: None, TAKEN), (_refuses, REFUSED), (_refuses_without_its_name, FAILED), (_stumbles, FAILED)],
)
def test_only_a_reader_that_names_the_file_has_refused_it(read, kind, tmp_path):
    reader = _reader(lambda path: None)
    valid = make_valid(reader, tmp_path / "work")
    reader = dataclasses.replace(reader, read=read)
    found = {attempt(reader, valid, 0, number, tmp_path / str(number)).kind for number in range(9)}
    assert found - {UNCHANGED} == {kind}


def test_a_crash_a_hang_and_too_much_memory_are_failures_and_not_the_end(tmp_path):
    script = f"""
import os, pathlib, time
from tests.fuzz import worker
from tests.fuzz.mutators import change_bytes
from tests.fuzz.readers import Reader

def make(folder):
    (folder / "a.txt").write_bytes(bytes(range(200)))
    return folder / "a.txt"

turns = iter([lambda: None, os.abort, lambda: time.sleep(60), lambda: bytearray(3 << 30), lambda: print("Traceback")])
worker.SECONDS = 1
for name in ("well", "crash", "hang", "memory", "printed"):
    turn = next(turns)
    reader = Reader(name, make, lambda path: None, {{".txt": (change_bytes,)}})
    with worker.Worker(reader, pathlib.Path({str(tmp_path)!r}) / name, 0) as fuzzed:
        object.__setattr__(reader, "read", lambda path: turn())
        outcome = fuzzed.attempt(0)
        print(name, outcome.kind, outcome.told[:60].replace("\\n", " "))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    told = done.stdout.splitlines()
    expected = [
        "well taken",
        "crash failed crashed",
        "hang failed hung for 1 s",
        "memory failed MemoryError",
        "printed",
    ]
    assert all(line.startswith(start) for line, start in zip(told, expected, strict=True)), done.stdout + done.stderr
    assert told[-1].startswith("printed failed a traceback was printed"), told
