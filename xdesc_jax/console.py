"""What stages print: resolved settings, a progress bar with rate and time left, one table.

In: settings and rows. Out: text on standard error (progress) and standard output (settings, tables).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

T = TypeVar("T")
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


class _Rate(ProgressColumn):
    def __init__(self, unit: str):
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text(f"{rate:,.1f} {self.unit}/s" if rate else f"- {self.unit}/s", style="cyan")


def progress_bar(unit: str, shown: bool = True) -> Progress:
    """A rich progress bar on standard error with count, rate, elapsed time and time left."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(unit),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=err, disable=not shown,
    )  # fmt: skip


def track(items: Iterable[T], description: str, unit: str, total: int | None = None) -> Iterator[T]:
    """Iterates with a progress bar."""
    if total is None and isinstance(items, Sequence):
        total = len(items)
    with progress_bar(unit) as bar:
        task = bar.add_task(description, total=total)
        for item in items:
            yield item
            bar.advance(task)


def settings(title: str, values: dict[str, Any]) -> None:
    """Prints resolved settings, one a line."""
    out.print(Text(title, style="bold"))
    for key, value in values.items():
        out.print(f"  {key}: {value}", markup=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints one summary table; floats with three decimals."""
    texts = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    # Text, because rich reads markup in strings, and a path may look like it.
    heading = Text(title, style="table.title")
    grid = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    # On a narrow screen labels fold between words; figures are never cut.
    longest = max((len(word) for row in texts for word in row[0].split()), default=0)
    grid.add_column(Text(columns[0]), min_width=longest)
    for column in columns[1:]:
        grid.add_column(Text(column), justify="right", no_wrap=True)
    for row in texts:
        grid.add_row(*map(Text, row))
    out.print(grid)


def warn(message: str) -> None:
    """Prints a warning on standard error."""
    err.print(f"warning: {message}", style="yellow", markup=False)


def set_verbosity(quiet: bool = False, verbose: bool = False) -> None:
    """How much is printed: errors and warnings alone, or more than by default."""
    out.quiet = quiet and not verbose
