"""Results of a sweep: one line a member, in a file a shard; merged into one JSONL and one Parquet file.

In: a record of each member as it ends, from as many processes as there are shards. Out: `W/results/<i>-of-<n>.jsonl`,
where a line counts once its end is written; all members once, in `W/results.jsonl` and `W/results.parquet`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax.files.whole import atomic, finite, json_text, parse_json

Record = dict[str, Any]
STATUSES = ("finished", "diverged", "stopped")
SCALARS = (
    "member",
    "status",
    "reason",
    "epoch",
    "steps",
    "best_epoch",
    "mean_rank1",
    "group",
    "members_together",
    "seconds",
    "rows_per_second",
    "run",
)
_FIGURE = (int, float, type(None))
_TYPES: dict[str, tuple[type, ...]] = {
    "member": (str,), "fields": (dict,), "config": (dict,), "mean_rank1": _FIGURE, "figures": (dict, type(None)),
    "epoch": (int, type(None)), "history": (list, type(None)),
}  # fmt: skip
_INT64 = range(-(2**63), 2**63)


def append_result(path: Path | str, record: Mapping[str, Any]) -> None:
    """Adds a member to a shard's file, on disk when this returns; a line that a killed writer left cut is dropped.

    Args:
        path: the shard's .jsonl file; made, with its folder, where it is missing. One process writes to it.
        record: the member's; figures that are not finite become null.

    Raises:
        OSError: it cannot be written; what part of the line was is dropped by the next call.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json_text(record, f"{path}, member {record['member']}") + "\n"
    try:
        with path.open("a+b") as file:
            _drop_cut_line(file)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, f"{path}: cannot be written ({error.strerror})") from error


def read_results(workdir: Path | str) -> list[Record]:
    """The members that have ended, each once.

    Of several records of a member that counts which finished, then the one of more epochs, then the later one.

    Args:
        workdir: the sweep's folder.

    Raises:
        ValueError: a line that is no record, other than a cut last one.
    """
    members: dict[str, Record] = {}
    for path in sorted((Path(workdir) / "results").glob("*-of-*.jsonl"), key=_shard):
        for record in _records(path):
            before = members.get(record["member"])
            if before is None or _standing(record) >= _standing(before):
                members[record["member"]] = record
    return list(members.values())


def write_merged(workdir: Path | str) -> tuple[Path, Path]:
    """Writes all members' records to `results.jsonl` and, as a table, to `results.parquet`.

    Args:
        workdir: the sweep's folder.

    Returns:
        The two files. The table has one row a member; its columns are `SCALARS`, the swept fields by their dotted
        names (of a field whose values differ in type, their JSON), and the figures, those of a pair as
        'rank1/brief->sift'.
    """
    workdir = Path(workdir)
    records = read_results(workdir)
    lines, parquet = merged_files(workdir)
    with atomic(lines) as temporary:
        text = "".join(json_text(record, lines) + "\n" for record in records)
        temporary.write_text(text, encoding="utf-8")
    with atomic(parquet) as temporary:
        _write_parquet(temporary, table(records))
    return lines, parquet


def merged_files(workdir: Path) -> tuple[Path, Path]:
    """Where the results of all members lie: as lines, and as a table."""
    return workdir / "results.jsonl", workdir / "results.parquet"


