"""What a dry run found, for people.

In: the plan that a stage left, and the arguments it was given. Out: on standard output, what it would read and what it
would make.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xdesc_jax.files.dry_run import Plan
from xdesc_jax.inspection.kinds import kind

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def report(plan: Plan, given: Mapping[str, Any]) -> None:
    """Prints what would be read, made and skipped.

    Args:
        plan: what the stage noted.
        given: its arguments.
    """
    lines = [f"reads   {path} ({kind(path)}, {size(path)})" for path in _inputs(plan, given)]
    lines += [f"writes  {path}: {state}" for path, state in plan.outputs.items()]
    lines += [f"        {text}" for text in plan.remarks]
    if not plan.outputs:
        lines.append("writes  nothing")
    print("\n".join(lines))


def size(path: Path) -> str:
    """How much a file or folder holds, for instance '1.2 MB'."""
    count = float(
        sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size
    )
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:.1f} {_UNITS[unit]}"


def _inputs(plan: Plan, given: Mapping[str, Any]) -> Iterator[Path]:
    """Paths that were given and exist, and files whose content counts that do not lie in one of them."""
    outputs = {path.resolve() for path in plan.outputs}
    named: dict[Path, Path] = {}
    for value in given.values():
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, (str, Path)) and str(path) and Path(path).exists():
                named.setdefault(Path(path).resolve(), Path(path))
    for path in plan.inputs:
        if path.exists() and not any(folder in named for folder in (path.resolve(), *path.resolve().parents)):
            named[path.resolve()] = path
    for place, path in named.items():
        # A folder that outputs lie in is one itself.
        if place not in outputs and not any(place in output.parents for output in outputs):
            yield path
