"""Matches in COLMAP databases: what was matched, and what geometric verification kept of it.

In: an open database. Out: pairs with their counts, and rows of keypoints. Needs SQLite and numpy alone.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from xdesc_jax.colmap.database import MAX_IMAGES, DatabaseReader

MATCHES, VERIFIED = "matches", "two_view_geometries"
OLD_VERIFIED = "inlier_matches"  # of COLMAP up to 3.2, which kept no geometry beside the matches


@dataclasses.dataclass(frozen=True)
class StoredPair:
    """Two photos of a database, that of the smaller image id first.

    Attributes:
        name0, name1: the photos.
        matches: rows in the table of matches.
        inliers: of them, those that one geometry explains; None where the pair was not verified.
    """

    name0: str
    name1: str
    matches: int
    inliers: int | None


def parse(data: object, count: object, columns: object, where: str) -> np.ndarray:
    """The rows of a pair as the tables hold them, uint32 [count, 2].

    Raises:
        ValueError: their number is not what the table says.
    """
    data = b"" if data is None else data
    if not isinstance(data, bytes) or not isinstance(count, int) or count < 0:
        raise ValueError(f"{where} are {count!r} in {type(data).__name__}, expected their number and bytes")
    if count and (columns != 2 or len(data) != count * 8):
        raise ValueError(f"{where} have {len(data)} bytes, expected {count * 8} for {count} pairs of uint32")
    return np.frombuffer(data if count else b"", np.uint32).reshape(-1, 2)


def verified_table(reader: DatabaseReader) -> str:
    """The table of verified pairs, whose name was another in the oldest databases."""
    return OLD_VERIFIED if not reader.columns(VERIFIED) and reader.columns(OLD_VERIFIED) else VERIFIED


def _stored(reader: DatabaseReader, table: str) -> str:
    return verified_table(reader) if table == VERIFIED else table


def stored_pairs(reader: DatabaseReader) -> list[StoredPair]:
    """All pairs that were matched or verified, in the order of their image ids; a photo with itself is left out.

    Raises:
        ValueError: a pair of images that the database does not have.
    """
    names = {image_id: name for name, image_id in reader.ids.items()}
    found: dict[int, dict[str, int]] = {}
    for table in (MATCHES, VERIFIED):
        if reader.columns(stored := _stored(reader, table)):
            for pair_id, count in reader.query(f"SELECT pair_id, rows FROM {stored}"):
                if not isinstance(pair_id, int) or not isinstance(count, int) or count < 0:
                    told = f"{stored} have {count!r} rows of pair {pair_id!r}"
                    raise ValueError(f"{reader.path}: {told}, expected whole numbers")
                found.setdefault(pair_id, {})[table] = count
    pairs = []
    for pair_id, counts in sorted(found.items()):
        a, b = divmod(pair_id, MAX_IMAGES)
        if not {a, b} <= names.keys():
            raise ValueError(f"{reader.path}: matches name the image ids {(a, b)}, which are not both there")
        if a != b:
            pairs.append(StoredPair(names[a], names[b], counts.get(MATCHES, 0), counts.get(VERIFIED)))
    return pairs


def read_rows(reader: DatabaseReader, table: str, name0: str, name1: str) -> np.ndarray:
    """Rows of one pair in one of the two tables.

    Returns:
        [M, 2] int64, row of `name0` and of `name1`; none where the table does not have the pair.

    Raises:
        ValueError: damaged.
    """
    a, b = reader.ids[name0], reader.ids[name1]
    pair_id = MAX_IMAGES * min(a, b) + max(a, b)
    found = reader.query(f"SELECT rows, cols, data FROM {_stored(reader, table)} WHERE pair_id = ?", pair_id)
    if not found:
        return np.zeros((0, 2), np.int64)
    count, columns, data = found[0]
    rows = parse(data, count, columns, f"{reader.path}: {table} of {name0!r} and {name1!r}").astype(np.int64)
    return rows if a < b else rows[:, ::-1]
