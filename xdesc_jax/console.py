"""What stages print: resolved settings, a progress bar with rate and time left, one table.

In: settings and rows. Out: text on standard error (progress) and standard output (settings, tables).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

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


def progress_bar(unit: str) -> Progress:
    """A rich progress bar on standard error with count, rate, elapsed time and time left."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(unit),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=err,
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
    out.print(f"[bold]{title}[/bold]")
    for key, value in values.items():
        out.print(f"  {key}: {value}", markup=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints one summary table; floats with three decimals."""
    grid = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        # On a narrow screen labels fold, figures are never cut.
        grid.add_column(column, justify="left" if i == 0 else "right", no_wrap=i > 0)
    for row in rows:
        grid.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row))
    out.print(grid)


def warn(message: str) -> None:
    """Prints a warning on standard error."""
    err.print(f"warning: {message}", style="yellow", markup=False)
