"""One input of a fuzz: a valid file changed, read, and what came of it; by numbers, so that each can be had again.

In: a reader, a seed and the number of an input. Out: how it ended. Well is: a reader that takes the file, or one line
that names it. All else is a failure, as are ten seconds or a gigabyte.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import warnings
import zlib
from pathlib import Path
from typing import Any

from tests.fuzz.checks import Wrong
from tests.fuzz.readers import Reader
from xdesc_jax.console.messages import one_line

TAKEN, REFUSED, UNCHANGED, FAILED = "taken", "refused", "unchanged", "failed"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How an input ended.

    Attributes:
        kind: `TAKEN`, `REFUSED`, `UNCHANGED` or `FAILED`.
        change: what was changed.
        told: the message, or what was wrong.
    """

    kind: str
    change: str
    told: str = ""


def make_valid(reader: Reader, folder: Path) -> Path:
    """The valid file or folder of a reader, which its reader takes."""
    (folder / "valid").mkdir(parents=True)
    valid = reader.make(folder / "valid")
    copy = _copy(valid, folder / "first")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader.read(copy)
    return valid


def make_changed(reader: Reader, valid: Path, seed: int, number: int, folder: Path) -> tuple[Path, str]:
    """A copy of the valid file in a new folder, changed; and what was changed."""
    rng = random.Random(f"{reader.name} {seed} {number}")
    changed = _copy(valid, folder)
    files = (
        [changed]
        if changed.is_file()
        else sorted(f for f in changed.rglob("*") if f.is_file() and reader.mutators_of(f))
    )
    file = rng.choice(files)
    if changed.is_dir() and rng.random() < 0.02:
        file.unlink()
        return changed, f"{file.name} is lost"
    told = rng.choice(reader.mutators_of(file))(file, rng)
    return changed, f"{file.name}: {told}"


def attempt(reader: Reader, valid: Path, seed: int, number: int, folder: Path) -> Outcome:
    """Makes an input in a new folder and reads it."""
    path, change = make_changed(reader, valid, seed, number, folder)
    if _content(path) == _content(valid):
        return Outcome(UNCHANGED, change)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except Wrong as error:
        return Outcome(FAILED, change, f"wrong result: {error}")
    except (ValueError, OSError) as error:
        message = one_line(str(error))  # as a stage tells it
        named = str(path) in message
        return Outcome(REFUSED if named else FAILED, change, message if named else f"does not name the file: {message}")
    except (Exception, SystemExit) as error:
        return Outcome(FAILED, change, f"{type(error).__name__}: {error}; {_place(error)}")
    return Outcome(TAKEN, change)


def _place(error: BaseException) -> str:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return "" if place is None else f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"


def _copy(valid: Path, folder: Path) -> Path:
    folder.mkdir(parents=True)
    copy = folder / valid.name
    return Path(shutil.copytree(valid, copy) if valid.is_dir() else shutil.copyfile(valid, copy))


def _content(path: Path) -> dict[str, Any]:
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    return {str(f.relative_to(path)): zlib.crc32(f.read_bytes()) for f in files}