def table(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Records as columns: the scalars, the swept fields, the flattened figures; None where a member has none."""
    columns = {name: [record.get(name) for record in records] for name in SCALARS}
    for field in _names(record["fields"] for record in records):
        name = f"config.{field}" if field in columns else field
        columns[name] = [field_value(record, field) for record in records]
    figures = [flat_figures(record) for record in records]
    for name in _names(figures):
        columns.setdefault(name, [found.get(name) for found in figures])
    return columns


def field_value(record: Record, name: str) -> Any:
    """A member's value of a swept field, by its dotted name; that of its configuration where it states none."""
    value = record["fields"].get(name)
    if name not in record["fields"]:
        value = record["config"]
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def flat_figures(record: Record) -> dict[str, Any]:
    """A member's figures: those of a pair under 'rank1/brief->sift', the others under their own name."""
    flat: dict[str, Any] = {}
    for name, value in (record.get("figures") or {}).items():
        if isinstance(value, Mapping):
            flat |= {f"{name}/{pair}": figure for pair, figure in value.items()}
        else:
            flat[name] = value
    return flat


def mean_figures(record: Record) -> dict[str, float]:
    """The mean over pairs of each figure that a member has by pair."""
    means = {}
    for name, by_pair in (record.get("figures") or {}).items():
        values = [v for v in by_pair.values() if v is not None] if isinstance(by_pair, Mapping) else []
        if values:
            means[name] = float(sum(values) / len(values))
    return means


def _write_parquet(path: Path, columns: Mapping[str, list[Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    types = {
        "bool": pyarrow.bool_(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "str": pyarrow.string(),
        "int list": pyarrow.list_(pyarrow.int64()),
        "float list": pyarrow.list_(pyarrow.float64()),
        "str list": pyarrow.list_(pyarrow.string()),
    }
    arrays = {}
    for name, values in columns.items():
        kind = column_kind(values)
        if kind is None:
            kind, values = "str", [_text(v) for v in values]
        arrays[name] = pyarrow.array(values, types[kind])
    pyarrow.parquet.write_table(pyarrow.table(arrays), path)


def column_kind(values: Iterable[Any]) -> str | None:
    """One type for all values: 'bool', 'int', 'float', 'str', the last three also as '... list'; None if there is none.

    None among the values is of every type, and so is an empty list of every type of list; whole numbers are floats
    where there are floats. Nothing but None counts as 'str'.
    """
    present = [v for v in values if v is not None]
    if not any(isinstance(v, (list, tuple)) for v in present):
        return _kind(present)
    if not all(isinstance(v, (list, tuple)) for v in present):
        return None
    inner = [element for v in present for element in v]
    kind = None if any(element is None for element in inner) else _kind(inner)
    return None if kind in (None, "bool") else f"{kind} list"


def _kind(values: Sequence[Any]) -> str | None:
    kinds = {type(v) for v in values}
    if kinds <= {str}:
        return "str"
    if kinds == {bool}:
        return "bool"
    if kinds <= {int, float} and all(v in _INT64 for v in values if isinstance(v, int)):
        return "int" if kinds == {int} else "float"
    return None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _names(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    return list({name: None for mapping in mappings for name in mapping})


def _drop_cut_line(file: Any) -> None:
    end = file.seek(0, os.SEEK_END)
    kept = end
    while kept:  # backwards to the last line's end
        start = max(0, kept - 65536)
        file.seek(start)
        block = file.read(kept - start)
        if b"\n" in block:
            kept = start + block.rindex(b"\n") + 1
            break
        kept = start
    if kept < end:
        file.truncate(kept)


def _records(path: Path) -> Iterable[Record]:
    *lines, _cut = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            record = parse_json(line)
        except ValueError as error:
            raise ValueError(f"{path}: line {number} is not valid JSON ({error})") from error
        problem = _problem(record)
        if problem:
            raise ValueError(f"{path}: line {number} is no result of a member: {problem}")
        yield finite(record)


def _is_figure(value: Any) -> bool:
    return isinstance(value, _FIGURE) and (not isinstance(value, int) or value in _INT64)


def _problem(record: Any) -> str | None:
    if not isinstance(record, dict):
        return f"found {type(record).__name__}, expected an object"
    missing = [name for name in ("member", "status", "fields", "config", "mean_rank1") if name not in record]
    if missing:
        return f"{', '.join(missing)} missing"
    for name, kinds in _TYPES.items():
        if not isinstance(record.get(name), kinds):
            return f"{name} is {record.get(name)!r}, expected {' or '.join(kind.__name__ for kind in kinds)}"
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # half of a character, which JSON can hold and no table
        return f"a text is no Unicode ({error})"
    figures = [flat_figures(record)] if record.get("figures") else []
    if bad := [item for found in figures for item in found.items() if not _is_figure(item[1])]:
        return f"figure {bad[0][0]} is {bad[0][1]!r}, expected a number"
    if record["status"] not in STATUSES:
        return f"status is {record['status']!r}, expected one of {', '.join(STATUSES)}"
    return None


def _standing(record: Record) -> tuple[bool, int]:
    return record["status"] == "finished", record.get("epoch") or 0


def _shard(path: Path) -> tuple[int, int, str]:
    index, _, count = path.stem.partition("-of-")
    return (int(count), int(index), path.name) if index.isdigit() and count.isdigit() else (0, 0, path.name)
