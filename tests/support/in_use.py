"""A result on which somebody else works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from xdesc_jax import cli
from xdesc_jax.files.claim import claimed


def check_refused_while_in_use(words: list[Any], lock: Path, result: Path, capsys: Any) -> None:
    """A stage ends with status 2 and one line that says who works on its result, and leaves nothing there."""
    before = sorted(result.parent.rglob("*")) if result.parent.exists() else []
    with claimed(lock, "xdesc elsewhere", result):
        during = sorted(result.parent.rglob("*"))
        capsys.readouterr()
        assert cli.main([str(word) for word in words]) == 2
        assert sorted(result.parent.rglob("*")) == during
    told = " ".join(capsys.readouterr().err.split())
    assert f"error: {result}: another process works on it: xdesc elsewhere, process {os.getpid()} on " in told
    assert (sorted(result.parent.rglob("*")) if result.parent.exists() else []) == before
