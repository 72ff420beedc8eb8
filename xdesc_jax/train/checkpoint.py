"""Checkpoints: the one module that imports orbax, and the layout of a run directory.

In: training states. Out: `RUN/checkpoints/<step>` (the latest two and the best), each with a digest that is
verified after the save and on load; `RUN/config.json` and `RUN/statistics.npz`, from which a run can be
resumed or exported on any number of devices.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import hashlib
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers
from orbax.checkpoint.path import step as step_folders

from xdesc_jax.console import warn
from xdesc_jax.files.whole import FULL, read_json, recorded
from xdesc_jax.train import hosts, parallel
from xdesc_jax.train.state import TrainState

METRIC = "mean_rank1"
STEP_DIGITS = 8  # of a checkpoint's folder
UNMEASURED = {METRIC: -1.0}  # of checkpoints within an epoch: worse than any that was measured


@dataclasses.dataclass(frozen=True)
class Position:
    """Where training goes on: the next batch of an epoch, and the steps done so far."""

    step: int
    epoch: int
    batch: int

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if type(value) is not int or value < 0:
                raise ValueError(f"{field} is {value!r}, expected a number of 0 or more")


class Checkpoints:
    """Saves and restores the states of one run.

    Saving is asynchronous: `save` returns once the state is copied; a thread writes it, reads it back and compares
    while training goes on, and the next save or `close` waits for it. Of several hosts, all call each
    method; each writes its share of the arrays, and they come back on any number of hosts.

    Args:
        run: the run directory.
        config_hash: the configuration that the states belong to.
        read_only: whether the folder is left as it is.
    """

    def __init__(self, run: Path, config_hash: str, read_only: bool = False):
        self.directory = (Path(run) / "checkpoints").resolve()  # orbax refuses relative paths
        self.config_hash = config_hash
        policies = checkpoint_managers.AnyPreservationPolicy(
            [
                checkpoint_managers.LatestN(2),
                checkpoint_managers.BestN(
                    get_metric_fn=lambda m: m[METRIC], n=1, keep_checkpoints_without_metrics=False
                ),
            ]
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policies,
            best_fn=lambda m: m[METRIC],  # without it, metrics are not kept for later processes
            cleanup_tmp_directories=not read_only,
            create=not read_only,
            step_format_fixed_length=STEP_DIGITS,
        )
        # orbax reads times and metrics of all checkpoints before it opens any, and fails at one that is damaged.
        damaged = self._unreadable()
        opened = self.directory
        self._view = contextlib.ExitStack()  # a folder of those that are not damaged
        if damaged and read_only:
            opened = Path(self._view.enter_context(tempfile.TemporaryDirectory()))
            for folder in self._folders():
                if folder not in damaged:
                    (opened / folder.name).symlink_to(folder)
        elif damaged:
            self._set_aside(damaged)
        self._manager = ocp.CheckpointManager(opened, options=options)
        self._unverified: Callable[[], None] | None = None  # waits for the last save, and raises what went wrong

    def save(self, state: TrainState, position: Position, metrics: dict[str, float] | None = None) -> None:
        """Starts to write a state. Metrics, given at the end of an epoch, decide which is the best.

        Raises:
            FloatingPointError: a weight is not finite; nothing is written.
        """
        self.verify()
        if metrics is not None and not math.isfinite(metrics[METRIC]):
            metrics = UNMEASURED  # neither JSON nor the choice of the best knows such figures
        state = jax.tree.map(_own_copy, jax.device_get(state))
        check_finite(state, position)
        step, tree = position.step, _tree(state)
        if hosts.several():  # they write in step with each other, so on the thread that they train on
            expected = self._write(tree, position, metrics)
            self._unverified = lambda: self._compare(step, expected)
        else:
            written = _writer().submit(lambda: self._compare(step, self._write(tree, position, metrics)))
            self._unverified = written.result

    def _write(self, tree: dict[str, Any], position: Position, metrics: dict[str, float] | None) -> str:
        """Begins to write a state; returns its digest."""
        content = digest(tree)
        meta = {
            "position": dataclasses.asdict(position),
            "digest": content,
            "config_hash": self.config_hash,
            "metrics": metrics,
        }
        if hosts.several():  # of numpy arrays, host 0 would write all
            tree = parallel.replicate_globally(tree, parallel.choose_devices())
        items = ocp.args.Composite(state=ocp.args.StandardSave(tree), meta=ocp.args.JsonSave(meta))
        with self._writing():
            self._manager.save(position.step, args=items, metrics=metrics or UNMEASURED, force=True)
        return content

    def verify(self) -> None:
        """Waits for the last save and compares what was written; a bad one is deleted and reported.

        Raises:
            OSError: it could not be written, or reads back differently; those before it are as they were.
        """
        wait, self._unverified = self._unverified, None
        if wait is not None:
            wait()

    def _compare(self, step: int, expected: str) -> None:
        with self._writing():
            self._manager.wait_until_finished()
        stored = self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore()))
        if digest(jax.tree.map(np.asarray, stored["state"])) != expected:
            self._manager.delete(step)
            raise OSError(f"{self.directory}: the checkpoint of step {step} reads back differently; deleted")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:  # of tensorstore: with a text, but no number
            number = error.errno if isinstance(error, OSError) else None
            full = [n for n in FULL if n == number or os.strerror(n) in str(error)]
            if not full:
                raise
            raise OSError(
                full[0], f"{self.directory}: a checkpoint cannot be written ({os.strerror(full[0])}); "
                "those before it are as they were, and the run goes on from the last of them once there is room"
            ) from error  # fmt: skip

    def close(self) -> None:
        try:
            self.verify()
        finally:
            with self._view, self._writing():  # tells once more of a save that failed
                self._manager.close()

    def restore(self, like: TrainState, which: str = "latest") -> tuple[TrainState, Position] | None:
        """The latest (or best) good checkpoint as numpy arrays; damaged ones are passed over with a warning.

        Args:
            like: a state of the same architecture, or its shapes.
            which: 'latest' or 'best'.

        Returns:
            State and position, or None where the run has no checkpoint yet.

        Raises:
            ValueError: there are checkpoints, but none is good, or they belong to another configuration.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        if which == "best":  # those with metrics first, the best of them first
            steps.sort(key=self._rank, reverse=True)
        problems = []
        _ignore_late_reads()
        for step in steps:
            with _quiet():
                try:
                    return self._restore_step(like, step)
                except (OSError, KeyError, ValueError, TypeError) as error:
                    if isinstance(error, WrongConfigurationError):
                        raise
                    text = (str(error).splitlines() or [type(error).__name__])[0]
                    problems.append(f"step {step}: {text[:200]}")
                gc.collect()  # what was to read the other arrays, while the logs are still
            warn(f"{self.directory}: checkpoint of step {step} cannot be used, trying another ({problems[-1]})")
        if problems:
            raise ValueError(f"{self.directory}: no checkpoint can be read ({'; '.join(problems)})")
        return None

    def set_aside_after(self, step: int) -> None:
        """Moves checkpoints later than `step`, which could not be used, to `RUN/unusable`; others replace them."""
        self._set_aside([folder for folder in self._folders() if int(folder.name) > step])
        self._manager.reload()

    def _unreadable(self) -> list[Path]:
        """Folders of checkpoints whose times or metrics are damaged, each told."""
        damaged, names = [], step_folders.standard_name_format(step_format_fixed_length=STEP_DIGITS)
        for folder in self._folders():
            file = folder / "metrics" / "metrics"
            try:
                if file.exists():
                    read_json(file)
                try:
                    _ = names.find_step(self.directory, int(folder.name)).commit_timestamp_nsecs
                except (TypeError, ValueError, RecursionError) as error:
                    raise ValueError(f"{folder / '_CHECKPOINT_METADATA'}: damaged ({error})") from error
            except ValueError as error:
                damaged.append(folder)
                warn(f"{error}; the checkpoint of step {int(folder.name)} is not used")
        return damaged

    def _folders(self) -> list[Path]:
        """Folders of the checkpoints, in the order of their steps."""
        found = self.directory.iterdir() if self.directory.is_dir() else ()
        return sorted(folder for folder in found if folder.name.isdigit())

    def _set_aside(self, folders: Sequence[Path]) -> None:
        for folder in folders if hosts.is_lead() else ():
            target = self.directory.parent / "unusable" / f"{folder.name}-{time.time_ns()}"
            target.parent.mkdir(exist_ok=True)
            folder.rename(target)
        hosts.wait_for_all("checkpoints set aside")

    def _rank(self, step: int) -> float:
        [folder] = [folder for folder in self._folders() if int(folder.name) == step]
        try:
            value = recorded(folder / "metrics" / "metrics", METRIC)
        except (OSError, ValueError):
            value = None
        return UNMEASURED[METRIC] if value is None else float(value)

    def _restore_step(self, like: TrainState, step: int) -> tuple[TrainState, Position]:
        # The arrays' own shapes as numpy: what was saved on other devices must load on these.
        target = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), _tree(like))
        items = ocp.args.Composite(state=ocp.args.StandardRestore(target), meta=ocp.args.JsonRestore())
        found = self._manager.restore(step, args=items)
        meta = found["meta"]
        if meta["config_hash"] != self.config_hash:
            raise WrongConfigurationError(
                f"{self.directory}: made with configuration {meta['config_hash']}, not {self.config_hash}"
            )
        if digest(found["state"]) != meta["digest"]:
            raise ValueError("its content differs from what was saved")
        _check_shapes(found["state"], target)
        return type(like)(**found["state"]), Position(**meta["position"])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the logs still while a checkpoint is tried: orbax logs a traceback of each array that it cannot read, and
    asyncio another as it collects the tasks that were to read the others. The error says what is wrong."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@functools.cache
