"""The threads of numpy's matrix products, lent to a caller that shares its own work among threads.

In: the OpenBLAS that numpy came with. Out: how many threads it would use for a product; as long as they are lent, it
uses one. A product of some rows in several threads ends with the slowest of them: on a busy machine most of the time is
spent waiting. Numpy has no call for this, so the library is asked; where another one computes the products, none are
lent and it keeps its own. Imports numpy alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

# In numpy's wheels, in those before numpy 2, and in distributions.
_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")


class Threads:
    """Threads of a library, lent to any number of callers at a time.

    Args:
        read: tells how many the library uses.
        write: sets it.
    """

    def __init__(self, read: Callable[[], int], write: Callable[[int], object]):
        self._read, self._write = read, write
        self._lock, self._callers, self._own = threading.Lock(), 0, 1

    @contextlib.contextmanager
    def lent(self) -> Iterator[int]:
        """How many there are; the library uses one until the last of the callers is done."""
        with self._lock:
            if not self._callers:
                self._own = self._read()
                self._write(1)
            self._callers += 1
            own = self._own
        try:
            yield own
        finally:
            with self._lock:
                self._callers -= 1
                if not self._callers:
                    self._write(self._own)


@cache
def threads() -> Threads:
    """Those of numpy's products; of a library that cannot be asked, one."""
    library = ctypes.CDLL(np.linalg._umath_linalg.__file__)  # finds what this is linked to, too
    for name in _NAMES:
        read, write = (getattr(library, name.format(what), None) for what in ("get", "set"))
        if read is not None and write is not None:
            return Threads(read, write)
    return Threads(lambda: 1, lambda _: None)
