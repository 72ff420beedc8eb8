"""The threads of matrix products, lent to a caller that shares its own work among threads.

In: the libraries that compute numpy's products. Out: as many threads of Python as they would use for a product; as long
as they are lent, they use one. A product of some rows in several threads ends with the slowest of them: on a busy
machine most of the time is spent waiting. threadpoolctl finds the libraries; its own limits are not for callers of
several threads.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Protocol


class Library(Protocol):
    """One that computes products, as threadpoolctl tells of it."""

    def get_num_threads(self) -> int | None:
        """How many threads it uses."""

    def set_num_threads(self, num_threads: int) -> object:
        """Sets how many it uses."""


class Threads:
    """Threads of libraries, lent to any number of callers at a time."""

    def __init__(self, libraries: Sequence[Library]):
        self._libraries = libraries
        self._lock, self._callers, self._own = threading.Lock(), 0, [1]

    @contextlib.contextmanager
    def lent(self) -> Iterator[int]:
        """How many there are, 1 without a library; each library uses one until the last of the callers is done."""
        with self._lock:
            if not self._callers:
                self._own = [library.get_num_threads() or 1 for library in self._libraries]
                self._use_one()
            self._callers += 1
            most = max(self._own, default=1)
        try:
            yield most
        finally:
            with self._lock:
                self._callers -= 1
                if not self._callers:
                    self._use(self._own)

    @contextlib.contextmanager
    def pool(self) -> Iterator[ThreadPoolExecutor]:
        """As many threads of Python as are lent. Each says for itself that one is used: where libraries share work by
        OpenMP, numbers are a thread's own."""
        with self.lent() as most, ThreadPoolExecutor(most, initializer=self._use_one) as pool:
            yield pool

    def _use_one(self) -> None:
        self._use([1] * len(self._libraries))

    def _use(self, numbers: Sequence[int]) -> None:
        for library, number in zip(self._libraries, numbers, strict=True):
            library.set_num_threads(number)
            # From 3.8 on, threadpoolctl heeds no thread but the first that sets OpenBLAS's, until that one lets go.
            getattr(library, "clear_controlling_thread", lambda: None)()


@cache
def threads() -> Threads:
    """Those of the libraries that are loaded when it is first asked."""
    from threadpoolctl import ThreadpoolController

    return Threads(ThreadpoolController().select(user_api="blas").lib_controllers)
