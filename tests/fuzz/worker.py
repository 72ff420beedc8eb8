"""A process in which inputs are read, so that one which crashes it, hangs or fills the memory is found and told.

In: a reader and numbers of inputs. Out: their outcomes. The process is forked from this one once everything is
imported, or begins anew for a reader that is `apart`; its memory may grow by `MEMORY`, and it is ended `SECONDS` after
it was given an input.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fuzz.readers import Reader
from tests.fuzz.trials import FAILED, Outcome, attempt, make_valid

SECONDS, MEMORY = 10, 1 << 30


class Worker:
    """Reads inputs of one reader in a process of its own; use as a context manager.

    Args:
        reader: what reads them.
        folder: an empty folder to work in.
        seed: of the inputs.

    Attributes:
        valid: the valid file.
    """

    def __init__(self, reader: Reader, folder: Path, seed: int):
        self._reader, self._folder, self._seed = reader, folder, seed
        self._process: Any = None
        if reader.apart:
            self._start()
        else:
            self.valid = make_valid(reader, folder)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def attempt(self, number: int) -> Outcome:
        """How an input ends."""
        if self._process is None:
            self._start()
        self._pipe.send(number)
        try:
            if self._pipe.poll(SECONDS):
                return self._pipe.recv()
            told = f"hung for {SECONDS} s"
        except EOFError:
            self._process.join()
            told = f"crashed the process ({self._process.exitcode})"
        self._end()
        return Outcome(FAILED, "", f"{told}; {_last(self._folder)}")

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn" if self._reader.apart else "fork")
        self._pipe, other = context.Pipe()
        given = (other, self._reader, self._folder, self._seed, getattr(self, "valid", None))
        self._process = context.Process(target=_serve, args=given, daemon=True)
        self._process.start()
        other.close()
        if self._reader.apart:
            self.valid = self._pipe.recv()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _log(folder: Path) -> Path:
    return folder / "log.txt"


def _last(folder: Path) -> str:
    return " ".join(_log(folder).read_bytes()[-300:].decode("utf-8", "replace").split())


def _serve(pipe: Any, reader: Reader, folder: Path, seed: int, valid: Path | None) -> None:
    """Reads inputs until the process is ended."""
    if reader.apart:  # nothing is imported yet
        if valid is None:
            valid = make_valid(reader, folder)
        else:
            reader.read(valid)
        pipe.send(valid)
    assert valid is not None
    log = os.open(_log(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(log, number)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(0)
    while True:
        number = pipe.recv()
        os.ftruncate(log, 0)
        inputs = folder / "input"
        shutil.rmtree(inputs, ignore_errors=True)
        outcome = attempt(reader, valid, seed, number, inputs)
        if b"Traceback" in _log(folder).read_bytes():
            outcome = Outcome(FAILED, outcome.change, f"a traceback was printed; {_last(folder)}")
        pipe.send(outcome)
