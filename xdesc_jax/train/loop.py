"""The training loop: the side effects around the pure step.

In: a source of batches, a mapped step and a place to start from. Out: the final state, with checkpoints, log
lines and validation figures written on the way.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from xdesc_jax.config import TrainConfig
from xdesc_jax.console import progress_bar
from xdesc_jax.data.prefetch import device_prefetch
from xdesc_jax.files import read_json, write_json
from xdesc_jax.train.checkpoint import METRIC, Checkpoints, Position, check_finite
from xdesc_jax.train.log import RunLog
from xdesc_jax.train.step import Hyper, TrainState

# Steps dispatched ahead of the one whose metrics are read: enough to hide the host's work, and bounded,
# since unsynchronised multi-device steps on CPU can deadlock in their collectives.
IN_FLIGHT = 2


class Batches(NamedTuple):
    """What the loop needs of a data source."""

    per_epoch: int
    epoch: Callable[[int, int], Iterator[Mapping[str, np.ndarray]]]  # (epoch, first batch) -> batches
    place: Callable[[Mapping[str, np.ndarray]], dict[str, jax.Array]]  # onto the devices


class Window:
    """Metric sums since the last log line."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.sums: dict[str, np.ndarray] = {}
        self.steps = 0
        self.started = time.perf_counter()

    def add(self, metrics: Mapping[str, Any]) -> None:
        self.steps += 1
        for name, pair in metrics.items():
            self.sums[name] = self.sums.get(name, np.zeros(2)) + np.array([float(pair.total), float(pair.count)])

    def means(self) -> dict[str, float]:
        return {name: float(total / max(count, 1)) for name, (total, count) in self.sums.items()}


def fit(
    state: TrainState,
    start: Position,
    step: Callable[..., tuple[TrainState, dict[str, Any]]],
    batches: Batches,
    validate: Callable[[TrainState], dict[str, Any]],
    checkpoints: Checkpoints,
    run: Path,
    config: TrainConfig,
) -> TrainState:
    """Trains from `start` to the last epoch.

    Returns:
        The final state.

    Raises:
        FloatingPointError: a loss or weight is not finite; names step, epoch and batch.
    """
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    loss = config.loss
    hyper = Hyper(config.optimizer.learning_rate, loss.alpha, loss.margin, loss.beta, loss.target_margin)
    total = config.epochs * batches.per_epoch
    done = start.step
    with RunLog(run, done) as log, progress_bar("rows") as bar:
        task = bar.add_task("training", total=total * config.batch_size, completed=done * config.batch_size)
        window = Window()
        pending: deque[tuple[Position, dict[str, Any]]] = deque()

        def settle(leave: int) -> None:
            """Reads the metrics of all but the last `leave` steps, and stops at a loss that is not finite."""
            while len(pending) > leave:
                at, metrics = pending.popleft()
                loss = float(metrics["loss"].total)
                if not math.isfinite(loss):
                    raise FloatingPointError(
                        f"loss is {loss} at step {at.step + 1} (epoch {at.epoch}, batch {at.batch}); stopped. "
                        f"The last good checkpoint is in {checkpoints.directory}"
                    )
                window.add(metrics)
                bar.advance(task, config.batch_size)

        def write_window() -> None:
            if window.steps:
                seconds = time.perf_counter() - window.started
                rate = window.steps * config.batch_size / max(seconds, 1e-9)
                log.write(done, {**window.means(), "rows_per_second": round(rate, 1)})
            window.clear()

        for epoch in range(start.epoch, config.epochs):
            first = start.batch if epoch == start.epoch else 0
            feed = device_prefetch(batches.epoch(epoch, first), batches.place)
            for number, batch in enumerate(feed, first):
                state, metrics = step(state, batch, key, hyper)
                pending.append((Position(done, epoch, number), metrics))
                done += 1
                settle(IN_FLIGHT)
                at_end = number + 1 == batches.per_epoch
                if done % config.checkpoint_every == 0 and not at_end:
                    settle(0)
                    write_window()  # so that a resumed run logs the same windows
                    checkpoints.save(state, Position(done, epoch, number + 1))
                    window.clear()  # what a save takes is not training
                elif done % config.log_every == 0:
                    settle(0)
                    write_window()
            settle(0)
            write_window()
            check_finite(state, Position(done, epoch, batches.per_epoch - 1))
            figures = validate(state)
            log.write(done, {"epoch": epoch + 1, "validation": figures})
            _append_validation(run, {"step": done, "epoch": epoch + 1, **figures})
            checkpoints.save(state, Position(done, epoch + 1, 0), {METRIC: figures[METRIC]})
            window.clear()
            bar.console.print(f"epoch {epoch + 1}: mean rank-1 {figures[METRIC]:.3f}")
    checkpoints.verify()
    return state


def _append_validation(run: Path, entry: dict[str, Any]) -> None:
    path = run / "validation.json"
    earlier = read_json(path) if path.exists() else []
    write_json(path, [e for e in earlier if e["step"] < entry["step"]] + [entry])
