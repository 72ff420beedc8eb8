"""The training loop: the side effects around the pure step.

In: a source of batches, a mapped step and a place to start from. Out: the final state, with checkpoints, log
lines and validation figures written on the way.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import numpy as np

from xdesc_jax import console
from xdesc_jax.train import hosts
from xdesc_jax.train.checkpoint import METRIC, Checkpoints, Position, check_finite
from xdesc_jax.train.devices import Batches, Devices
from xdesc_jax.train.log import Logs
from xdesc_jax.train.preemption import Preempted, Stop
from xdesc_jax.train.prefetch import device_prefetch
from xdesc_jax.train.run_directory import append_validation
from xdesc_jax.train.state import TrainState

B = TypeVar("B")
# Dispatches ahead of the one that is waited for: enough to hide the host's work, and bounded,
# since unsynchronised multi-device steps on CPU can deadlock in their collectives.
IN_FLIGHT = 2


class LoopConfig(Protocol):
    """What the loop needs of a configuration."""

    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def log_every(self) -> int: ...


class Window:
    """Metric sums since the last log line."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.sums: dict[str, np.ndarray] = {}
        self.steps = 0
        self.started = time.perf_counter()

    def add(self, metrics: Mapping[str, np.ndarray]) -> None:
        """Metrics of a step, (sum, count) each, or [2, K] of K members."""
        self.steps += 1
        for name, pair in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + pair

    def means(self, members: Sequence[str] | None) -> dict[str, Any]:
        means = {name: total / np.maximum(count, 1) for name, (total, count) in self.sums.items()}
        if members is None:
            return {name: float(mean) for name, mean in means.items()}
        return {
            name: {m: float(x) for m, x in zip(members, mean, strict=True) if math.isfinite(x)}
            for name, mean in means.items()
        }


def dispatch_sizes(done: int, steps: int, together: int, intervals: Sequence[int]) -> Iterator[int]:
    """How many of the next `steps` steps go into each dispatch: `together`, or one by one where a multiple of an
    interval comes sooner, so that two programs are compiled and checkpoints and log lines stay where they are."""
    end = done + steps
    while done < end:
        nearest = min([end, *(done - done % every + every for every in intervals)])
        size = together if nearest - done >= together else 1
        yield size
        done += size


def grouped(batches: Iterator[B], sizes: Iterable[int]) -> Iterator[list[B]]:
    """Groups of batches of the given sizes."""
    for size in sizes:
        yield list(itertools.islice(batches, size))


