"""Results beside the paper's values.

In: results, and `paper.json`, the values that the paper prints, each under its table's number. Out: tables for the
screen, for pages and as Markdown. The paper's values stand beside results of the official data alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.evaluate.benchmarks.results import Column, Result
from xdesc_jax.evaluate.homography import Comparison
from xdesc_jax.files.whole import read_json
from xdesc_jax.reports.parts import Cell, Section, Table
from xdesc_jax.reports.parts import Column as PageColumn

# What the paper calls a descriptor. Ours of the same kind stand for those whose weights cannot be passed on.
PAPER_NAMES = {
    "brief": "BRIEF", "sift": "SIFT", "sift-kornia05": "SIFT", "hardnet": "HardNet", "hardnet-xdesc": "HardNet",
    "sosnet": "SOSNet", "sosnet-xdesc": "SOSNet",
}  # fmt: skip
FOUR = ("BRIEF", "SIFT", "HardNet", "SOSNet")  # those that the paper divides photos among, from the worst to the best
PAPER, DIFFERENCE, NONE = "paper", "difference", "-"
LONG = 40  # rows of a table that a page shows whole


@functools.cache
def paper() -> dict[str, dict[str, Any]]:
    """Benchmark -> 'table', 'unit', 'note' and 'rows': name -> column -> the value that the paper prints."""
    found: dict[str, dict[str, Any]] = read_json(Path(__file__).parent / "paper.json")
    return found


def paper_row(comparison: Comparison) -> str:
    """Name of the paper's row that compares the same, '' where it has no such descriptor."""
    source, target = (PAPER_NAMES.get(name, "") for name in (comparison.source, comparison.target))
    if not (source and target):
        return ""
    return f"{comparison.mode}: {source if comparison.mode == 'native' else f'{source} -> {target}'}"


def divides_as_the_paper(descriptors: Iterable[str], ordered: bool = False) -> bool:
    """Whether photos divided among these hold what those of the paper's tables do.

    Args:
        descriptors: one or more.
        ordered: whether their order is to be the paper's, too.
    """
    found = tuple(PAPER_NAMES.get(name, "") for name in descriptors)
    return found == FOUR if ordered else sorted(found) == sorted(FOUR)


def reference(result: Result) -> Mapping[str, Mapping[str, float]]:
    """The paper's rows of a result's benchmark; none for other than the official data."""
    if not result.official:
        return {}
    found: Mapping[str, Mapping[str, float]] = paper().get(result.benchmark, {}).get("rows", {})
    return found


def note(result: Result) -> str:
    """How the table stands to the paper."""
    entry = paper().get(result.benchmark, {})
    if not result.official:
        left = ": the paper's values do not compare, and are left out" if entry.get("rows") else ""
        return f"Not the official data{left}."
    if entry.get("note"):
        return f"{entry['table']}: {entry['note']}." if entry["table"] else f"{entry['note']}."
    if _alone(result):
        return f"Paper: {entry['table']}, whose figures are none of these and stand last, to compare others with."
    if entry and not any(_printed(result, column) for column in result.columns):
        return f"Paper: {entry['table']}, whose figures are none of these."
    return f"Paper: {entry['table']}; difference: this result less the paper's." if entry else ""


def headings(result: Result) -> list[str]:
    """Of the table; a column that the paper prints is followed by its value and the difference.

    Where it prints none of them, its own come last: what a benchmark's server says of the poses compares with those.
    """
    heads = [""]
    for column in result.columns:
        heads.append(column.heading)
        heads += [PAPER, DIFFERENCE] if _printed(result, column) else []
    return heads + [f"{PAPER}: {column.heading}" for column in _alone(result)]


def cells(result: Result) -> list[list[str]]:
    """Texts of all rows under `headings`."""
    known, rows = reference(result), []
    for row in result.rows:
        texts = [row.name]
        for column in result.columns:
            value = row.values.get(column.key)
            texts.append(_text(value, column))
            if _printed(result, column):
                theirs = known.get(row.paper, {}).get(column.key)
                less = None if value is None or theirs is None else value - theirs
                texts += [_text(theirs, column), _text(less, column, signed=True)]
        rows.append(texts + [_text(known.get(row.paper, {}).get(column.key), column) for column in _alone(result)])
    return rows


def _alone(result: Result) -> list[Column]:
    """The paper's columns, where it prints values of some rows but of no column of the first table."""
    first = [column for column in result.columns if not column.table]
    if not first or any(_printed(result, column) for column in first):
        return []
    known = reference(result)
    return [Column(key) for key in dict.fromkeys(key for row in result.rows for key in known.get(row.paper, {}))]


def _printed(result: Result, column: Column) -> bool:
    known = reference(result)
    return any(column.key in known.get(row.paper, {}) for row in result.rows)


def _text(value: float | None, column: Column, signed: bool = False) -> str:
    return NONE if value is None else f"{value:{'+' if signed else ''},.{column.digits}f}"


def title(result: Result) -> str:
    """Of the table: which benchmark, on which data."""
    return f"{result.title}: {result.told}"


def divided(result: Result) -> dict[str, Result]:
    """Title of each table -> the result with its columns alone; '' is the first's."""
    titles = dict.fromkeys(column.table for column in result.columns)
    return {
        table: dataclasses.replace(result, columns=[column for column in result.columns if column.table == table])
        for table in titles
    }


def show(result: Result) -> None:
    """Prints a result's tables."""
    for table, part in divided(result).items():
        console.table(table or f"{title(result)}. {note(result)}", headings(part), cells(part))


def markdown(result: Result) -> str:
    """A result's tables as Markdown, with its data above the first."""
    blocks = []
    for table, part in divided(result).items():
        heads = [head or "row" for head in headings(part)]
        lines = [table or f"{title(result)}. {note(result)}", ""]
        lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        # Rows of the joint space have the sign that divides columns in their names.
        lines += [f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |" for texts in cells(part)]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def page_sections(result: Result) -> list[Section]:
    """A result's tables for a page, each under a heading; the first with its data."""
    told = f"{result.told}. {note(result)}"
    return [
        Section(table or "Results", [_page_table(part, f"rows{i or ''}")], "" if table else told)
        for i, (table, part) in enumerate(divided(result).items())
    ]


def _page_table(result: Result, anchor: str) -> Table:
    columns = [PageColumn("row", text=True), PageColumn("mode", text=True)]
    columns += [PageColumn.of(head) for head in headings(result)[1:]]
    rows = [
        [row.name, Cell(row.mode, badge=row.mode), *texts[1:]]
        for row, texts in zip(result.rows, cells(result), strict=True)
    ]
    return long_table(columns, rows, "rows", anchor)


def long_table(columns: Sequence[PageColumn], rows: Sequence[Sequence[Any]], find: str, anchor: str) -> Table:
    """A table for a page; one of many rows scrolls by itself, with a field above it that finds `find` in them."""
    if len(rows) <= LONG:
        return Table(columns, rows)
    return Table(columns, rows, find=find, anchor=anchor, tall=True)
