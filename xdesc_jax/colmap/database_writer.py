"""Writing into a copy of a COLMAP database, which appears whole or not at all.

In: an existing database, which stays as it is, and new descriptors or matches. Out: a new database with
everything else kept: cameras, rigs, frames, images, pose priors, keypoints, tables of others. Float rows lie
in COLMAP's table as bytes (see `own_tables`). Needs SQLite alone, not pycolmap.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path
from types import TracebackType

import numpy as np

from xdesc_jax.colmap import own_tables
from xdesc_jax.colmap.database import MAX_IMAGES, OTHER_TYPE, SIFT_TYPE, DatabaseReader
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files import atomic


class DatabaseWriter:
    """A copy of a database opened for writing; use as a context manager. `out` appears when the block ends well.

    Args:
        source: the database to copy; never written.
        out: the new one; an existing file is replaced at the end.

    Attributes:
        ids: photo name -> image id.
    """

    def __init__(self, source: Path | str, out: Path | str):
        self.source, self.path = Path(source), Path(out)

    def __enter__(self) -> DatabaseWriter:
        with contextlib.ExitStack() as stack:
            temporary = stack.enter_context(atomic(self.path))
            with DatabaseReader(self.source) as reader:
                self.ids = dict(reader.ids)
                self._connection = sqlite3.connect(temporary, isolation_level=None)
                stack.callback(self._connection.close)
                reader.copy_to(self._connection)
            self._connection.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            self._connection.execute("BEGIN")
            own_tables.create(self._connection)
            columns = [row[1] for row in self._connection.execute("PRAGMA table_info(descriptors)")]
            if "type" not in columns:  # before COLMAP 4, which takes every row without a type for SIFT
                self._connection.execute(
                    f"ALTER TABLE descriptors ADD COLUMN type INTEGER NOT NULL DEFAULT {SIFT_TYPE}"
                )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        except BaseException:
            self._stack.__exit__(*sys.exc_info())
            raise
        self._stack.__exit__(kind, error, trace)

    def set_descriptors(self, name: str, rows: np.ndarray, spec: DescriptorSpec, translated_from: str | None) -> None:
        """Replaces the descriptors of a photo.

        Args:
            name: the photo.
            rows: [N, stored_width] in the stored form of `spec`, as many as the photo has keypoints.
            spec: what they are.
            translated_from: what they were translated from; None for native rows.
        """
        image_id = self.ids[name]
        data = np.ascontiguousarray(rows, spec.stored_dtype).view(np.uint8).reshape(len(rows), -1)
        kind = SIFT_TYPE if spec.name == "colmap-sift" else OTHER_TYPE
        self._connection.execute(
            "INSERT OR REPLACE INTO descriptors (image_id, rows, cols, data, type) VALUES (?, ?, ?, ?, ?)",
            (image_id, len(rows), spec.stored_width * spec.stored_dtype.itemsize, data.tobytes(), kind),
        )
        own_tables.write_image(self._connection, image_id, spec, translated_from)

    def clear_matches(self) -> None:
        """Takes out all matches and two-view geometries."""
        self._connection.execute("DELETE FROM matches")
        self._connection.execute("DELETE FROM two_view_geometries")

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
        self._connection.execute(
            "INSERT OR REPLACE INTO matches (pair_id, rows, cols, data) VALUES (?, ?, 2, ?)",
            (MAX_IMAGES * min(a, b) + max(a, b), len(data), data.tobytes()),
        )

    def set_attribute(self, key: str, value: str) -> None:
        """Sets an attribute of the file (see `own_tables`)."""
        own_tables.write_attribute(self._connection, key, value)
