"""What a run of a benchmark leaves in its folder: `result.json`, `table.md`, `report.html`.

In: the result, and sections of its page. Out: the files, `result.json` last, so that it is there when all is. Until
then a journal keeps what is finished, and goes when the result is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from xdesc_jax import console
from xdesc_jax.evaluate.benchmarks import results, tables
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark
from xdesc_jax.evaluate.benchmarks.results import RESULT, VERSION, Result
from xdesc_jax.files.claim import claimed, inside
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import already_done, atomic, recorded, write_json
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Section
from xdesc_jax.reports.settings import Settings

TABLE, REPORT = "table.md", "report.html"
JOURNAL = ".rows.journal"


def finished(out: Path, expected: str, overwrite: bool) -> bool:
    """Whether a folder holds this very result; another one's is refused. Ends a dry run.

    Args:
        out: the folder.
        expected: hash of all that the result depends on.
        overwrite: make it anew in either case.
    """
    beside = [out / TABLE, out / REPORT]
    return already_done(out / RESULT, recorded(out / RESULT, "hash"), expected, overwrite, beside)


@contextlib.contextmanager
def journal(benchmark: Benchmark, out: Path, expected: str, overwrite: bool) -> Iterator[Journal]:
    """What a run has finished so far; this process alone works in the folder meanwhile.

    Args:
        benchmark, out, expected, overwrite: as for `finished`.
    """
    with claimed(inside(out), f"xdesc benchmark run {benchmark.name}", out):
        if overwrite:
            (out / JOURNAL).unlink(missing_ok=True)
        with Journal(out / JOURNAL, expected) as kept:
            if len(kept):
                console.info(f"going on: {console.counted(len(kept), 'item')} finished already")
            yield kept
            if (out / RESULT).exists() and recorded(out / RESULT, "hash") == expected:
                kept.remove()


def write(
    out: Path, result: Result, expected: str, sentence: str, sections: Sequence[Section], used: Settings
) -> None:  # fmt: skip
    """Writes the three files.

    Args:
        out: the folder.
        result: its table comes first on the page.
        expected: hash of all that the result depends on.
        sentence: the page's answer.
        sections: further ones of the page, such as plots.
        used: settings, for the page.
    """
    with atomic(out / TABLE) as temporary:
        temporary.write_text(tables.markdown(result), encoding="utf-8")
    first = Section("Results", [tables.page_table(result)], f"{result.told}. {tables.note(result)}")
    write_page(
        out / REPORT, result.title, Answer(sentence), [first, *sections], settings=used,
        provenance={"made by": f"xdesc benchmark run {result.benchmark}", "data": dict(result.data)},
    )  # fmt: skip
    write_json(out / RESULT, {"version": VERSION, "hash": expected, **dataclasses.asdict(result)})


def show(out: Path) -> Result:
    """Prints the table of a result, and where it is; the end of every run."""
    result = results.read(out)
    tables.show(result)
    console.result(out, figures=out / RESULT, table=out / TABLE, report=out / REPORT)
    return result
