"""What long work is at: a bar or a spinner on a terminal, else a line every few seconds.

In: descriptions, counts and units. Out: on a terminal rich's live display on standard error; into a file or a pipe
plain lines, through the logger at level INFO: description, count, rate and time left. Only the innermost of nested
work speaks there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from xdesc_jax.console.messages import err, info, is_quiet
from xdesc_jax.console.words import duration, rate

T = TypeVar("T")
_displays: list[Progress] = []  # live ones, the outermost first
FIRST_S, EVERY_S = 1.0, 4.0  # seconds from the start of some work to its first line, and between two lines at least
SHARE, RARELY_S = 0.05, 60.0  # of the time that it has lasted, how long the next line waits, and at most how long


class _Count(ProgressColumn):
    """How many of how many, and how fast."""

    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(_count(task, self._unit), style="cyan")


def _count(task: Task, unit: str) -> str:
    of = f" of {task.total:,.0f}" if task.total is not None else ""
    speed = task.finished_speed or task.speed
    return f"{task.completed:,.0f}{of} {unit}" + (f", {rate(speed)}/s" if speed else "")


class Bar:
    """Progress of work that is counted; use as a context manager.

    Args:
        unit: what is counted, in the plural.
        shown: say nothing at all where this is off.
    """

    def __init__(self, unit: str, shown: bool = True):
        self._unit, self._shown = unit, shown and not is_quiet()
        self._live = self._shown and _has_live_display()
        width = 20 if err.width >= 100 else 10
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=width), _Count(unit), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(), console=err, disable=not self._live,
        )  # fmt: skip
        self.console = err

    def add_task(self, description: str, total: float | None = None, completed: float = 0) -> TaskID:
        """A row of the display."""
        return self._progress.add_task(description, total=total, completed=completed)  # type: ignore[arg-type]

    def advance(self, task: TaskID, number: float = 1) -> None:
        """Counts `number` further ones."""
        self._progress.advance(task, number)

    def __enter__(self) -> Bar:
        self._open = _started(self._progress)
        self._open.__enter__()
        if self._shown and not self._live:
            _ticker.push(self._lines)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._open.__exit__(None, None, None)
        if self._shown and not self._live:
            _ticker.pop()
            if kind is None:
                for task in self._progress.tasks:
                    info(f"{task.description}: {_count(task, self._unit)}, took {duration(task.elapsed or 0)}")

    def _lines(self) -> list[str]:
        lines = []
        for task in self._progress.tasks:
            left = task.time_remaining
            told = f", {duration(left)} left" if left else f", {duration(task.elapsed or 0)} so far"
            lines.append(f"{task.description}: {_count(task, self._unit)}{told}")
        return lines


def progress_bar(unit: str, shown: bool = True) -> Bar:
    """A progress bar with count, rate, elapsed time and time left."""
    return Bar(unit, shown)


def track(items: Iterable[T], description: str, unit: str, total: int | None = None, finished: int = 0) -> Iterator[T]:
    """Iterates with a progress bar; the first `finished` items, of a run that was stopped, count for no rate."""
    if total is None and isinstance(items, Sequence):
        total = len(items)
    with progress_bar(unit) as bar:
        task = bar.add_task(description, total=total, completed=finished)
        for number, item in enumerate(items):
            yield item
            if number >= finished:
                bar.advance(task)


@contextlib.contextmanager
def status(description: str | Callable[[], str], shown: bool = True) -> Iterator[None]:
    """Says what the body is at, and for how long, where it cannot be counted.

    Args:
        description: what it does; a function is asked again whenever it is shown.
        shown: say nothing at all where this is off.
    """
    text = description if callable(description) else lambda: description
    if not shown or is_quiet():
        yield
    elif _has_live_display():
        display = Progress(
            SpinnerColumn(), _Live(text), TimeElapsedColumn(), console=err, transient=True, refresh_per_second=4
        )
        display.add_task("", total=None)
        with _started(display):
            yield
    else:
        start = time.monotonic()
        _ticker.push(lambda: [f"{text()}, {duration(time.monotonic() - start)} so far"])
        try:
            yield
        finally:
            _ticker.pop()


class _Live(ProgressColumn):
    def __init__(self, text: Callable[[], str]):
        super().__init__()
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text())


@contextlib.contextmanager
def _started(display: Progress) -> Iterator[None]:
    _displays.append(display)
    try:
        with display:
            display.refresh()  # inside another one, rich waits for that one's next turn
            yield
    finally:
        _displays.remove(display)


def is_live() -> bool:
    """Whether something is displayed live, so that other lines belong above it."""
    return any(not display.disable for display in _displays)


def _has_live_display() -> bool:
    return err.is_terminal or err.is_jupyter


class Ticker:
    """Says, every few seconds, and of long work more and more rarely, what the innermost work of this process is at.

    Args:
        clock: seconds.
        tell: takes a line.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, tell: Callable[[str], None] = info):
        self._clock, self._tell = clock, tell
        self._stack: list[Callable[[], list[str]]] = []
        self._due = self._began = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def push(self, lines: Callable[[], list[str]]) -> None:
        """Work begins; `lines` says what it is at."""
        with self._lock:
            self._stack.append(lines)
            if len(self._stack) == 1:
                self._began = self._clock()
                self._due = self._began + FIRST_S

    def pop(self) -> None:
        """The innermost work has ended."""
        with self._lock:
            self._stack.pop()

    def tick(self) -> bool:
        """Tells what is due; returns whether there is any work."""
        with self._lock:
            now = self._clock()
            lines = self._stack[-1]() if self._stack and now >= self._due else []
            if lines:
                self._due = now + min(max(EVERY_S, SHARE * (now - self._began)), RARELY_S)
            busy = bool(self._stack)
        for line in lines:
            self._tell(line)
        return busy


class _Thread(Ticker):
    """The ticker with a thread that lives as long as there is work."""

    def push(self, lines: Callable[[], list[str]]) -> None:
        super().push(lines)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(FIRST_S / 4)
            self.tick()
            with self._lock:
                if not self._stack:
                    self._thread = None
                    return


_ticker = _Thread()
