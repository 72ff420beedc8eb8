"""Stopping where asked to: SIGTERM, as a scheduler sends it before it takes the machine away.

In: the signal, on one host or on any of several. Out: at which dispatch all hosts stop, so that the loop can save there
and end with status 0.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from xdesc_jax.train import hosts


class Preempted(SystemExit):
    """Training stopped because it was asked to; its state is saved. Uncaught, it ends the process with status 0."""

    def __init__(self, step: int):
        super().__init__(0)
        self.step = step


class Stop:
    """Whether to stop; a context manager, inside which SIGTERM asks to. A second SIGTERM does what it did before.

    Of several hosts, one that is asked tells the others, and they agree on the first dispatch that none has passed.
    """

    def __init__(self) -> None:
        self._asked = False
        self._dispatches = 0

    def __enter__(self) -> Stop:
        # Only the main thread may: a loop in another one leaves signals to whoever started it.
        self._ours = threading.current_thread() is threading.main_thread()
        self._ours &= hosts.can_agree() or not hosts.several()
        if self._ours:
            self._before: Any = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)
        self._asked = True
        hosts.ask_to_stop()

    def here(self) -> bool:
        """Whether to stop behind this dispatch; to be called behind each, on every host."""
        self._dispatches += 1
        return hosts.stop_after(self._dispatches) if hosts.several() else self._asked
