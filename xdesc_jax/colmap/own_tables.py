"""What COLMAP's schema has no place for: tables of our own inside a COLMAP database.

In: an SQLite connection. Out: the descriptor spec of each image, what its rows were translated from, and
attributes of the whole file. COLMAP has types for few descriptors (see `descriptor_types`) and none for what rows were
translated from; the rest lies there as plain bytes. COLMAP ignores tables that it does not know.

    xdesc_specs       name, spec (JSON)                       every descriptor in the file
    xdesc_images      image_id, spec (name), translated_from  what an image's rows are, and were
    xdesc_attributes  key, value                              `version`, `config_hash`, `ratios` (JSON), ...
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3

from xdesc_jax.descriptors import DescriptorSpec

VERSION = 1
TABLES = ("xdesc_specs", "xdesc_images", "xdesc_attributes")
_CREATE = (
    "CREATE TABLE IF NOT EXISTS xdesc_specs (name TEXT PRIMARY KEY NOT NULL, spec TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS xdesc_images"
    " (image_id INTEGER PRIMARY KEY NOT NULL, spec TEXT NOT NULL, translated_from TEXT)",
    "CREATE TABLE IF NOT EXISTS xdesc_attributes (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL)",
)


@dataclasses.dataclass(frozen=True)
class OwnTables:
    """The content of our tables.

    Attributes:
        specs: image id -> what its descriptors are.
        translated_from: image id -> what they were translated from; absent for native rows.
        attributes: of the file.
    """

    specs: dict[int, DescriptorSpec] = dataclasses.field(default_factory=dict)
    translated_from: dict[int, str] = dataclasses.field(default_factory=dict)
    attributes: dict[str, str] = dataclasses.field(default_factory=dict)


def read(connection: sqlite3.Connection, where: str) -> OwnTables:
    """Reads our tables; empty where a database has none.

    Raises:
        ValueError: a newer version, or rows that are no specs.
    """
    try:
        return _read(connection, where)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{where}: its xdesc tables cannot be read ({error})") from error


def _read(connection: sqlite3.Connection, where: str) -> OwnTables:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "xdesc_images" not in tables:
        return OwnTables()
    attributes = dict(connection.execute("SELECT key, value FROM xdesc_attributes"))
    if strange := [item for item in attributes.items() if not all(isinstance(text, str) for text in item)]:
        raise ValueError(f"{where}: attribute {strange[0][0]!r} is {strange[0][1]!r}, expected a text")
    version = attributes.get("version", str(VERSION))
    if not version.isdecimal() or int(version) > VERSION:
        raise ValueError(f"{where}: xdesc tables of version {version}, this package reads up to {VERSION}")
    specs: dict[str, DescriptorSpec] = {}
    for name, text in connection.execute("SELECT name, spec FROM xdesc_specs"):
        try:
            specs[name] = DescriptorSpec.from_dict(json.loads(text))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{where}: the spec of {name!r} is {text!r}, expected a descriptor ({error})") from error
    of, origins = {}, {}
    for image_id, name, origin in connection.execute("SELECT image_id, spec, translated_from FROM xdesc_images"):
        if origin is not None and not isinstance(origin, str):
            raise ValueError(f"{where}: image {image_id} was translated from {origin!r}, expected a name")
        if name not in specs:
            raise ValueError(f"{where}: image {image_id} holds {name!r}, of which the database has no spec")
        of[image_id] = specs[name]
        if origin is not None:
            origins[image_id] = origin
    return OwnTables(of, origins, attributes)


def create(connection: sqlite3.Connection) -> None:
    """Makes our tables where they are not there yet."""
    for statement in _CREATE:
        connection.execute(statement)
    write_attribute(connection, "version", str(VERSION))


def write_image(connection: sqlite3.Connection, image_id: int, spec: DescriptorSpec, origin: str | None) -> None:
    """Notes what the rows of an image are and, unless they are native, what they were translated from."""
    connection.execute("INSERT OR REPLACE INTO xdesc_specs VALUES (?, ?)", (spec.name, json.dumps(spec.to_dict())))
    connection.execute("INSERT OR REPLACE INTO xdesc_images VALUES (?, ?, ?)", (image_id, spec.name, origin))


def drop_unused_specs(connection: sqlite3.Connection) -> None:
    """Takes out the specs that no image has any more."""
    connection.execute("DELETE FROM xdesc_specs WHERE name NOT IN (SELECT spec FROM xdesc_images)")


def write_attribute(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Sets an attribute of the file."""
    connection.execute("INSERT OR REPLACE INTO xdesc_attributes VALUES (?, ?)", (key, value))


def delete_attribute(connection: sqlite3.Connection, key: str) -> None:
    """Takes out an attribute of the file."""
    connection.execute("DELETE FROM xdesc_attributes WHERE key = ?", (key,))
