"""Writing results whole or not at all, and telling finished work from work to redo.

In: an output path and the configuration that makes it. Out: a file that appears under its name only when
complete, with the configuration's hash beside or inside it; and what identifies the inputs of a stage.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax.files import dry_run
from xdesc_jax.files.place import check_folder

WHOLE_INPUTS = "XDESC_WHOLE_INPUTS"  # when set, inputs of any size are told apart by all of their content
WHOLE_BYTES = 64 << 20  # read within a fraction of a second
SAMPLES, SAMPLE_BYTES = 64, 64 << 10
_log = logging.getLogger("xdesc_jax")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Yields a temporary path beside `path` (a file or a folder); renamed on success, removed on failure."""
    path = Path(path)
    dry_run.output(path, _state(path, overwrite=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    _remove(temporary)
    try:
        with _told_of(path, temporary, temporary.name):
            yield temporary
            if path.is_dir() and temporary.is_dir():
                # A folder cannot be replaced in one go: the old one steps aside until the new one is there.
                aside = path.with_name(f".{path.name}.{os.getpid()}.old")
                os.replace(path, aside)
                try:
                    os.replace(temporary, path)
                except OSError:
                    os.replace(aside, path)
                    raise
                shutil.rmtree(aside)
            else:
                os.replace(temporary, path)
    finally:
        _remove(temporary)


@contextlib.contextmanager
def staged(path: Path | str) -> Iterator[Path]:
    """`atomic` for what depends on the name: the temporary path has the same one, in a folder beside `path`."""
    path = Path(path)
    dry_run.output(path, _state(path, overwrite=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(".partial", f".{path.name}.{os.getpid()}-", path.parent) as folder:
        temporary = Path(folder) / path.name
        with _told_of(path, temporary, Path(folder).name):
            yield temporary
            os.replace(temporary, path)


@contextlib.contextmanager
def full_told(path: Path) -> Iterator[None]:
    """A full disk, which the system tells without a name or with that of a temporary file, is told with `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(error.errno, f"{path}: cannot be written ({os.strerror(error.errno)})") from error


@contextlib.contextmanager
def _told_of(path: Path, temporary: Path, mark: str) -> Iterator[None]:
    """Errors of writing name `path`, not the temporary one, by whose part `mark` they are known."""
    try:
        with full_told(path):
            yield
    except OSError as error:
        if mark in str(error):
            if error.filename is not None:
                raise type(error)(error.errno, error.strerror, str(path)) from error
            raise type(error)(
                str(error).replace(str(temporary), str(path)).replace(temporary.name, path.name)
            ) from error
        raise
    except ValueError as error:
        if type(error) is ValueError and mark in str(error):
            raise ValueError(str(error).replace(str(temporary), str(path))) from error
        raise


def remove_left(path: Path) -> None:
    """Removes what killed processes left of `path` in `atomic` or `staged`; for who works on it alone (see `claim`)."""
    left = re.compile(rf"\.{re.escape(path.name)}\.\d+(-\w+)?\.partial(-\w+)?")  # SQLite's, too; not of NAME.7
    for other in path.parent.glob(".*.partial*"):
        if left.fullmatch(other.name):
            with contextlib.suppress(OSError):  # of another user
                _remove(other)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path | str, value: Any) -> Path:
    """Writes `value` as indented JSON, atomically; figures that are not finite as `json_text` does."""
    with atomic(path) as temporary:
        temporary.write_text(json_text(value, path, indent=2) + "\n", encoding="utf-8")
    return Path(path)


def json_text(value: Any, where: Path | str, indent: int | None = None) -> str:
    """`value` as JSON, with null for figures that JSON has no word for; a warning says how many, and names the first.

    Args:
        value: JSON-like; dataclasses, paths and arrays may be in it.
        where: it goes to, for the warning.
        indent: of lines; None: all in one.
    """
    try:
        return _escaped(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, default=_plain))
    except ValueError:  # infinite, or not a number
        lost: list[str] = []
        text = json.dumps(finite(value, lost), indent=indent, ensure_ascii=False, allow_nan=False)
    first = lost[0] if len(lost) == 1 else f"{len(lost)} of them, first {lost[0]}"
    _log.warning("%s: what is not finite is written as null (%s)", where, first)
    return _escaped(text)


def _escaped(text: str) -> str:
    """JSON that can be written as UTF-8: bytes of names that are none, which Python keeps as lone surrogates, as
    JSON's own escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def finite(value: Any, lost: list[str] | None = None, name: str = "") -> Any:
    """A JSON-like value with None for numbers that are not finite.

    Args:
        value: anything that `json_text` takes.
        lost: receives the name and value of each of these, as 'figures.loss is inf'.
        name: of the value itself.
    """
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        if lost is not None:
            lost.append(f"{name or 'it'} is {value}")
        return None
    if isinstance(value, Mapping):
        return {key: finite(inner, lost, f"{name}.{key}" if name else str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner, lost, f"{name}[{i}]") for i, inner in enumerate(value)]
    return value if value is None or isinstance(value, (str, int)) else finite(_plain(value), lost, name)


def read_json(path: Path | str) -> Any:
    """Reads JSON; a missing or cut file raises an error that names it."""
    try:
        return parse_json(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error


def parse_json(text: str | bytes) -> Any:
    """A JSON text; raises ValueError where it is none, or nested deeper than Python can follow.

    NaN and Infinity, which are no JSON but which some programs write, are None, as `json_text` writes them.
    """
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def recorded(path: Path, key: str = "config_hash") -> Any:
    """An entry of a result's JSON; None where there is no such file or entry.

    Raises:
        ValueError: no JSON, or none of an object.
    """
    if not path.exists():
        return None
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path}: is a JSON {type(found).__name__}, expected an object")
    return found.get(key)


def config_hash(config: Any) -> str:
    """12 hex digits that identify a configuration (dataclass or JSON-like value)."""
    text = json.dumps(config, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def content_hash(path: Path | str) -> str:
    """12 hex digits that identify a file's content."""
    dry_run.read(Path(path))
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def input_hash(path: Path | str) -> str:
    """12 hex digits by which a stage knows an input again.

    Of a file up to `WHOLE_BYTES`, its `content_hash`. Of a larger one, which takes longer to read than many a stage to
    finish, of its size, its time of change and samples over all its length: a copy with another time counts as
    another file, and what was changed in place has another time. With `WHOLE_INPUTS` in the environment
    (`--whole-inputs`) the content of every file is read whole.
    """
    path = Path(path)
    status = path.stat()
    if status.st_size <= WHOLE_BYTES or os.environ.get(WHOLE_INPUTS):
        return content_hash(path)
    dry_run.read(path)
    digest = hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode())
    with path.open("rb", buffering=0) as file:
        for sample in range(SAMPLES):
            file.seek((status.st_size - SAMPLE_BYTES) * sample // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:12]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def already_done(
    path: Path,
    found_hash: str | None,
    expected_hash: str,
    overwrite: bool,
    beside: Sequence[Path] = (),
    *,
    differs: Callable[[], str] = str,
) -> bool:
    """Whether `path` holds this very result; another configuration's result is refused. Ends a dry run.

    Args:
        path: the result.
        found_hash: of the configuration that it was made with.
        expected_hash: of this one.
        overwrite: make it anew in either case.
        beside: files that are written behind it; without them the result is not finished.
        differs: gives how the configurations differ, for the refusal; '' where that is not known, as of results of
            versions that kept no more than the hash.

    Raises:
        FileExistsError: `path` was made with another configuration and `overwrite` is off.
        OSError: it is to be made where nothing can be written.
    """
    state = _state(path, overwrite, found_hash == expected_hash)
    if state == dry_run.FINISHED and not all(file.exists() for file in beside):
        state = dry_run.REPLACED
    refusal = None
    if state == dry_run.REFUSED:
        if found_hash is None:
            made = "is there already, and no record of what made it fits it"
        else:
            what = differs() or f"hash {found_hash}, now {expected_hash}"
            made = f"was made with another configuration ({what})"
        refusal = FileExistsError(f"{path} {made}; choose another output or pass --overwrite")
    if state in (dry_run.MADE, dry_run.REPLACED):
        check_folder(path.parent, path)
    dry_run.output(path, state, refusal)
    if refusal is not None and not dry_run.active():  # a dry run that is still here lists further outputs
        raise refusal
    return state == dry_run.FINISHED


def making(path: Path, *, overwrite: bool = True) -> None:
    """Ends a dry run of a stage that makes `path` whatever it was made of before; else checks that it can be written.

    Args:
        path: the result.
        overwrite: whether it replaces what is there; the stage itself refuses where not.
    """
    check_folder(path.parent, path)
    dry_run.output(path, _state(path, overwrite))


def _state(path: Path, overwrite: bool, same: bool = False) -> str:
    """What becomes of a result."""
    if not path.exists():
        return dry_run.MADE
    if overwrite:
        return dry_run.REPLACED
    return dry_run.FINISHED if same else dry_run.REFUSED
