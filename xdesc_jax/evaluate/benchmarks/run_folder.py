"""What a run of a benchmark leaves in its folder: `result.json`, `table.md`, `report.html`.

In: what measures, and what makes the sections of the page. Out: the files, `result.json` last, so that it is there when
all is. Until then a journal keeps what is finished, and goes when the result is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.evaluate.benchmarks import results, tables
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark
from xdesc_jax.evaluate.benchmarks.results import RESULT, VERSION, Result
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import claimed, inside
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import already_done, atomic, recorded, write_json
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Section
from xdesc_jax.reports.settings import Settings, defaults_of

TABLE, REPORT = "table.md", "report.html"
JOURNAL = ".rows.journal"
ASKED = "asked"  # key of the settings as they were told, by which a refusal says what differs
Page = tuple[str, Sequence[Section]]  # the answer, and what follows the table


def carry_out(
    benchmark: Benchmark, out: Path, expected: str, overwrite: bool, measure: Callable[[Journal], Result],
    page: Callable[[Result], Page], *, told: Mapping[str, Any], stage: Callable[..., Any],
) -> Result:  # fmt: skip
    """What every benchmark does once it knows what it depends on: measures unless that is done, writes, and shows.

    Args:
        benchmark: which.
        out: the folder; another result in it is refused. A dry run ends here.
        expected: hash of all that the result depends on.
        overwrite: make it anew in either case.
        measure: gives the result; what it recalls by the journal is not made twice, should it be stopped.
        page: the answer in one sentence, and what follows the table.
        told: settings as they are printed first.
        stage: `run`, whose arguments have defaults.

    Returns:
        The result as the folder has it.

    Raises:
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    console.settings(f"xdesc benchmark run {benchmark.name} -> {out}", told, stage)
    beside = [out / TABLE, out / REPORT]
    found = recorded(out / RESULT, "hash")
    differs = functools.partial(changes, out / RESULT, found, told, kept=ASKED, hash_kept="hash")
    if not already_done(out / RESULT, found, expected, overwrite, beside, differs=differs):
        with _journal(benchmark, out, expected, overwrite) as kept:
            result = measure(kept)
            sentence, sections = page(result)
            used = Settings.of(result.settings, defaults_of(stage))
            write(out, result, {"hash": expected, ASKED: dict(told)}, sentence, sections, used)
    return _show(out)


@contextlib.contextmanager
def _journal(benchmark: Benchmark, out: Path, expected: str, overwrite: bool) -> Iterator[Journal]:
    """What a run has finished so far; this process alone works in the folder meanwhile."""
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
    out: Path, result: Result, asked: Mapping[str, Any], sentence: str, sections: Sequence[Section], used: Settings
) -> None:  # fmt: skip
    """Writes the three files, `result.json` with what was `asked` for; the result's tables come first on the page."""
    with atomic(out / TABLE) as temporary:
        temporary.write_text(tables.markdown(result), encoding="utf-8")
    write_page(
        out / REPORT, result.title, Answer(sentence), [*tables.page_sections(result), *sections], settings=used,
        provenance={"made by": f"xdesc benchmark run {result.benchmark}", "data": dict(result.data)},
    )  # fmt: skip
    write_json(out / RESULT, {"version": VERSION, **asked, **dataclasses.asdict(result)})


def _show(out: Path) -> Result:
    """Prints the table of a result, and where it is; the end of every run."""
    result = results.read(out)
    tables.show(result)
    console.result(out, figures=out / RESULT, table=out / TABLE, report=out / REPORT)
    return result