def fit(
    state: TrainState,
    start: Position,
    step: Callable[..., tuple[TrainState, dict[str, Any]]],
    devices: Devices,
    batches: Batches,
    validate: Callable[[TrainState], dict[str, Any]],
    checkpoints: Checkpoints,
    run: Path,
    config: LoopConfig,
    key: Any,
    hyper: Any,
    members: Sequence[str] | None = None,
) -> TrainState:
    """Trains from `start` to the last epoch.

    Args:
        state: where to start.
        start: the next batch.
        step: (state, batch, key, hyper, axis_name=) -> (state, metrics as sums, 'loss' among them).
        devices: what it runs on; where their steps of a dispatch would pass a checkpoint, a log line or the end of an
            epoch, they are done one by one.
        batches: the data.
        validate: state -> figures, `METRIC` among them; called at the end of each epoch.
        checkpoints: of the run.
        run: the run directory.
        config: epochs and intervals.
        key, hyper: handed to each step.
        members: names of the members of a population; its metrics are [K] each, and its step sees to it that the
            weights stay finite.

    Returns:
        The final state.

    Raises:
        FloatingPointError: a loss or weight is not finite; names step, epoch and batch.
        Preempted: SIGTERM or SIGINT came; the state is saved.
    """
    total = config.epochs * batches.per_epoch
    done = start.step
    together = devices.steps_per_dispatch
    one, many = devices.steps(step)
    state = devices.replicate(state)
    with Logs(run, done) as log, console.progress_bar("rows", hosts.is_lead()) as bar, Stop() as stop:
        task = bar.add_task("training", total=total * config.batch_size, completed=done * config.batch_size)
        window = Window()
        running: deque[tuple[int, dict[str, Any]]] = deque()  # dispatches that may not be done
        unread: list[tuple[Position, int, dict[str, Any]]] = []  # those of the window

        def settle(leave: int) -> None:
            """Waits for all but the last `leave` dispatches. Their metrics stay on the device."""
            while len(running) > leave:
                steps, metrics = running.popleft()
                jax.block_until_ready(metrics)
                bar.advance(task, steps * config.batch_size)

        def read_metrics() -> None:
            """Takes the metrics of the window to the host, all at once, and stops at a loss that is not finite."""
            settle(0)
            held = jax.device_get([metrics for *_, metrics in unread])
            for (at, steps, _), metrics in zip(unread, held, strict=True):
                shape = (2, steps) if members is None else (2, steps, len(members))
                read = {name: np.reshape([pair.total, pair.count], shape) for name, pair in metrics.items()}
                for i in range(steps):
                    loss = read["loss"][0, i]
                    if members is None and not math.isfinite(loss):
                        raise FloatingPointError(
                            f"loss is {loss} at step {at.step + i + 1} (epoch {at.epoch}, batch {at.batch + i}); "
                            f"stopped. The last good checkpoint is in {checkpoints.directory}"
                        )
                    window.add({name: rows[:, i] for name, rows in read.items()})
            unread.clear()

        def write_window() -> None:
            read_metrics()
            if window.steps:
                seconds = time.perf_counter() - window.started
                rate = window.steps * config.batch_size / max(seconds, 1e-9)
                log.write(done, {**window.means(members), "rows_per_second": round(rate, 1)})
            window.clear()

        def preempted() -> Preempted:
            checkpoints.verify()
            by = stop.by or "another host was asked to stop"
            console.info(f"{by}: saved at step {done:,} of {total:,}; started again, the run goes on from there")
            return Preempted(done, stop.status)

        compiled: set[int] = set()
        stopping = False
        for epoch in range(start.epoch, config.epochs):
            first = start.batch if epoch == start.epoch else 0
            intervals = (config.checkpoint_every, config.log_every)
            sizes = list(dispatch_sizes(done, batches.per_epoch - first, together, intervals))
            feed = device_prefetch(grouped(batches.epoch(epoch, first), sizes), batches.place)
            number = first
            for size, batch in zip(sizes, feed, strict=True):
                with _first(size, compiled):
                    state, metrics = (one if size == 1 else many)(state, batch, key, hyper)
                unread.append((Position(done, epoch, number), size, metrics))
                running.append((size, metrics))
                done, number = done + size, number + size
                settle(IN_FLIGHT)
                at_end = number == batches.per_epoch
                stopping = stop.here()
                if (stopping or done % config.checkpoint_every == 0) and not at_end:
                    write_window()  # so that a resumed run logs the same windows
                    checkpoints.save(state, Position(done, epoch, number))
                    window.clear()  # what a save takes is not training
                    if stopping:
                        raise preempted()
                elif done % config.log_every == 0:
                    write_window()
            write_window()
            if members is None:
                check_finite(state, Position(done, epoch, batches.per_epoch - 1))
            with console.status(f"validating epoch {epoch + 1}", hosts.is_lead()):
                figures = validate(state)
            log.write(done, {"epoch": epoch + 1, "validation": figures})
            if hosts.is_lead():
                append_validation(run, {"step": done, "epoch": epoch + 1, **figures})
            checkpoints.save(state, Position(done, epoch + 1, 0), {METRIC: figures[METRIC]})
            window.clear()
            if hosts.is_lead():
                console.info(f"epoch {epoch + 1}: mean rank-1 {figures[METRIC]:.3f}")
            if stopping and (epoch + 1 < config.epochs or members is not None):  # others may be to train behind these
                raise preempted()
    checkpoints.verify()
    return state


@contextlib.contextmanager
def _first(size: int, compiled: set[int]) -> Iterator[None]:
    """Says that the first call of a step of this size compiles it."""
    if size in compiled:
        yield
        return
    with console.status("compiling the training step", hosts.is_lead()):
        yield
    compiled.add(size)
