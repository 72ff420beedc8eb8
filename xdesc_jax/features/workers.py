"""Working on photos, as on their keypoints, in several processes.

In: photos in some order, some of them finished. Out: their features, or what else is made of them, in the same
order, with a bounded number in memory. Processes are spawned, not forked: jax and pycolmap keep threads that a fork
would break.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

from xdesc_jax.descriptors import Entry, get_entry, register
from xdesc_jax.features.images import UnreadablePhoto
from xdesc_jax.features.photo import ExtractSettings, GivenKeypoints, PhotoFeatures, detect_photo


@dataclasses.dataclass(frozen=True)
class Job:
    """A photo to work on: its name, path, stamp (see `parts.photo_stamp`) and given keypoints."""

    name: str
    path: Path
    stamp: list[int]
    given: GivenKeypoints | None


NOT_HERE = "computed:elsewhere"  # stands in a worker for a function that another process calls
Result = PhotoFeatures | UnreadablePhoto
T = TypeVar("T")


def each(work: Callable[..., T], jobs: Iterable[tuple[Any, ...]], processes: int) -> Generator[T, None, None]:
    """What `work` makes of each job, in their order.

    Args:
        work: a function of a module, called with the values of a job.
        jobs: taken as they are needed; the first value of each is a photo's name or path, for the error.
        processes: 1 works in this process.

    Raises:
        OSError: a process ended.
    """
    if processes == 1:
        yield from itertools.starmap(work, jobs)
        return
    pool = _pool(processes, 1, [])
    waiting: deque[tuple[str, Future[T]]] = deque()
    try:
        for job in jobs:
            waiting.append((str(job[0]), pool.submit(work, *job)))
            if len(waiting) >= 8 * processes:  # what waits to be taken is in memory
                yield _outcome(*waiting.popleft())
        while waiting:
            yield _outcome(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def detect_all(
    jobs: Iterable[tuple[str, Job | PhotoFeatures]], settings: ExtractSettings, processes: int
) -> Iterator[Iterator[tuple[str, Job | None, Result]]]:
    """Runs `detect_photo` on all jobs; leaving the block stops the processes.

    Args:
        jobs: photo names, each with the work to do or the features it has already.
        settings: what is extracted.
        processes: 1 works in this process.

    Yields:
        An iterator of (name, the job or None where nothing was to do, features or why there are none).
    """
    if processes == 1:
        yield (_one(name, job, settings) for name, job in jobs)
        return
    entries = [_for_detection(get_entry(name)) for name in dict.fromkeys([*settings.descriptors, *settings.networks])]
    pool = _pool(processes, max(1, (os.cpu_count() or 1) // processes), entries)
    try:
        yield _in_order(pool, jobs, settings, 2 * processes)
    finally:
        pool.shutdown(cancel_futures=True)


def _one(name: str, job: Job | PhotoFeatures, settings: ExtractSettings) -> tuple[str, Job | None, Result]:
    if isinstance(job, PhotoFeatures):
        return name, None, job
    return name, job, _detect(job, settings)


def _detect(job: Job, settings: ExtractSettings) -> Result:
    try:
        return detect_photo(job.path, settings, job.given)
    except UnreadablePhoto as error:
        return error


def _in_order(
    pool: ProcessPoolExecutor,
    jobs: Iterable[tuple[str, Job | PhotoFeatures]],
    settings: ExtractSettings,
    window: int,
) -> Iterator[tuple[str, Job | None, Result]]:
    waiting: deque[tuple[str, Job | None, Future[Result] | PhotoFeatures]] = deque()
    for name, job in jobs:
        if isinstance(job, PhotoFeatures):
            waiting.append((name, None, job))
        else:
            waiting.append((name, job, pool.submit(_detect, job, settings)))
        if len(waiting) >= window:
            yield _settled(*waiting.popleft())
    while waiting:
        yield _settled(*waiting.popleft())


def _settled(name: str, job: Job | None, result: Future[Result] | PhotoFeatures) -> tuple[str, Job | None, Result]:
    return name, job, result if isinstance(result, PhotoFeatures) else _outcome(name, result)


def _outcome(name: str, result: Future[T]) -> T:
    try:
        return result.result()
    except BrokenProcessPool as error:
        raise OSError(
            f"a worker process ended while photos up to {name!r} were in work, perhaps for want of memory; "
            "run again with fewer processes, finished photos are kept"
        ) from error


def _for_detection(entry: Entry) -> Entry:
    """What a worker needs of a descriptor: the function of those that it computes, which can be pickled."""
    return entry if entry.source == "photo" else dataclasses.replace(entry, describe=NOT_HERE, load=None)


class _Worker(SpawnProcess):
    """Takes no SIGTERM (see `start_worker`), by which a pool ends what is left where one has ended."""

    def terminate(self) -> None:
        self.kill()


class _Spawn(SpawnContext):  # OpenCV's threads do not survive a fork
    Process = _Worker


def _pool(processes: int, threads: int, entries: list[Entry]) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, _Spawn(), initializer=start_worker, initargs=(threads, entries))


def start_worker(threads: int, entries: list[Entry]) -> None:
    import cv2

    for number in (signal.SIGINT, signal.SIGTERM):  # the parent is stopped too, and stops its workers
        signal.signal(number, signal.SIG_IGN)
    cv2.setNumThreads(threads)
    for entry in entries:  # what the caller registered is not known in a new process
        register(entry.spec, entry.describe, source=entry.source, load=entry.load)
    # A killed parent cannot stop its workers, which would wait for work for ever.
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
