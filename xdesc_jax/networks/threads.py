"""How many threads share a computation of numpy's or scipy's, in training and in use alike.

In: the cores that this process may use. Out: a number of threads.
"""

from __future__ import annotations

import os

MOST = 4  # beyond it, such threads wait for memory and for Python's lock


def shared_threads() -> int:
    """Threads among which one computation is divided: one a core that this process may use, at most four."""
    return min(MOST, len(os.sched_getaffinity(0)))
