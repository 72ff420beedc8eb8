"""Queries that a run has localised so far, and those that are left, in several threads.

In: a localizer, queries, and the journal of a run that may have been stopped. Out: what became of each query, in their
order, as if it had been localised now: the same for any number of threads and however often a run was stopped.

Threads, since they share the map, and matching and RANSAC both run outside Python's lock. Features are read by the
calling thread alone.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from xdesc_jax.colmap.model import Pose
from xdesc_jax.files.journal import Entry, Journal
from xdesc_jax.localization.correspondences import Correspondences
from xdesc_jax.localization.outcome import Localization

_PLAIN = ("status", "reason", "inliers", "matches", "inlier_ratio", "focal_px", "candidates", "warnings")
_ARRAYS = ("covariance", "position_covariance")
_MATCHED = tuple(field.name for field in dataclasses.fields(Correspondences))

Work = Callable[[], Localization]


def to_entry(found: Localization) -> Entry:
    """What became of a query, as a journal keeps it."""
    entry: Entry = {name: getattr(found, name) for name in _PLAIN} | {"seconds": dict(found.seconds)}
    entry |= {"views": dict(found.views)} if found.views else {}
    entry |= {name: value for name in _ARRAYS if (value := getattr(found, name)) is not None}
    if found.pose is not None:
        entry |= {"rotation": found.pose.rotation, "translation": found.pose.translation}
    return entry | {name: getattr(found.correspondences, name) for name in _MATCHED}


def from_entry(entry: Entry) -> Localization:
    """The inverse of `to_entry`."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v := entry[name], list) else v for name in _PLAIN}
    fields |= {name: entry.get(name) for name in _ARRAYS}
    return Localization(
        pose=Pose(entry["rotation"], entry["translation"]) if "rotation" in entry else None,
        correspondences=Correspondences(**{name: entry[name] for name in _MATCHED}),
        seconds=entry["seconds"],
        views=entry.get("views", {}),
        **fields,
    )


def recall(journal: Journal, key: str, work: Work) -> Localization:
    """What became of a query, which is localised and kept where the journal does not know yet."""
    return from_entry(journal.recall(key, lambda: to_entry(work())))


def localize_all(
    names: Iterable[str], work_on: Callable[[str], Work], journal: Journal, workers: int
) -> Iterator[tuple[str, Localization]]:
    """Localises the queries that the journal lacks.

    Args:
        names: the queries.
        work_on: name -> what localises it in any thread; called in this one, to read its features.
        journal: keeps what became of each, by its name.
        workers: threads; twice as many queries are in memory.

    Yields:
        Name and what became of it, in the order of `names`.
    """
    if workers == 1:
        yield from ((name, recall(journal, name, lambda name=name: work_on(name)())) for name in names)  # type: ignore[misc]
        return
    waiting: deque[tuple[str, Future[Localization] | None]] = deque()

    def settled() -> tuple[str, Localization]:
        name, future = waiting.popleft()
        if future is not None:
            journal.add(name, to_entry(future.result()))
        return name, from_entry(journal[name])

    pool = ThreadPoolExecutor(workers)
    try:
        for name in names:
            waiting.append((name, None if name in journal else pool.submit(work_on(name))))
            if len(waiting) >= 2 * workers:
                yield settled()
        while waiting:
            yield settled()
    finally:
        pool.shutdown(cancel_futures=True)
