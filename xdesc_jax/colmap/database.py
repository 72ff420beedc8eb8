"""Reading COLMAP databases without changing them.

In: an existing SQLite database of COLMAP, of schema 3 or 4. Out: photo names, keypoints in COLMAP's own form
(origin at the corner of the first pixel), and descriptors in the stored form of their spec. Needs neither
pycolmap nor jax.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap import database_file, own_tables
from xdesc_jax.colmap.camera_models import CAMERA_MODELS, focals
from xdesc_jax.colmap.descriptor_types import SIFT_TYPE, own_record, type_name, typed_spec
from xdesc_jax.colmap.model import Camera
from xdesc_jax.console.words import files_meant
from xdesc_jax.descriptors import DescriptorSpec, in_stored_dtype

SIFT_WIDTH = 128  # bytes
MAX_IMAGES = 2147483647  # COLMAP's pair id is MAX_IMAGES * smaller image id + larger one
# Those that are read; a view of such a name would run a program of others.
_TABLES = ("cameras", "images", "keypoints", "descriptors", "matches", "two_view_geometries", "inlier_matches", "rigs",
           "rig_sensors", "frames", "frame_data", "pose_priors", *own_tables.TABLES)  # fmt: skip
_SQLITE = b"SQLite format 3\0"
_HDF5 = b"\x89HDF\r\n\x1a\n"


def is_database(path: Path | str) -> bool:
    """Whether a file is a COLMAP database (True) or a feature file (False), by its first bytes.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is neither.
    """
    path = Path(path)
    if path.is_dir():
        meant = files_meant(path, (".h5", ".db"))
        raise ValueError(f"{path}: is a folder, expected a feature file or a COLMAP database{meant}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such feature file or COLMAP database")
    with path.open("rb") as file:
        start = file.read(16)
    if not start.startswith((_SQLITE, _HDF5)):
        raise ValueError(f"{path}: neither a feature file (HDF5) nor a COLMAP database (SQLite)")
    return start.startswith(_SQLITE)


def _dtypes(spec: DescriptorSpec) -> dict[int, np.dtype]:
    """Bytes of a row -> dtype of its values: as it is stored here, or bytes for floats and floats for bytes."""
    scaled = not spec.binary and spec.storage_scale != 1
    dtypes: list[np.dtype] = [np.dtype(np.uint8), np.dtype(np.float32)] if scaled else [spec.stored_dtype]
    return {spec.stored_width * dtype.itemsize: dtype for dtype in dtypes}


class Blob(NamedTuple):
    """What a row of `keypoints` or `descriptors` says of its array, and how many bytes that has."""

    rows: int
    columns: int
    bytes: int
    kind: int  # COLMAP's type of descriptor

    def damage(self, itemsize: int) -> str | None:
        """How the array's size is wrong for values of `itemsize` bytes; None where it is right."""
        expected = self.rows * self.columns * itemsize
        if self.rows == 0 or self.bytes == expected > 0:
            return None
        return f"{self.bytes} bytes, expected {expected} for {self.rows} x {self.columns}"