def _ignore_late_reads() -> None:
    """Where one array cannot be read, orbax closes its event loop while tensorstore's threads read the others. Each of
    them fails at that with a traceback, at any time later."""
    told = sys.unraisablehook

    def tell(found: Any) -> None:
        late = isinstance(found.exc_value, RuntimeError) and str(found.exc_value) == "Event loop is closed"
        if not (late and found.object is None):
            told(found)

    sys.unraisablehook = tell


class WrongConfigurationError(ValueError):
    """A checkpoint of another configuration."""


@functools.cache
def _writer() -> ThreadPoolExecutor:
    """The one thread that writes: orbax numbers what it writes a process, so two saves must not be under way."""
    return ThreadPoolExecutor(1, thread_name_prefix="checkpoints")


def _own_copy(x: Any) -> np.ndarray:
    """An array that stays as it is when the device, whose memory a CPU's arrays are, goes on."""
    x = np.asarray(x)
    return x if x.flags.owndata else x.copy()


def check_finite(state: TrainState, position: Position) -> None:
    """Raises FloatingPointError where a weight, a running statistic or a moment is not finite."""
    for path, x in jax.tree_util.tree_flatten_with_path(_tree(jax.device_get(state)))[0]:
        if not np.isfinite(x).all():
            raise FloatingPointError(
                f"{jax.tree_util.keystr(path)} is not finite after step {position.step} "
                f"(epoch {position.epoch}, batch {position.batch}); stopped, not saved"
            )


