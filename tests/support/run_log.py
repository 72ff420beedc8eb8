"""The log of a run, as tests compare it."""

from __future__ import annotations

import json
from pathlib import Path


def log_lines(run: Path) -> list[dict]:
    """The log without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "rows_per_second"} for line in lines]
