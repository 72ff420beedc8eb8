"""pycolmap, as the package imports it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.root import ROOT

pytest.importorskip("pycolmap", reason="needs the colmap extra")

STOPPED = """
import os, signal, sys
from xdesc_jax.colmap.bindings.api import pycolmap
if sys.argv[1] == "caught":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
pycolmap.Camera
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(("case", "status"), [("caught", 3), ("left alone", -signal.SIGTERM)])
def test_sigterm_is_left_to_whoever_waits_for_it_and_ends_without_a_stack_of_calls(case, status):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STOPPED, case]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