def _tree(state: TrainState) -> dict[str, Any]:
    found = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    return {name: tree for name, tree in found.items() if tree is not None}


def _check_shapes(found: Any, expected: Any) -> None:
    shapes = [
        {jax.tree_util.keystr(path): np.shape(x) for path, x in jax.tree_util.tree_flatten_with_path(_plain(tree))[0]}
        for tree in (found, expected)
    ]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        if shapes[0].get(name) != shapes[1].get(name):
            raise ValueError(f"{name} has shape {shapes[0].get(name)}, the model wants {shapes[1].get(name)}")


def digest(tree: Any) -> str:
    """sha256 over the paths, shapes and bytes of a tree of arrays."""
    result = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(_plain(tree))[0]:
        array = np.asarray(leaf)
        result.update(f"{jax.tree_util.keystr(path)}{array.shape}{array.dtype}".encode())
        result.update(np.ascontiguousarray(array).tobytes())
    return result.hexdigest()


def _plain(tree: Any) -> Any:
    """Named tuples (optax) and dicts alike as dicts: orbax gives back what it likes."""
    if hasattr(tree, "_asdict"):
        tree = tree._asdict()
    return {k: _plain(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


# --- Run directory ---------------------------------------------------------------------------------------


def load_state(run: Path, config_hash: str, like: TrainState, which: str) -> tuple[TrainState, Position]:
    """The best or latest checkpoint of a run, for reading; raises ValueError where there is none that can be read."""
    with contextlib.closing(Checkpoints(run, config_hash, read_only=True)) as checkpoints:
        found = checkpoints.restore(like, which)
    if found is None:
        raise ValueError(f"{run}: has no checkpoint yet")
    return found
