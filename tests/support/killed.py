"""A process of its own that a test kills in the middle of its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.support.root import ROOT


def kill_within(code: str, *words: object) -> None:
    """Runs Python code, which must end itself by SIGKILL; `words` are its sys.argv from 1 on."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
