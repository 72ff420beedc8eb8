"""The stages `xdesc benchmark list`, `check` and `table`; `run` is each benchmark's own.

In: names of benchmarks, folders of their data, folders of results. Out: tables on the screen.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax import console
from xdesc_jax.evaluate.benchmarks import results, tables
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, Checked, require
from xdesc_jax.evaluate.benchmarks.registry import BENCHMARKS, benchmark


def listed() -> list[Benchmark]:
    """Lists the benchmarks: what each measures, what data it needs, how large that is and where it comes from.

    Returns:
        The benchmarks.
    """
    found = list(BENCHMARKS.values())
    for one in found:
        values = {"data": f"{one.holds} ({one.size})", "from": one.source, "in the paper": one.paper or "not there"}
        console.figures(f"{one.name}: {one.title}", values)
    return found


def check(name: str, *, data: Path) -> Checked:
    """Says whether a folder holds the data of a benchmark, and what is missing.

    Args:
        name: of the benchmark, as `xdesc benchmark list` has it.
        data: the folder.

    Returns:
        What it holds.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: no such benchmark, or the folder is incomplete: says what is missing, where to get it, how large
            it is.
    """
    asked = benchmark(name)
    if Path(data).is_dir():
        for problem in asked.check(Path(data)).problems:
            console.out.print(f"missing or wrong: {problem}", markup=False, soft_wrap=True)
    found = require(asked, data)
    console.figures(asked.title, {"folder": found.root, "holds": found.text, "it is": found.verdict})
    return found


def table(out: tuple[Path, ...]) -> list[results.Result]:
    """Prints results of benchmarks beside the paper's values, one table a folder.

    The paper's values stand beside results of the official data alone; results of other data are labelled so.

    Args:
        out: folders that `xdesc benchmark run` wrote.

    Returns:
        The results.

    Raises:
        FileNotFoundError: a folder without a result.
        ValueError: a result that cannot be read.
    """
    found = [results.read(Path(folder)) for folder in out]
    for result in found:
        tables.show(result)
    return found
