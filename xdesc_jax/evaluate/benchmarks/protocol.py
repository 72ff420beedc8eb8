"""What a benchmark is, and what a folder of its data holds.

In: the folder that a person has. Out: whether it is complete, what is missing, and whether it is the official set, by
its names, counts and sizes. Each benchmark is a module of this folder with a `BENCHMARK` and a stage `run` (see
`registry`). Imports numpy alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_ENDS_BYTES = 4096
_SHOWN = 8  # problems that an error names


@dataclasses.dataclass(frozen=True)
class Checked:
    """What a folder of data holds.

    Attributes:
        root: the folder that the data lies in: the one given, or one below it that the release unpacks to.
        text: what was found, in a few words.
        problems: what is missing or wrong, one thing each; nothing runs while there is one.
        other: how it differs from the official set; empty where it is that.
        fingerprint: of the files, see `fingerprint`.
    """

    root: Path
    text: str
    problems: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    fingerprint: str = ""

    @property
    def official(self) -> bool:
        return not self.problems and not self.other

    @property
    def verdict(self) -> str:
        """For people: 'the official set', or why not."""
        return "the official set" if self.official else f"other data ({'; '.join(self.other) or 'incomplete'})"

    @property
    def told(self) -> str:
        """For people: folder, what is in it, and the verdict."""
        return f"{self.root} ({self.text}; {self.verdict})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-like, as results keep it."""
        return {
            "folder": str(self.root), "text": self.text, "official": self.official, "other": list(self.other),
            "fingerprint": self.fingerprint,
        }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A benchmark as `xdesc benchmark list` tells it.

    Attributes:
        name: of the command line.
        title: of pages and tables.
        holds: what the data is.
        source: its official page.
        size: of the download.
        paper: the paper's table or figure; '' where it has none.
        check: looks at a folder; quick, since it opens no more of a file than its head.
    """

    name: str
    title: str
    holds: str
    source: str
    size: str
    paper: str
    check: Callable[[Path], Checked]

    @property
    def where(self) -> str:
        """For errors: where to get the data, and how large it is."""
        return f"get it from {self.source} ({self.size})"


def require(benchmark: Benchmark, root: Path) -> Checked:
    """The data of a benchmark that is to run.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: it is incomplete; says what is missing and where to get it.
    """
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder; {benchmark.name} needs {benchmark.holds}: {benchmark.where}")
    found = benchmark.check(root)
    if found.problems:
        more = f", and {len(found.problems) - _SHOWN} more" if len(found.problems) > _SHOWN else ""
        raise ValueError(
            f"{found.root}: incomplete: {', '.join(found.problems[:_SHOWN])}{more}; {benchmark.name} needs "
            f"{benchmark.holds}: {benchmark.where}"
        )
    return found


def fingerprint(files: Iterable[Path], root: Path) -> str:
    """12 hex digits by which data is known again: of names, sizes, and both ends of each file.

    Copies have the same one, unlike with times of change; a set of gigabytes takes seconds.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(root).as_posix()} {size}\n".encode())
        with path.open("rb", buffering=0) as file:
            digest.update(file.read(_ENDS_BYTES))
            if size > _ENDS_BYTES:
                file.seek(-min(_ENDS_BYTES, size - _ENDS_BYTES), os.SEEK_END)
                digest.update(file.read(_ENDS_BYTES))
    return digest.hexdigest()[:12]
