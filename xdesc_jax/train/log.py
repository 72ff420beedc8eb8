"""The record of a run: JSON lines and TensorBoard.

In: numbers by step. Out: `RUN/log.jsonl`, one object a line, and `RUN/tensorboard/`. A resumed run first
drops what the checkpoint it starts from does not cover, so no step is logged twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from xdesc_jax.files import atomic


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
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        for name, value in flatten(values):
            self._board.add_scalar(name, value, step)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._board.close()


def flatten(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """Numbers of a nested dict with their paths."""
    pairs = []
    for key, value in values.items():
        if isinstance(value, dict):
            pairs += flatten(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)):
            pairs.append((prefix + key, float(value)))
    return pairs


def _complete_lines(path: Path) -> list[tuple[int, bytes]]:
    """Lines that a killed run finished writing, with their numbers from 1."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [(number, line) for number, line in enumerate(lines, 1) if line.endswith(b"\n")]


def _step(line: bytes, path: Path, number: int) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError) as error:  # no JSON or no UTF-8, no object, no step
        raise ValueError(f"{path}: line {number} is {line[:60]!r}, expected a JSON object with 'step'") from error
