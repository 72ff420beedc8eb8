"""The result of a benchmark: rows of figures, and the data that they are of.

In: columns and rows of one benchmark on one set of data, or the folder of a run. Out: a `Result`. It names its data,
and nothing joins two of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, Checked
from xdesc_jax.files.whole import read_json

RESULT = "result.json"
VERSION = 1


@dataclasses.dataclass(frozen=True)
class Column:
    """A figure of every row.

    Attributes:
        key: heading, and the name that the paper's values have in `paper.json`.
        unit: beside the heading.
        digits: behind the point.
        table: title of the further table that it stands in; '' for the first.
    """

    key: str
    unit: str = "%"
    digits: int = 1
    table: str = ""

    @property
    def heading(self) -> str:
        return f"{self.key} [{self.unit}]" if self.unit else self.key


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: what it shows.
        values: column -> figure, None where there is none.
        mode: 'native', 'translated', 'joint', 'naive', or another kind.
        paper: name of the paper's row; '' where it has none.
        detail: further figures, JSON-like, for plots.
    """

    name: str
    values: Mapping[str, float | None]
    mode: str = ""
    paper: str = ""
    detail: Any = None


@dataclasses.dataclass(frozen=True)
class Result:
    """One benchmark on one set of data.

    Attributes:
        benchmark, title: which.
        data: what `Checked.to_dict` gives.
        settings: what the figures depend on.
        columns, rows: the table.
    """

    benchmark: str
    title: str
    data: Mapping[str, Any]
    settings: Mapping[str, Any]
    columns: Sequence[Column]
    rows: Sequence[Row]

    @classmethod
    def of(
        cls, benchmark: Benchmark, data: Checked, settings: Mapping[str, Any], columns: Sequence[Column],
        rows: Sequence[Row],
    ) -> Result:  # fmt: skip
        """Of a run."""
        return cls(benchmark.name, benchmark.title, data.to_dict(), settings, columns, rows)

    @property
    def official(self) -> bool:
        return bool(self.data["official"])

    @property
    def told(self) -> str:
        """Which data it is of, for people."""
        other = "; ".join(self.data["other"])
        return f"{self.data['text']}; {'the official set' if self.official else f'other data: {other}'}"


def read(out: Path) -> Result:
    """The result in a folder.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or of another version.
    """
    path = out / RESULT if out.is_dir() or not out.exists() else out
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such result; `xdesc benchmark run` writes one")
    value = read_json(path)
    version = value.get("version") if isinstance(value, dict) else None
    if version != VERSION or "benchmark" not in value:
        raise ValueError(f"{path}: holds no result of a benchmark (version {version}, expected {VERSION})")
    fields = {field.name: value.get(field.name) for field in dataclasses.fields(Result)}
    try:
        fields["columns"] = [Column(**column) for column in value["columns"]]
        fields["rows"] = [Row(**row) for row in value["rows"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: holds no whole result of a benchmark ({error})") from error
    return Result(**fields)
