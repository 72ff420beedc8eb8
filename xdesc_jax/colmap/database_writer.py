"""Writing into a copy of a COLMAP database, which appears whole or not at all.

In: an existing database, which stays as it is, and new descriptors or matches. Out: a new database with
everything else kept: cameras, rigs, frames, images, pose priors, keypoints, tables of others. Float rows lie
in COLMAP's table as bytes, typed where COLMAP has a type for them (see `descriptor_types`). A copy that takes long can
be made so that a killed run goes on.
Needs SQLite alone, not pycolmap.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from xdesc_jax.colmap import own_tables
from xdesc_jax.colmap.database import MAX_IMAGES, DatabaseReader
from xdesc_jax.colmap.database_file import log_of
from xdesc_jax.colmap.descriptor_types import SIFT_TYPE, own_record, type_of
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.whole import atomic

PARTIAL_OF = "partial_of"  # attribute of a partial file: `resume` and the boot that it was written in
_CACHE_KB = 32768
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# COLMAP 4's columns. They come before `data`, or SQLite would read the whole of it to get at `type`. COLMAP 3
# leaves `type` out when it adds rows, which are SIFT.
_DESCRIPTORS = (
    "CREATE TABLE {name} (image_id INTEGER PRIMARY KEY NOT NULL, "
    f"type INTEGER NOT NULL DEFAULT {SIFT_TYPE}, "
    "rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB, "
    "FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE)"
)


class DatabaseWriter:
    """A copy of a database opened for writing; use as a context manager. `out` appears when the block ends well.

    Args:
        source: the database to copy, or its reader; never written.
        out: the new one; an existing file is replaced at the end.
        resume: identifies what is made; then a block that does not end leaves a partial file beside `out`, from
            which the next writer with the same `resume` goes on, unless it ends with a ValueError: such a fault
            of the input would come again. None leaves nothing.

    Attributes:
        ids: photo name -> image id.
        resumed: whether it goes on with a partial file.

    Raises:
        ValueError: the source cannot be read, or `out` is open elsewhere.
        OSError: the file cannot be written, as where the disk is full.
        FileExistsError: another run makes the same file.
    """

    def __init__(self, source: Path | str | DatabaseReader, out: Path | str, resume: str | None = None):
        self.path, self._source, self._resume = Path(out), source, resume
        self.resumed = self._owned = False
        self._partial_of = f"{resume} {_boot()}"

    def __enter__(self) -> DatabaseWriter:
        _refuse_open(self.path)
        with contextlib.ExitStack() as stack:
            self._file = stack.enter_context(atomic(self.path) if self._resume is None else self._resumable())
            with contextlib.ExitStack() as reading, self._told():
                reader = self._source
                if not isinstance(reader, DatabaseReader):
                    reader = reading.enter_context(DatabaseReader(reader))
                self.ids = dict(reader.ids)
                partial = self._open_partial() if self._resume is not None else None
                self.resumed = partial is not None
                self._connection = partial or sqlite3.connect(self._file, isolation_level=None, timeout=0)
                stack.callback(self._connection.close)
                if partial is None:
                    _set_up(self._connection)
                    self._owned = True
                    reader.copy_to(self._connection)
                    self._prepare()
                self._owned = True
                self._found = own_tables.read(self._connection, str(self._file)).specs
                self._kinds = dict(self._connection.execute("SELECT image_id, type FROM descriptors"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                with self._told():
                    own_tables.delete_attribute(self._connection, PARTIAL_OF)
                    own_tables.drop_unused_specs(self._connection)
                    self._connection.execute("COMMIT")
                _flush(self._file)
                _refuse_open(self.path)
        except BaseException:
            self._stack.__exit__(*sys.exc_info())
            raise
        self._stack.__exit__(kind, error, trace)

    def held(self, name: str) -> str | None:
        """The descriptor that our tables name for a photo: in the source, or in the partial file gone on with."""
        spec = own_record(self._found.get(self.ids[name]), self._kinds.get(self.ids[name]))
        return None if spec is None else spec.name

    def set_descriptors(self, name: str, rows: np.ndarray, spec: DescriptorSpec, translated_from: str | None) -> None:
        """Replaces the descriptors of a photo.

        Args:
            name: the photo.
            rows: [N, stored_width] in the stored form of `spec`, as many as the photo has keypoints.
            spec: what they are.
            translated_from: what they were translated from; None for native rows.
        """
        image_id = self.ids[name]
        if rows.ndim != 2 or rows.shape[1] != spec.stored_width:
            raise ValueError(
                f"{self.path}: rows of {name!r} have shape {rows.shape}, expected [N, {spec.stored_width}] "
                f"of {spec.name!r}"
            )
        data = np.ascontiguousarray(rows, spec.stored_dtype).tobytes()
        with self._told(f"descriptors of {name!r}: "):
            self._connection.execute(
                "INSERT OR REPLACE INTO descriptors (image_id, rows, cols, data, type) VALUES (?, ?, ?, ?, ?)",
                (image_id, len(rows), spec.stored_width * spec.stored_dtype.itemsize, data, type_of(spec)),
            )
        self.record(name, spec, translated_from)

    def record(self, name: str, spec: DescriptorSpec, translated_from: str | None) -> None:
        """Notes what the descriptors of a photo are, as `set_descriptors` does, and leaves them."""
        with self._told():
            own_tables.write_image(self._connection, self.ids[name], spec, translated_from)

    def clear_matches(self) -> None:
        """Takes out all matches and two-view geometries."""
        with self._told():
            for table in ("matches", "two_view_geometries", "inlier_matches"):  # the last of COLMAP up to 3.2
                if self._connection.execute(f"PRAGMA table_info({table})").fetchall():
                    self._connection.execute(f"DELETE FROM {table}")

    def write_matches(self, name0: str, name1: str, indices: np.ndarray) -> None:
        """Writes the matches of a pair, replacing those it has.

        Args:
            name0, name1: two different photos, in either order.
            indices: [M, 2] int, row of the first and row of the second photo.
        """
        a, b = self.ids[name0], self.ids[name1]
        if a == b:
            raise ValueError(f"{self.path}: {name0!r} is matched with itself")
        columns = indices if a < b else indices[:, ::-1]
        data = np.ascontiguousarray(columns, np.uint32)  # COLMAP reads any other dtype wrongly
        with self._told():
            self._connection.execute(
                "INSERT OR REPLACE INTO matches (pair_id, rows, cols, data) VALUES (?, ?, 2, ?)",
                (MAX_IMAGES * min(a, b) + max(a, b), len(data), data.tobytes()),
            )

    def set_attribute(self, key: str, value: str) -> None:
        """Sets an attribute of the file (see `own_tables`)."""
        with self._told():
            own_tables.write_attribute(self._connection, key, value)

    def checkpoint(self) -> None:
        """Keeps what was written so far, should the run be killed."""
        with self._told():
            self._connection.execute("COMMIT")
            self._connection.execute("BEGIN IMMEDIATE")

    def _open_partial(self) -> sqlite3.Connection | None:
        """The partial file of this very result; None where there is none that can be gone on with."""
        if not self._file.exists():
            return None
        connection = sqlite3.connect(self._file, isolation_level=None, timeout=0)
        try:
            _set_up(connection)
            connection.execute("BEGIN IMMEDIATE")
            found = connection.execute("SELECT value FROM xdesc_attributes WHERE key = ?", (PARTIAL_OF,)).fetchall()
            if found == [(self._partial_of,)]:
                return connection
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                connection.close()
                raise FileExistsError(f"{self._file}: another run is making {self.path}") from error
        # Of another result, or killed while it was copied.
        connection.close()
        _remove(self._file)
        return None

    def _prepare(self) -> None:
        """Our tables in a fresh copy, and COLMAP 4's table of descriptors."""
        db = self._connection
        db.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        db.execute("BEGIN IMMEDIATE")
        own_tables.create(db)
        columns = [row[1] for row in db.execute("PRAGMA table_info(descriptors)")]
        if not columns:
            db.execute(_DESCRIPTORS.format(name="descriptors"))
        elif "type" not in columns:
            db.execute(_DESCRIPTORS.format(name="xdesc_descriptors"))
            db.execute(
                "INSERT INTO xdesc_descriptors (image_id, rows, cols, data) "
                "SELECT image_id, rows, cols, data FROM descriptors"
            )
            db.execute("DROP TABLE descriptors")
            db.execute("ALTER TABLE xdesc_descriptors RENAME TO descriptors")
        if self._resume is not None:
            own_tables.write_attribute(db, PARTIAL_OF, self._partial_of)
            db.execute("COMMIT")
            db.execute("BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def _resumable(self) -> Iterator[Path]:
        """As `files.atomic`, but what fails, unless with a ValueError, leaves the file for the next run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.partial")
        try:
            yield partial
        except ValueError:
            if self._owned:
                _remove(partial)
            raise
        os.replace(partial, self.path)
        _remove(partial)  # its journal, which in exclusive mode may stay

    @contextlib.contextmanager
    def _told(self, what: str = "") -> Iterator[None]:
        """SQLite's errors, as a full disk's, with the file."""
        try:
            yield
        except sqlite3.Error as error:
            # Damage is that of the source, whose pages are copied as they are.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
                source = self._source.path if isinstance(self._source, DatabaseReader) else self._source
                raise ValueError(f"{source}: not a readable COLMAP database ({error})") from error
            left = self._resume is not None and self._file.exists()
            kept = f"; what is done so far is in {self._file}: run again to go on" if left else ""
            raise OSError(f"{self.path}: cannot be written ({what}{error}){kept}") from error


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # keeps a second run out
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    # Nothing waits for the disk before the end: what another boot left behind is not gone on with.
    connection.execute("PRAGMA synchronous = OFF")


def _flush(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _boot() -> str:
    """Names the time since the machine was started; nothing where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _remove(partial: Path) -> None:
    """Takes out a partial file and its journal, which would undo another file of that name."""
    for suffix in ("", "-journal"):
        partial.with_name(partial.name + suffix).unlink(missing_ok=True)


def _refuse_open(path: Path) -> None:
    """Raises ValueError where a log lies beside `path`: SQLite would take it for that of the new file."""
    if (log := log_of(path)) is not None:
        raise ValueError(f"{log}: {path} is open in another program, or was not closed; close it, or remove both")