class DatabaseReader:
    """A COLMAP database opened for reading; use as a context manager. The file is never written.

    Args:
        path: the database.
        hint: what to do where nothing says which descriptor it holds, for the error.

    Attributes:
        ids: photo name -> image id.
        attributes: of the file, where this package wrote it: `config_hash`, `ratios`, ...

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a COLMAP database, or another program is writing it.
    """

    def __init__(self, path: Path | str, hint: str = "name it by --descriptor"):
        self.path, self._hint = Path(path), hint
        if not self.path.is_file():
            raise FileNotFoundError(f"{path}: no such COLMAP database")
        with contextlib.ExitStack() as stack:
            self._state = database_file.state(self.path)
            file = stack.enter_context(database_file.settled(self.path))
            # `immutable`: SQLite would otherwise leave lock and log files beside the database.
            self._connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            stack.callback(self._connection.close)
            self._refuse_views()
            rows = self.query("SELECT name, image_id, width, height FROM images LEFT JOIN cameras USING (camera_id)")
            for name, image_id, *size in rows:
                self._require(isinstance(name, str) and name, f"image {image_id} has the name {name!r}", "a text")
                plain = all(v is None or isinstance(v, int) and v >= 0 for v in size)
                self._require(plain, f"the camera of {name!r} is of {size[0]!r} x {size[1]!r} px", "whole numbers")
            self.ids: dict[str, int] = {name: image_id for name, image_id, *_ in rows}
            # Tables that another program made may lack COLMAP's keys.
            told = f"{len(rows)} images have {len(self.ids)} names and {len({*self.ids.values()})} ids"
            plain = all(isinstance(i, int) and 0 <= i < MAX_IMAGES for i in self.ids.values())
            self._require(plain, f"image ids are {[*self.ids.values()][:5]}", "whole numbers below 2147483647")
            self._require(len(rows) == len(self.ids) == len({*self.ids.values()}), told, "as many")
            self._sizes = {name: (width or 0, height or 0) for name, _, width, height in rows}
            self._own = own_tables.read(self._connection, str(self.path))
            self.attributes = self._own.attributes
            self._stack = stack.pop_all()

    def __enter__(self) -> DatabaseReader:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def _refuse_views(self) -> None:
        views = self.query("SELECT name FROM sqlite_master WHERE type = 'view'")
        if found := [name for (name,) in views if str(name).lower() in _TABLES]:
            raise ValueError(f"{self.path}: {found[0]!r} is a view, expected a table, as COLMAP makes it")

    def _require(self, condition: object, found: str, expected: str) -> None:
        """Raises ValueError where a value of the database cannot be; SQLite takes any value in any column."""
        if not condition:
            raise ValueError(f"{self.path}: {found}, expected {expected}")

    def check_unchanged(self) -> None:
        """Raises ValueError where another program has written the database since it was opened."""
        if database_file.state(self.path) != self._state:
            raise ValueError(f"{self.path}: was changed by another program while it was read; start again")

    @property
    def names(self) -> list[str]:
        """Names of all photos, sorted."""
        return sorted(self.ids)

    def require_photos(self) -> None:
        """Raises ValueError where the database holds no photo."""
        if not self.ids:
            raise ValueError(f"{self.path}: holds no photo: it is a COLMAP database without images")

    def image_size(self, name: str) -> tuple[int, int]:
        """(width, height) in px of a photo's camera; (0, 0) where it has none."""
        return self._sizes[self._known(name)]

    def camera(self, name: str) -> Camera | None:
        """A photo's camera, `known` where its focal length has the prior flag; None where it has none.

        Raises:
            KeyError: no such photo.
            ValueError: a camera model that is not known here.
        """
        found = self.query(
            "SELECT model, width, height, params, prior_focal_length FROM cameras JOIN images USING (camera_id) "
            "WHERE image_id = ?",
            self.ids[self._known(name)],
        )
        if not found:
            return None
        model, width, height, params, prior = found[0]
        last = len(CAMERA_MODELS) - 1
        known = isinstance(model, int) and 0 <= model <= last
        self._require(known, f"the camera of {name!r} has model {model!r}", f"0 to {last}")
        whole = isinstance(params, bytes) and len(params) % 8 == 0
        self._require(whole, f"the parameters of the camera of {name!r} are {params!r}", "bytes of float64")
        name_of, values = CAMERA_MODELS[model], tuple(np.frombuffer(params, np.float64).tolist())
        return Camera(name_of, width, height, values, bool(prior) or not focals(name_of))

    def sharing(self) -> tuple[int, int]:
        """How many cameras are of several photos, and how many rigs of several sensors."""
        shared = self.query("SELECT camera_id FROM images GROUP BY camera_id HAVING count(*) > 1")
        if not self.columns("rig_sensors"):
            return len(shared), 0
        return len(shared), len(self.query("SELECT DISTINCT rig_id FROM rig_sensors"))

    def keypoints(self, name: str) -> np.ndarray:
        """Keypoints of a photo, float32 [N, 2 | 4 | 6]; [0, 6] where the database has none.

        Raises:
            KeyError: no such photo.
            ValueError: the row is damaged.
        """
        array = self._blob("keypoints", name, np.dtype(np.float32))
        if array is None:
            return np.zeros((0, 6), np.float32)
        if array.shape[1] not in (2, 4, 6):
            raise ValueError(f"{self.path}: keypoints of {name!r} have width {array.shape[1]}, expected 2, 4, 6")
        return array

    def sift(self, name: str) -> np.ndarray | None:
        """SIFT descriptors of a photo, uint8 [N, 128], or None where the database has none.

        Raises:
            KeyError: no such photo.
            ValueError: the row is damaged, or holds other descriptors than SIFT.
        """
        array = self._blob("descriptors", name, np.dtype(np.uint8))
        if array is None:
            return None
        kind = self.blobs("descriptors")[self.ids[name]].kind
        if kind != SIFT_TYPE or array.shape[1] != SIFT_WIDTH:
            raise ValueError(
                f"{self.path}: descriptors of {name!r} have type {type_name(kind)} and {array.shape[1]} "
                f"bytes, expected SIFT of {SIFT_WIDTH} bytes"
            )
        return array

    def spec(self, name: str) -> DescriptorSpec | None:
        """What the descriptors of a photo are; None where it has none, or where the database does not say.

        Raises:
            KeyError: no such photo.
        """
        image_id = self.ids[self._known(name)]
        row, keypoints = self.blobs("descriptors").get(image_id), self.blobs("keypoints").get(image_id)
        if (row is None or row.rows == 0) and keypoints is not None and keypoints.rows > 0:
            return None  # whatever our tables say: the rows were taken out since
        kind = None if row is None else row.kind
        if (recorded := own_record(self._own.specs.get(image_id), kind)) is not None:
            return recorded
        return typed_spec(row.kind, row.columns) if row is not None and row.rows > 0 else None

    def translated_from(self, name: str) -> str | None:
        """What the rows of a photo were translated from; None for native rows."""
        image_id, spec = self.ids[self._known(name)], self.spec(name)
        current = spec is not None and spec == self._own.specs.get(image_id)
        return self._own.translated_from.get(image_id) if current else None

    def descriptors(self, name: str, spec: DescriptorSpec | None = None) -> np.ndarray:
        """Descriptors of a photo in their stored form, [N, stored_width] of the spec's stored dtype.

        Args:
            name: the photo.
            spec: what they are; where None, what the database says.

        Returns:
            The rows; none ([0, stored_width]) where the database has none.

        Raises:
            KeyError: no such photo.
            ValueError: the row is damaged or of another width, or nothing says what the rows are.
        """
        spec = self.check_descriptors(name, spec)
        if spec is None:
            return np.zeros((0, 0), np.uint8)
        array = self._blob("descriptors", name, np.dtype(np.uint8))
        if array is None:
            return np.zeros((0, spec.stored_width), spec.stored_dtype)
        return in_stored_dtype(array.view(_dtypes(spec)[array.shape[1]]), spec, f"{self.path}: {name!r}")

    def check_descriptors(self, name: str, spec: DescriptorSpec | None = None) -> DescriptorSpec | None:
        """What `descriptors` reads, checked without reading it; None where there are no rows and no spec.

        Raises:
            KeyError, ValueError: as `descriptors`.
        """
        row = self.blobs("descriptors").get(self.ids[self._known(name)])
        spec = spec or self.spec(name)
        if row is None or row.rows == 0:
            return spec
        if spec is None:
            raise ValueError(
                f"{self.path}: does not say which descriptor {name!r} holds "
                f"(type {type_name(row.kind)}, {row.columns} bytes); {self._hint}"
            )
        self._check_size("descriptors", name, row, np.dtype(np.uint8))
        if row.columns not in _dtypes(spec):
            expected = spec.stored_width * spec.stored_dtype.itemsize
            raise ValueError(
                f"{self.path}: descriptors of {name!r} have {row.columns} bytes, "
                f"but {spec.name!r} ({spec.stored_width} x {spec.stored_dtype}) has {expected}"
            )
        return spec

    def blobs(self, table: str) -> dict[int, Blob]:
        """Image id -> what `keypoints` or `descriptors` holds of it; empty where there is no such table."""
        return self._blobs[table]

    @functools.cached_property
    def _blobs(self) -> dict[str, dict[int, Blob]]:
        found: dict[str, dict[int, Blob]] = {}
        for table in ("keypoints", "descriptors"):
            columns = self.columns(table)
            # Databases before COLMAP 4 have no column `type` and hold SIFT alone.
            kind = "type" if "type" in columns else SIFT_TYPE
            # SQLite tells a blob's length without reading it.
            sql = f"SELECT image_id, rows, cols, coalesce(length(data), 0), {kind} FROM {table}"
            rows = self.query(sql) if columns else []
            for image_id, *values in rows:
                self._require(isinstance(image_id, int), f"{table} are of image {image_id!r}", "its number")
                plain = all(isinstance(v, int) for v in values) and min(values[:2]) >= 0
                self._require(plain, f"{table} of image {image_id} say {values[0]!r} x {values[1]!r}", "whole numbers")
            found[table] = {image_id: Blob(*values) for image_id, *values in rows}
            self._require(len(found[table]) == len(rows), f"{table} have {len(rows)} rows", "one of each image")
        return found

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns; none where the database has no such table."""
        return [row[1] for row in self.query(f"PRAGMA table_info({table})")]

    def copy_to(self, connection: sqlite3.Connection) -> None:
        """Copies the whole database, tables of others included, into an empty one, but for what would run in it:
        triggers and views."""
        self._connection.backup(connection)
        made = connection.execute("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')").fetchall()
        for kind, name in made:
            quoted = str(name).replace('"', '""')
            connection.execute(f'DROP {kind.upper()} IF EXISTS "{quoted}"')
        connection.commit()
        if made:
            told = ", ".join(f"{kind} {name!r}" for kind, name in made[:5])
            console.warn(f"{self.path}: {len(made)} triggers and views are left out of the copy, first {told}")

    def _blob(self, table: str, name: str, dtype: np.dtype) -> np.ndarray | None:
        image_id = self.ids[self._known(name)]
        row = self.blobs(table).get(image_id)
        if row is None or row.rows == 0:
            return None
        self._check_size(table, name, row, dtype)
        [(data,)] = self.query(f"SELECT data FROM {table} WHERE image_id = ?", image_id)
        self._require(isinstance(data, bytes), f"{table} of {name!r} are {type(data).__name__}", "bytes")
        return np.frombuffer(data, dtype).reshape(row.rows, row.columns).copy()

    def _check_size(self, table: str, name: str, row: Blob, dtype: np.dtype) -> None:
        if (damage := row.damage(dtype.itemsize)) is not None:
            raise ValueError(f"{self.path}: {table} of {name!r} hold {damage} of {dtype}")

    def _known(self, name: str) -> str:
        if name not in self.ids:
            raise KeyError(f"{self.path}: no photo {name!r} (first of {len(self.ids)}: {self.names[:5]})")
        return name

    def query(self, sql: str, *values: object) -> list[tuple]:
        """Rows of a statement that reads.

        Raises:
            ValueError: the file is no database, is damaged, or lacks a table.
        """
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path}: not a readable COLMAP database ({error})") from error
