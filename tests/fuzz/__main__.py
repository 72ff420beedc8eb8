"""Fuzzes the readers of the package for some minutes: `python -m tests.fuzz --minutes 10`.

In: time, and at will a reader and a seed. Out: a table of inputs and how they ended, and a folder with each input that
failed and the command that repeats it. Status 1 where one did.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz.readers import READERS
from tests.fuzz.trials import FAILED, REFUSED, TAKEN, UNCHANGED, make_changed
from tests.fuzz.worker import Worker


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="for all readers together")
    parser.add_argument("--reader", choices=READERS, action="append", help="only this one; may come several times")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--count", type=int, help="inputs of each reader, instead of as many as time allows")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="folder for inputs that fail")
    given = parser.parse_args()
    names = given.reader or list(READERS)
    counts: dict[str, collections.Counter[str]] = {}
    seconds = given.minutes * 60 / len(names)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            counts[name] = _fuzz(name, Path(folder), given, seconds)
    _print(counts)
    return int(any(found[FAILED] for found in counts.values()))


def _fuzz(name: str, folder: Path, given: argparse.Namespace, seconds: float) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    known: set[str] = set()
    number = given.first
    with Worker(READERS[name], folder, given.seed) as worker:
        end = time.monotonic() + seconds
        while number - given.first < given.count if given.count is not None else time.monotonic() < end:
            outcome = worker.attempt(number)
            found[outcome.kind] += 1
            if outcome.kind == FAILED:
                kept = given.keep / name / f"{given.seed}-{number}"
                told = f"{name} {number}: {outcome.told} ({outcome.change})".replace(str(folder), "")
                alike = outcome.told.split(";")[-1].split("(")[0][:80]
                if alike not in known:
                    print(ascii(told)[1:-1][:600], flush=True)
                known.add(alike)
                shutil.rmtree(kept, ignore_errors=True)
                make_changed(READERS[name], worker.valid, given.seed, number, kept)
                command = f"python -m tests.fuzz --reader {name} --seed {given.seed} --first {number} --count 1"
                (kept / "repeat.txt").write_text(f"{command}\n{told}\n", encoding="utf-8", errors="backslashreplace")
            number += 1
    return found


def _print(counts: dict[str, collections.Counter[str]]) -> None:
    kinds = (TAKEN, REFUSED, UNCHANGED, FAILED)
    table = Table("reader", *(("inputs", *kinds)))
    for name, found in counts.items():
        table.add_row(name, *map(str, (found.total(), *(found[kind] for kind in kinds))))
    total = sum(counts.values(), collections.Counter())
    table.add_row("all", *map(str, (total.total(), *(total[kind] for kind in kinds))))
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
