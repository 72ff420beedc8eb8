"""The watch over the other hosts of a training: who answers, who failed, and where all stop.

In: jax's processes, joined. Out: a process that ends, with a message, when another fails or stops answering, and the
dispatch behind which all stop once one was asked to. The hosts tell each other through `board`, on host 0.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

import jax

from xdesc_jax.train.board import Board, NotTold

_STATUS = 2
_AGREEING = 0.8  # of the time after which a silent host is given up


class Watch:
    """A thread that says that this host is there, and listens for the others.

    Args:
        board: what the hosts tell each other.
        timeout: seconds after which a silent host ends this process.
    """

    def __init__(self, board: Board, timeout: float):
        self._board = board
        self._timeout, self._every = timeout, min(2.0, timeout / 10)
        self._me, self._count = jax.process_index(), jax.process_count()
        self.asked = False
        self._dispatches = 0
        self._last: int | None = None  # dispatch behind which all stop
        self._counting = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hosts", daemon=True)
        self._thread.start()

    def stops_after(self, dispatches: int) -> bool:
        with self._counting:  # waits while the hosts agree
            self._dispatches = dispatches
            return self._last == dispatches

    def tell_failure(self, error: BaseException, text: str) -> None:
        """Lets the others know why this host ends, and lets them end first where they need it for that."""
        if isinstance(error, jax.errors.JaxRuntimeError):
            # Most likely a collective that lost another host: this thread ends the process, and says which.
            time.sleep(self._timeout + 2 * self._every)
        with contextlib.suppress(OSError):
            self._board.put("failed", text)
            self._part()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        beats, heard = 0, {host: (-1, time.monotonic()) for host in range(self._count)}
        while not self._ended.wait(self._every):
            # The coordinator, too, may stop answering, which would leave this thread waiting.
            lost = threading.Timer(self._timeout, self._lose, [f"host 0, the coordinator, {self._silent()}"])
            lost.daemon = True
            lost.start()
            try:
                beats += 1
                self._board.put("beat", str(beats))
                if self.asked:
                    self._board.put("stop", "asked")
                found = self._board.read("")
                if any(key.startswith("stop/") for key in found) and self._last is None:
                    self._agree()
            except NotTold:
                self._lose(self._undecided())
                continue
            except OSError as error:
                self._lose(f"host 0, the coordinator, is gone ({first_line(error)})")
                continue
            finally:
                lost.cancel()
            now = time.monotonic()
            lost_one = None
            for host in range(self._count):
                if (text := found.get(f"failed/{host}")) and host != self._me:
                    lost_one = f"host {host} of {self._count} failed: {text}"
                beat = int(found.get(f"beat/{host}", -1))
                if beat != heard[host][0]:
                    heard[host] = (beat, now)
                elif now - heard[host][1] > self._timeout:
                    lost_one = f"host {host} of {self._count} {self._silent()}"
            if lost_one:
                with contextlib.suppress(OSError):
                    self._part()
                self._lose(lost_one)

    def _agree(self) -> None:
        """The first dispatch that no host has passed: none starts another one until all have told theirs."""
        with self._counting:
            self._board.put("dispatches", str(self._dispatches))
            # Each host's watch tells, whatever it computes; host 0 itself is given up after `_timeout`.
            told = self._board.read_all("dispatches", self._count, _AGREEING * self._timeout)
            self._last = max(map(int, told)) + 1

    def _undecided(self) -> str:
        """Which hosts have not told how far they are."""
        told = self._board.read("dispatches")
        silent = [str(host) for host in range(self._count) if f"dispatches/{host}" not in told]
        return f"host {', '.join(silent)} of {self._count} did not say where to stop"

    def _part(self) -> None:
        """Says that this host ends. Host 0, whose board the others read, ends last, but waits for no dead one."""
        self._board.put("left", "yes")
        latest = time.monotonic() + 3 * self._every
        while self._me == 0 and time.monotonic() < latest:
            if len(self._board.read("left")) == self._count:
                return
            time.sleep(self._every / 8)

    def _lose(self, text: str) -> None:
        if not self._ended.is_set():
            leave(f"{text}; started again, the run goes on from its last checkpoint")

    def _silent(self) -> str:
        return f"has not answered for {self._timeout:g} seconds"


def first_line(error: BaseException) -> str:
    """What an error says, in short."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def leave(text: str) -> None:
    """Ends this process at once: an exit in good order would wait for the other hosts."""
    sys.stdout.flush()
    print(f"error: {text}", file=sys.stderr, flush=True)
    os._exit(_STATUS)
