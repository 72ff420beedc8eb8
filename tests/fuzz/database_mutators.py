"""Rows, columns and tables of an SQLite database that no program of COLMAP's would write.

In: a valid database, and a source of random choices. Out: the database with one of them changed.
"""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

from tests.fuzz.mutators import change_value, json_bytes

_VALUES: tuple[Any, ...] = (
    None, 0, 1, -1, 2, 7, 128, 2**31, 2**62, -(2**63), 0.5, 1e300, float("inf"), "", "a", "é", "x" * 3000, "1", "{}",
    b"", b"\0", b"\xff" * 8, b"\0" * 4096,
)  # fmt: skip


def change_database(path: Path, rng: random.Random) -> str:
    """A value, row, column or table of an SQLite database changed."""
    told = []
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        # Whatever a file may hold, whoever wrote it.
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("PRAGMA ignore_check_constraints = ON")
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            with contextlib.suppress(sqlite3.Error, OverflowError):
                told.append(_change(db, rng))
    return ", ".join(told) or "nothing"


def _change(db: sqlite3.Connection, rng: random.Random) -> str:
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    filled = [
        t for t in tables if not t.startswith("sqlite_") and db.execute(f"SELECT count(*) FROM {t}").fetchone()[0]
    ]
    table = rng.choice(filled)
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    rows = [rowid for (rowid,) in db.execute(f"SELECT rowid FROM {table} ORDER BY rowid")]
    row, column = rng.choice(rows), rng.choice(columns)
    kind = rng.choice(
        ("value",) * 8 + ("row", "rows", "copy", "table", "column", "plain", "view", "trigger", "version", "pragma")
    )
    if kind == "value":
        [(held,)] = db.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,))
        value = rng.choice(_VALUES)
        if isinstance(held, bytes) and held and rng.random() < 0.6:
            value = rng.choice(
                (
                    held[:-1],
                    held[: len(held) // 2],
                    held + b"\0" * 4,
                    held * 2,
                    held[::-1],
                    bytes(len(held)),
                    b"\xff" * len(held),
                )
            )
        elif isinstance(held, str) and held[:1] in ("{", "[") and rng.random() < 0.7:
            value = json_bytes(change_value(json.loads(held), rng)[0]).decode()
        elif isinstance(held, int) and rng.random() < 0.5:
            value = held + rng.choice((-1, 1, 2**31, -held * 2))
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
        return f"{table}.{column} of {row} is {value!r}"[:120]
    if kind == "row":
        db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    elif kind == "rows":
        db.execute(f"DELETE FROM {table}")
    elif kind == "copy":
        others = [c for c in columns if c != columns[0]]
        number = rng.choice((0, -1, 99, 2**31, 2**62))
        db.execute(f"INSERT INTO {table} SELECT {number}, {', '.join(others)} FROM {table} WHERE rowid = ?", (row,))
    elif kind == "table":
        db.execute(f"DROP TABLE {table}" if rng.random() < 0.6 else f"ALTER TABLE {table} RENAME TO old_{table}")
    elif kind == "column":
        db.execute(
            f"ALTER TABLE {table} "
            + (f"DROP COLUMN {column}" if rng.random() < 0.5 else f"RENAME COLUMN {column} TO {column}_")
        )
    elif kind == "plain":  # without types, keys and what must not be null
        db.execute(f"CREATE TABLE plain AS SELECT * FROM {table}")
        db.execute(f"DROP TABLE {table}")
        db.execute(f"ALTER TABLE plain RENAME TO {table}")
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (rng.choice(_VALUES), 1))
        if rng.random() < 0.5:
            db.execute(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")
    elif kind == "view":
        db.execute(f"ALTER TABLE {table} RENAME TO under_{table}")
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM under_{table}")
    elif kind == "trigger":
        db.execute(f"CREATE TRIGGER t AFTER DELETE ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END")
    elif kind == "version":
        db.execute(f"PRAGMA user_version = {rng.choice((0, 1, 3000, 99999, -1))}")
    else:
        statement = rng.choice(("encoding = 'UTF-16'", "journal_mode = WAL", "application_id = 7", "page_size = 512"))
        db.execute(f"PRAGMA {statement}")
        db.execute("VACUUM")
    return f"{kind}: {table}.{column}"
