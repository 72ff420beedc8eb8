"""A database's file as SQLite leaves it: locks of other programs, and logs beside it.

In: the path of a database that other programs may have open, or did not close. Out: a file that can be read as
it is, without any lock. Nothing is written beside the database, not even SQLite's own -wal and -shm, and its
folder may be read-only: that is why locks are looked up and not taken.

A file of journal mode DELETE holds all pages unless a `-journal` with a magic number lies beside it (a writer
that was killed; SQLite then rolls back). A file of mode WAL, COLMAP's, lacks the pages of its `-wal`.

Source: https://www.sqlite.org/fileformat2.html and SQLite's os_unix.c (which bytes its locks are on).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from xdesc_jax.files.whole import config_hash, input_hash

_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_MODE_BYTE, _ROLLBACK_MODE = 18, 1  # of the header; 2 is WAL
_PENDING, _FILE_LOCKS = 0x40000000, 512  # PENDING, RESERVED and the 510 bytes of SHARED
_SHM_WRITE, _SHM_LOCKS = 120, 3  # in the -shm: WRITE, CHECKPOINT, RECOVER
_FLOCK = "hhqqi"  # Linux's struct flock: type, whence, start, length, process


def log_of(path: Path) -> Path | None:
    """The log beside a database without which it is not complete; None where it is."""
    log, journal = path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")
    if log.exists() and log.stat().st_size > 0:
        return log
    if journal.exists() and _start(journal, len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC:
        return journal
    return None


def state(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    """What changes when a program writes the database: inode, size and time of the file and of its log."""
    files = [path] if (log := log_of(path)) is None else [path, log]
    return tuple((f.name, s.st_ino, s.st_size, s.st_mtime_ns) for f in files for s in [f.stat()])


def database_hash(path: Path) -> str:
    """12 hex digits that identify a database's content, its log included."""
    log = log_of(path)
    return input_hash(path) if log is None else config_hash([input_hash(path), input_hash(log)])


@contextlib.contextmanager
def settled(path: Path) -> Iterator[Path]:
    """Yields the database itself, or a complete copy where it has a log.

    Raises:
        ValueError: another program is writing it.
    """
    refuse_written(path)
    log = log_of(path)
    if log is None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "database.db"
        before = state(path)
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(copy.name + log.name.removeprefix(path.name)))
        if state(path) != before:
            raise _being_written(path, "it changed while it was copied")
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            try:
                # Moves a log's pages into the copy; any first statement rolls back what a journal undoes.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.DatabaseError as error:
                raise ValueError(f"{path}: not a readable COLMAP database ({error})") from error
        yield copy


def refuse_written(path: Path) -> None:
    """Raises ValueError where another program holds a lock to write the database."""
    shm = path.with_name(path.name + "-shm")
    if _write_locked(path, _PENDING, _FILE_LOCKS) or (shm.exists() and _write_locked(shm, _SHM_WRITE, _SHM_LOCKS)):
        raise _being_written(path, "database is locked")
    if _start(path, _MODE_BYTE + 1)[_MODE_BYTE:] != bytes([_ROLLBACK_MODE]) or log_of(path) is not None:
        return  # SQLite would write beside it
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise _being_written(path, str(error)) from error
        except sqlite3.DatabaseError:
            pass  # no database at all, which its reader tells


def _being_written(path: Path, why: str) -> ValueError:
    return ValueError(f"{path}: is being written by another program ({why}); wait for it, or close the database there")


def _write_locked(path: Path, first: int, length: int) -> bool:
    """Whether another process holds a write lock on bytes of a file; SQLite's own look-up, without a file opened
    for writing."""
    if sys.platform != "linux":
        return False
    import fcntl

    question = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, first, length, 0)
    with path.open("rb") as file:
        try:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, question)
        except OSError:
            return False  # a file system without locks
    return struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK


def _start(path: Path, length: int) -> bytes:
    with path.open("rb") as file:
        return file.read(length)
