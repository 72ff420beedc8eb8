"""What COLMAP's files hold: counts, columns and descriptors, for `xdesc inspect`.

In: a database, or the folder of a model. Out: a description as plain values. Needs SQLite alone; of a binary
model only the counts at the head of each file are read.
"""

from __future__ import annotations

import collections
import statistics
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.database_matches import verified_table
from xdesc_jax.colmap.descriptor_types import type_name
from xdesc_jax.colmap.model_files import PARTS, meant
from xdesc_jax.colmap.text_model import count_entries
from xdesc_jax.console.words import files_meant
from xdesc_jax.translation.ratios import RATIOS, parse

_NOT_SAID = "not said"
_SHOWN = 5


def database(path: Path) -> dict[str, Any]:
    """What a COLMAP database holds.

    Raises:
        ValueError: not a COLMAP database, or another program is writing it.
    """
    with DatabaseReader(path) as reader:
        listed = [_image(reader, name) for name in sorted(reader.ids, key=reader.ids.__getitem__)]
        [(user_version,)] = reader.query("PRAGMA user_version")
        typed = "type" in reader.columns("descriptors") and bool(reader.columns("rigs"))
        columns = collections.Counter(item["columns"] for item in listed if item["keypoints"])
        damaged = [f"{item['name']}: {item['damage']}" for item in listed if item["damage"]]
        return {
            "schema": "4.x" if typed else "3.x",
            "user_version": user_version,
            "xdesc_tables": reader.attributes.get("version"),
            "images": len(listed),
            **{table: _count(reader, table) for table in ("cameras", "rigs", "frames", "pose_priors")},
            "keypoints": spread([item["keypoints"] for item in listed]),
            "keypoint_columns": {str(k): n for k, n in sorted(columns.items())},
            "descriptors": _descriptors(listed),
            "images_without_keypoints": sum(item["keypoints"] == 0 for item in listed),
            "images_without_descriptors": sum(item["rows"] == 0 for item in listed),
            "images_with_unequal_rows": sum(item["rows"] not in (0, item["keypoints"]) for item in listed),
            "matched_pairs": _count(reader, "matches", "rows > 0"),
            "matches": _sum(reader, "matches"),
            "verified_pairs": _count(reader, verified_table(reader), "rows > 0"),
            "inlier_matches": _sum(reader, verified_table(reader)),
            "damaged_images": len(damaged),
            "damaged": damaged[:_SHOWN],
            "ratios": parse(reader.attributes.get(RATIOS), path),
            "attributes": {k: v for k, v in reader.attributes.items() if k not in (RATIOS, "version")},
            "image_list": listed,
        }


def _image(reader: DatabaseReader, name: str) -> dict[str, Any]:
    image_id = reader.ids[name]
    keypoints, rows = reader.blobs("keypoints").get(image_id), reader.blobs("descriptors").get(image_id)
    spec = reader.spec(name)
    damage = [
        f"{table} hold {text}"
        for table, row, itemsize in (("keypoints", keypoints, 4), ("descriptors", rows, 1))
        if row is not None and (text := row.damage(itemsize)) is not None
    ]
    held = rows.rows if rows is not None else 0
    unknown = f"{_NOT_SAID} (type {type_name(rows.kind)}, {rows.columns} bytes)" if rows is not None and held else None
    return {
        "name": name,
        "keypoints": keypoints.rows if keypoints is not None else 0,
        "columns": keypoints.columns if keypoints is not None else 0,
        "rows": held,
        "spec": spec.name if spec is not None else unknown,
        "type": type_name(rows.kind) if rows is not None and held else None,
        "translated_from": reader.translated_from(name),
        "damage": "; ".join(damage) or None,
    }


def _descriptors(listed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[int]] = {}
    for item in listed:
        if item["spec"] is not None:
            groups.setdefault((item["spec"], item["type"] or "", item["translated_from"] or ""), []).append(
                item["rows"]
            )
    return [
        {"spec": spec, "type": kind or None, "translated_from": origin or None, "images": len(rows), "rows": sum(rows)}
        for (spec, kind, origin), rows in sorted(groups.items())
    ]


def _count(reader: DatabaseReader, table: str, where: str = "1") -> int | None:
    """Rows of a table; None where the schema does not have it."""
    return reader.query(f"SELECT count(*) FROM {table} WHERE {where}")[0][0] if reader.columns(table) else None


def _sum(reader: DatabaseReader, table: str) -> int | None:
    return reader.query(f"SELECT coalesce(sum(rows), 0) FROM {table}")[0][0] if reader.columns(table) else None


def model_folder(path: Path) -> dict[str, Any]:
    """How many cameras, images and points the model in a folder has.

    Raises:
        ValueError: no model, or a file that is cut short.
    """
    counts: dict[str, int] = {}
    for end in (".bin", ".txt"):
        files = {part: path / f"{part}{end}" for part in PARTS}
        if all(files[part].is_file() for part in PARTS[:3]):
            counts = {part: _head_count(file) for part, file in files.items() if file.is_file()}
            break
    if not counts:
        told = meant(path)
        if not told:
            told = f" (cameras, images and points3D, .bin or .txt){files_meant(path, ('.h5', '.db', '.safetensors'))}"
        raise ValueError(f"{path}: a folder that holds no COLMAP model{told}")
    return {"kind": "COLMAP model", "format": end[1:], **counts}


def _head_count(file: Path) -> int:
    if file.suffix == ".bin":
        with file.open("rb") as stream:
            head = stream.read(8)
        if len(head) < 8:
            raise ValueError(f"{file}: is cut short, it has {len(head)} bytes, expected a count of 8 at its head")
        return int(struct.unpack("<Q", head)[0])
    return count_entries(file)


def spread(counts: Sequence[int]) -> dict[str, int]:
    """Total, smallest, median and largest of some counts."""
    if not counts:
        return {"total": 0, "min": 0, "median": 0, "max": 0}
    return {"total": sum(counts), "min": min(counts), "median": int(statistics.median(counts)), "max": max(counts)}
