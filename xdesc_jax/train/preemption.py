"""Stopping where asked to: SIGTERM, as a scheduler sends it before it takes the machine away, and Ctrl-C.

In: a signal, on one host or on any of several. Out: at which dispatch all hosts stop, so that the loop can save there
and end, with status 0, or behind Ctrl-C with the shell's 130.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from xdesc_jax.train import hosts

STDERR = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Preempted(SystemExit):
    """Training stopped because it was asked to; its state is saved. Uncaught, it ends the process with its status."""

    def __init__(self, step: int, status: int = 0):
        super().__init__(status)
        self.step = step


class Stop:
    """Whether to stop; a context manager, inside which SIGTERM and SIGINT ask to. The second of either does what it did
    before.

    Of several hosts, one that is asked tells the others, and they agree on the first dispatch that none has passed.

    Attributes:
        by: name of the signal that asked; of a host that was told by another, ''.
    """

    def __init__(self) -> None:
        self.by = ""
        self._dispatches = 0

    def __enter__(self) -> Stop:
        # Only the main thread may: a loop in another one leaves signals to whoever started it.
        self._ours = threading.current_thread() is threading.main_thread()
        self._ours &= hosts.can_agree() or not hosts.several()
        self._before: dict[int, Any] = {}
        if self._ours:
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        self.by = signal.Signals(number).name
        if number == signal.SIGINT:  # written as it is: what prints else may be at it just now
            os.write(STDERR, b"\nstopping behind the next steps, saved; once more: at once\n")
        hosts.ask_to_stop()

    @property
    def status(self) -> int:
        """Of a process that stops for it."""
        return 128 + signal.SIGINT if self.by == signal.SIGINT.name else 0

    def here(self) -> bool:
        """Whether to stop behind this dispatch; to be called behind each, on every host."""
        self._dispatches += 1
        return hosts.stop_after(self._dispatches) if hosts.several() else bool(self.by)
