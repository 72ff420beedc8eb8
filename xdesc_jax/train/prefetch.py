"""Transfers to the device ahead of use.

In: host batches and the caller's function that sends one. Out: the same batches on the device, the next ones
already under way. Knows no array library.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

H = TypeVar("H")
D = TypeVar("D")


def device_prefetch(batches: Iterable[H], put: Callable[[H], D], size: int = 2) -> Iterator[D]:
    """Yields `put(batch)` for each batch in order, with up to `size` sent and not yet taken.

    Args:
        batches: host batches.
        put: sends one to the device without waiting for it, such as a `jax.device_put` onto a sharding.
        size: how many are in flight; 1 sends each only when asked for.

    Raises:
        ValueError: `size` is below 1.
    """
    if size < 1:
        raise ValueError(f"prefetch size is {size}, expected at least 1")
    return _prefetch(iter(batches), put, size)


def _prefetch(batches: Iterator[H], put: Callable[[H], D], size: int) -> Iterator[D]:
    sent: collections.deque[D] = collections.deque()
    for batch in batches:
        sent.append(put(batch))
        if len(sent) == size:
            yield sent.popleft()
    while sent:
        yield sent.popleft()
