"""The record of a run: JSON lines and TensorBoard, and of several hosts a line of each.

In: numbers by step. Out: `RUN/log.jsonl`, one object a line, and `RUN/tensorboard/`, by host 0; of several hosts
`RUN/hosts/<i>.log` by each. A resumed run first drops what the checkpoint it starts from does not cover, so no step is
logged twice.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from tensorboardX import SummaryWriter

from xdesc_jax.files.whole import atomic, json_text, parse_json
from xdesc_jax.train import hosts


class Logs:
    """What this host logs of a run; use as a context manager. Arguments as for `RunLog`."""

    def __init__(self, run: Path, step: int):
        self._logs: list[RunLog | HostLog] = []
        if hosts.is_lead():
            self._logs.append(RunLog(run, step))
        if hosts.several():
            self._logs.append(HostLog(run))

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Logs values at a step."""
        for log in self._logs:
            log.write(step, values)

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *error: Any) -> None:
        for log in self._logs:
            log.__exit__(*error)


class HostLog:
    """Appends a line of this host, with the time, wherever the rate is logged: `RUN/hosts/<i>.log` and, but for
    host 0, which shows a progress bar, standard error."""

    def __init__(self, run: Path):
        path = run / "hosts" / f"{jax.process_index()}.log"
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("a")

    def write(self, step: int, values: dict[str, Any]) -> None:
        if "rows_per_second" in values:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            line = f"{now} {hosts.who()}: step {step}, loss {values['loss']:.4f}, {values['rows_per_second']} rows/s"
            print(line, file=self._file, flush=True)
            if not hosts.is_lead():
                print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> HostLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class RunLog:
    """Appends to the log of a run; use as a context manager.

    Args:
        run: the run directory.
        step: the step that training starts from; later lines of an earlier attempt are dropped.

    Raises:
        ValueError: a line of the log that is no JSON object with a step.
    """

    def __init__(self, run: Path, step: int):
        self.path = run / "log.jsonl"
        kept = [line for number, line in _complete_lines(self.path) if _step(line, self.path, number) <= step]
        with atomic(self.path) as temporary:
            temporary.write_bytes(b"".join(kept))
        self._file = self.path.open("a")
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Logs values at a step; nested ones appear in TensorBoard as 'outer/inner'."""
        with _named(self.path):
            self._file.write(json_text({"step": step, **values}, f"{self.path}, step {step}") + "\n")
            self._file.flush()
        for name, value in flatten(values):
            self._board.add_scalar(name, value, step)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, error: type[BaseException] | None = None, *_: object) -> None:
        # On a full disk these fail, too: that must not hide what says which folder it was that could not be written.
        for path, file in ((self.path, self._file), (self.path.with_name("tensorboard"), self._board)):
            with contextlib.suppress(*(OSError,) if error else ()), _named(path):
                file.close()


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # of a write, it is told without a name
        raise OSError(error.errno, f"{path}: cannot be written ({error.strerror})") from error


def flatten(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """Numbers of a nested dict with their paths."""
    pairs = []
    for key, value in values.items():
        if isinstance(value, dict):
            pairs += flatten(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)):
            pairs.append((prefix + key, float(value)))
    return pairs


def read_log(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's log; none where it has no log yet. Raises ValueError for one that is damaged."""
    path = run / "log.jsonl"
    return [_entry(line, path, number) for number, line in _complete_lines(path)]


def _complete_lines(path: Path) -> list[tuple[int, bytes]]:
    """Lines that a killed run finished writing, with their numbers from 1."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [(number, line) for number, line in enumerate(lines, 1) if line.endswith(b"\n")]


def _step(line: bytes, path: Path, number: int) -> int:
    return int(_entry(line, path, number)["step"])


def _entry(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        entry = parse_json(line)
        int(entry["step"])
        return entry
    except (ValueError, TypeError, KeyError, OverflowError) as error:  # no JSON or no UTF-8, no object, no step
        raise ValueError(f"{path}: line {number} is {line[:60]!r}, expected a JSON object with 'step'") from error
