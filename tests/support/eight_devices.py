"""A script in a process of its own, whose CPU counts as eight devices.

In: the script. Out: the lines that it prints.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.root import ROOT


def lines_of(script: str) -> list[str]:
    """What it prints; the calling process has four devices, by `conftest`."""
    flags = os.environ["XLA_FLAGS"].replace("device_count=4", "device_count=8")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", f"import jax\nassert len(jax.local_devices()) == 8\n{script}"],
        env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
