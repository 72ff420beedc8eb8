"""Whether results can be written where they shall be, found out before any work.

In: a path. Out: an error that names it and says why not.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from xdesc_jax.files import dry_run


def check_folder(folder: Path, result: Path) -> None:
    """Tries to write into a folder, or where it is missing into the one that it would be made in.

    In a dry run, looks only whether it is a folder.

    Args:
        folder: of the result.
        result: named where it cannot be written.

    Raises:
        NotADirectoryError: there is a file in its place.
        OSError: nothing can be written there; says why.
    """
    nearest = check_is_folder(folder)
    if dry_run.active():
        return
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise cannot(result, error) from error


def check_is_folder(folder: Path) -> Path:
    """The folder, or the nearest around it that exists; raises NotADirectoryError where that is a file."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{nearest}: is a file, expected a folder")
    return nearest


def cannot(result: Path, error: OSError) -> OSError:
    """The error of a result that cannot be written, of the same kind."""
    return type(error)(f"{result}: cannot be written here ({error.strerror or error})")
