"""The matches and verified pairs inside a copy of a database, checked before COLMAP reads them.

In: an SQLite connection to the copy. Out: tables as COLMAP's present schema has them, every pair of two photos that
are there and of rows that they have. Needs SQLite alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.database import MAX_IMAGES
from xdesc_jax.colmap.database_matches import MATCHES, OLD_VERIFIED, VERIFIED, parse
from xdesc_jax.matching.matches import check_rows


def upgrade(connection: sqlite3.Connection) -> None:
    """Brings the tables of an old schema to the present one, as COLMAP would."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if OLD_VERIFIED in tables and VERIFIED not in tables:
        connection.execute(f"ALTER TABLE {OLD_VERIFIED} RENAME TO {VERIFIED}")
    elif VERIFIED not in tables:
        connection.execute(
            f"CREATE TABLE {VERIFIED} (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, "
            "cols INTEGER NOT NULL, data BLOB, config INTEGER NOT NULL)"
        )


def drop_failed(connection: sqlite3.Connection) -> int:
    """Takes out geometries without a match, whose verification failed, so that they are verified again.

    COLMAP keeps them; the settings here may be others than those that they failed with.
    """
    return connection.execute(f"DELETE FROM {VERIFIED} WHERE rows = 0").rowcount


def check(connection: sqlite3.Connection, source: Path) -> int:
    """Takes matches of a photo with itself out of a database.

    Returns:
        How many such pairs there were.

    Raises:
        ValueError: matches that are damaged, or of photos or rows that are not there.
    """
    names = dict(connection.execute("SELECT image_id, name FROM images"))
    rows = dict(connection.execute("SELECT image_id, rows FROM keypoints"))
    own: set[int] = set()
    for table in (MATCHES, VERIFIED):
        for pair, count, columns, data in connection.execute(f"SELECT pair_id, rows, cols, data FROM {table}"):
            if not all(isinstance(value, int) for value in (pair, count, columns)):
                raise ValueError(f"{source}: {table} say pair {pair!r}, {count!r} x {columns!r}, expected numbers")
            ids = divmod(pair, MAX_IMAGES)
            if ids[0] == ids[1]:
                own.add(pair)
            if not count:
                continue
            if not set(ids) <= set(names):
                raise ValueError(f"{source}: {table} name the image ids {ids}, which are not both there")
            where = f"{source}: {table} of {names[ids[0]]!r} and {names[ids[1]]!r}"
            indices = parse(data, count, columns, where)
            check_rows(indices, [(names[i], rows.get(i, 0)) for i in ids], where)
    for table in (MATCHES, VERIFIED):
        connection.executemany(f"DELETE FROM {table} WHERE pair_id = ?", [(pair,) for pair in own])
    return len(own)


def replace(connection: sqlite3.Connection, found: Iterable[tuple[str, str, np.ndarray]]) -> int:
    """Writes matches of pairs of photos, int [M, 2], in the place of all that are there; returns how many they are."""
    ids = {name: image_id for image_id, name in connection.execute("SELECT image_id, name FROM images")}
    connection.execute(f"DELETE FROM {MATCHES}")
    connection.execute(f"DELETE FROM {VERIFIED}")
    total = 0
    for a, b, indices in found:
        if not len(indices):
            continue
        if ids[a] > ids[b]:
            a, b, indices = b, a, indices[:, ::-1]
        data = np.ascontiguousarray(indices, np.uint32)  # COLMAP reads any other dtype wrongly
        connection.execute(
            f"INSERT INTO {MATCHES} (pair_id, rows, cols, data) VALUES (?, ?, 2, ?)",
            (MAX_IMAGES * ids[a] + ids[b], len(data), data.tobytes()),
        )
        total += len(data)
    return total
