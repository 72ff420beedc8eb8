"""What jax compiled, shared by the workers of a test run and the processes that their tests start.

In: the folder that jax keeps its files in, of this worker. Out: the same, with those of the other workers in it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

EVERY = 1.0  # seconds between two exchanges at least: there are thousands of files
VARIABLE = "XDESC_TESTS_COMPILED"  # the folder of all workers, made by the process that starts them


class Compiled:
    """A folder for each worker, as jax does not write its files atomically: one that reads what another writes may meet
    half of it. Whole ones become links in a folder of all workers, and from there in each other's.

    Attributes:
        own: folder that jax reads and writes here.
        common: folder of all workers.
    """

    def __init__(self, own: Path, common: Path):
        self.own, self.common = own, common
        self._known: set[str] = set()  # names that both hold
        self._seen: dict[Path, int] = {}  # folder -> when it last changed
        self._last = -EVERY

    @classmethod
    def shared(cls) -> Compiled:
        """Folders that go with the processes that made them."""
        if VARIABLE not in os.environ:
            os.environ[VARIABLE] = _temporary()
        return cls(Path(_temporary()), Path(os.environ[VARIABLE]))

    def exchange(self) -> None:
        """Between tests, when nothing is compiled here: all files of `own` are whole."""
        if time.monotonic() - self._last < EVERY:
            return
        self._last = time.monotonic()
        for here, there in ((self.own, self.common), (self.common, self.own)):
            changed = here.stat().st_mtime_ns
            if self._seen.get(here) == changed:
                continue
            self._seen[here] = changed
            for name in set(os.listdir(here)) - self._known:
                with contextlib.suppress(FileExistsError):
                    os.link(here / name, there / name)
                self._known.add(name)


def _temporary() -> str:
    folder = tempfile.mkdtemp(prefix="xdesc-compiled-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
