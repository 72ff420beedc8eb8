"""One process at a time works on a result that is written over time.

In: a run directory, a folder of part files, or a file that they become. Out: a lock of the operating system on a file
in it or beside it, with a note of who holds it. The lock goes with its process, also a killed one, so nobody has to
remove it; the file goes at the end of the work. Where the file system carries locks (NFS does), hosts see each
other's; where it has none, the note alone tells of a process of the same host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from xdesc_jax.files import dry_run
from xdesc_jax.files.place import cannot, check_is_folder
from xdesc_jax.files.whole import remove_left

SUFFIX = ".lock"
_log = logging.getLogger("xdesc_jax")
_HELD = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class InUse(OSError):
    """Another process works on the result."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who works on a result.

    Attributes:
        work: the stage, as 'xdesc train'.
        process: its number.
        host: where it runs.
        since: date and time, UTC.
    """

    work: str
    process: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"{self.work}, process {self.process} on {self.host}, since {self.since}" if self.process else self.work

    @classmethod
    def here(cls, work: str) -> Holder:
        """This process, from now on."""
        now = datetime.datetime.now(datetime.UTC)
        return cls(work, os.getpid(), socket.gethostname(), f"{now:%Y-%m-%d %H:%M:%S} UTC")


def inside(folder: Path, name: str = "work") -> Path:
    """The lock of a folder that is written into over time."""
    return folder / f".{name}{SUFFIX}"


def beside(path: Path, suffix: str = SUFFIX) -> Path:
    """The lock, or another private file, of a result that is put into its place when it is whole."""
    return path.with_name(f".{path.name}{suffix}")


@contextlib.contextmanager
def claimed(lock: Path, work: str, result: Path, *, wait: bool = False) -> Iterator[None]:
    """Only this process works on a result while the body runs; what killed ones left half-written beside it goes. In a
    dry run, says only whether another does.

    Args:
        lock: `inside` or `beside` the result; its folder is made, and goes again if it is still empty at the end.
        work: what this process does, as 'xdesc train'.
        result: named where it is in use.
        wait: until the other one is done, which must be soon.

    Raises:
        InUse: another process works on it; says which, where, and since when.
        OSError: a file is in the place of a folder, or the lock cannot be written.
    """
    check_is_folder(lock.parent)
    if dry_run.active():
        if not wait and (found := holder(lock)) is not None:
            raise _in_use(result, found)
        yield
        return
    made = [folder for folder in (lock.parent, *lock.parent.parents) if not folder.exists()]
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = _take(lock, result, wait)
    except OSError as error:
        if isinstance(error, InUse):
            raise
        if error.errno not in _NOT_WRITABLE:
            raise cannot(result, error) from error
        if (found := holder(lock)) is not None:  # of another user
            raise _in_use(result, found) from error
        yield  # nothing can be written there: the stage says so where it tries to, or has nothing to do
        return
    try:
        _write(file, Holder.here(work))
        remove_left(result)
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()  # before it is let go, so that whoever waits for it sees that it is gone
        os.close(file)
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


def holder(lock: Path) -> Holder | None:
    """Who holds a lock; None where nobody does."""
    try:
        file = os.open(lock, os.O_RDONLY)
    except OSError:
        return None
    try:
        # Of a lock that is shared no two are in each other's way, as when two look at the same time.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        found = _read(file)
        if error.errno in _HELD:
            return found or _unknown()
        return found if found is not None and _lives(found) else None
    finally:
        os.close(file)
    return None


def _take(lock: Path, result: Path, wait: bool) -> int:
    """The lock's file, open and locked."""
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except OSError as error:
                if error.errno in _HELD:
                    raise _in_use(result, _read(file) or _unknown()) from None
                if error.errno not in _NO_LOCKS:
                    raise
                _check_note(_read(file), result)
                return file
            if _is_at(file, lock):  # else its holder has removed it meanwhile
                _tell_of_former(_read(file), result)
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _is_at(file: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(lock))
    except FileNotFoundError:
        return False


def _check_note(found: Holder | None, result: Path) -> None:
    """What can be told on a file system without locks; raises InUse where a process of this host lives."""
    if found is not None and _lives(found):
        raise _in_use(result, found)
    _log.warning("%s: its file system has no locks: see to it that no other process works there", result)
    _tell_of_former(found, result)


def _tell_of_former(found: Holder | None, result: Path) -> None:
    if found is not None:
        _log.info("%s: taken over from a process that did not end in good order (%s)", result, found)


def _lives(found: Holder) -> bool:
    """Whether a process of this host is there; of another host, nobody knows."""
    return found.host == socket.gethostname() and Path(f"/proc/{found.process}").exists()


def _in_use(result: Path, found: Holder) -> InUse:
    return InUse(f"{result}: another process works on it: {found}")


def _unknown() -> Holder:
    return Holder("which has not said yet who it is", 0, "", "")


def _write(file: int, note: Holder) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(dataclasses.asdict(note)).encode() + b"\n", 0)


def _read(file: int) -> Holder | None:
    """The note in a lock; None where there is none yet."""
    try:
        return Holder(**json.loads(os.pread(file, 4096, 0)))
    except (ValueError, TypeError):
        return None
