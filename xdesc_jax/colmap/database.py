"""Reading COLMAP databases without changing them.

In: an existing SQLite database of COLMAP, of schema 3 or 4. Out: photo names, keypoints in COLMAP's own form
(origin at the corner of the first pixel), and descriptors in the stored form of their spec. Needs neither
pycolmap nor jax.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np

from xdesc_jax.colmap import own_tables
from xdesc_jax.colmap.model import Camera
from xdesc_jax.descriptors import DescriptorSpec, get_spec

SIFT_TYPE, OTHER_TYPE = 0, -1  # pycolmap.FeatureExtractorType.SIFT and UNDEFINED
SIFT_WIDTH = 128  # bytes
MAX_IMAGES = 2147483647  # COLMAP's pair id is MAX_IMAGES * smaller image id + larger one
# COLMAP's camera models by their number in the table.
CAMERA_MODELS = (
    "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV",
    "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "THIN_PRISM_FISHEYE", "RAD_TAN_THIN_PRISM_FISHEYE",
    "SIMPLE_DIVISION", "DIVISION", "SIMPLE_FISHEYE", "FISHEYE", "EUCM", "EQUIRECTANGULAR",
)  # fmt: skip
_SQLITE = b"SQLite format 3\0"
_HDF5 = b"\x89HDF\r\n\x1a\n"


def is_database(path: Path | str) -> bool:
    """Whether a file is a COLMAP database (True) or a feature file (False), by its first bytes.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is neither.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such feature file or COLMAP database")
    with path.open("rb") as file:
        start = file.read(16)
    if not start.startswith((_SQLITE, _HDF5)):
        raise ValueError(f"{path}: neither a feature file (HDF5) nor a COLMAP database (SQLite)")
    return start.startswith(_SQLITE)


class DatabaseReader:
    """A COLMAP database opened for reading; use as a context manager. The file is never written.

    Args:
        path: the database.

    Attributes:
        ids: photo name -> image id.
        attributes: of the file, where this package wrote it: `config_hash`, `ratios`, ...

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a COLMAP database.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{path}: no such COLMAP database")
        with contextlib.ExitStack() as stack:
            file = self._settled(stack)
            # `immutable`: SQLite would otherwise leave lock and log files beside the database.
            self._connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            stack.callback(self._connection.close)
            rows = self._query("SELECT name, image_id, width, height FROM images LEFT JOIN cameras USING (camera_id)")
            self.ids: dict[str, int] = {name: image_id for name, image_id, *_ in rows}
            self._sizes = {name: (width or 0, height or 0) for name, _, width, height in rows}
            self._own = own_tables.read(self._connection, str(self.path))
            self.attributes = self._own.attributes
            self._stack = stack.pop_all()

    def _settled(self, stack: contextlib.ExitStack) -> Path:
        """The database, or a copy where a write-ahead log holds pages that are not in it yet."""
        log = self.path.with_name(self.path.name + "-wal")
        if not log.exists() or log.stat().st_size == 0:
            return self.path
        copy = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "database.db"
        shutil.copyfile(self.path, copy)
        shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
        # A checkpoint moves the log's pages into the copy.
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return copy

    def __enter__(self) -> DatabaseReader:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    @property
    def names(self) -> list[str]:
        """Names of all photos, sorted."""
        return sorted(self.ids)

    def image_size(self, name: str) -> tuple[int, int]:
        """(width, height) in px of a photo's camera; (0, 0) where it has none."""
        return self._sizes[self._known(name)]

    def camera(self, name: str) -> Camera | None:
        """A photo's camera, `known` where its focal length has the prior flag; None where it has none.

        Raises:
            KeyError: no such photo.
            ValueError: a camera model that is not known here.
        """
        found = self._query(
            "SELECT model, width, height, params, prior_focal_length FROM cameras JOIN images USING (camera_id) "
            "WHERE image_id = ?",
            self.ids[self._known(name)],
        )
        if not found:
            return None
        model, width, height, params, prior = found[0]
        if not 0 <= model < len(CAMERA_MODELS):
            raise ValueError(
                f"{self.path}: the camera of {name!r} has model {model}, expected 0 to {len(CAMERA_MODELS) - 1}"
            )
        return Camera(
            CAMERA_MODELS[model], width, height, tuple(np.frombuffer(params, np.float64).tolist()), bool(prior)
        )

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
        kind = self._descriptor_type(name)
        if kind != SIFT_TYPE or array.shape[1] != SIFT_WIDTH:
            raise ValueError(
                f"{self.path}: descriptors of {name!r} have type {kind} and {array.shape[1]} bytes, "
                f"expected SIFT: type {SIFT_TYPE} and {SIFT_WIDTH} bytes"
            )
        return array

    def spec(self, name: str) -> DescriptorSpec | None:
        """What the descriptors of a photo are; None where it has none, or where the database does not say.

        Raises:
            KeyError: no such photo.
        """
        image_id = self.ids[self._known(name)]
        if image_id in self._own.specs:
            return self._own.specs[image_id]
        found = self._query("SELECT cols FROM descriptors WHERE image_id = ? AND rows > 0", image_id)
        sift = found and found[0][0] == SIFT_WIDTH and self._descriptor_type(name) == SIFT_TYPE
        return get_spec("colmap-sift") if sift else None

    def translated_from(self, name: str) -> str | None:
        """What the rows of a photo were translated from; None for native rows."""
        return self._own.translated_from.get(self.ids[self._known(name)])

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
        array = self._blob("descriptors", name, np.dtype(np.uint8))
        spec = spec or self.spec(name)
        if spec is None:
            if array is None:
                return np.zeros((0, 0), np.uint8)
            kind = self._descriptor_type(name)
            raise ValueError(
                f"{self.path}: does not say which descriptor {name!r} holds "
                f"(type {kind}, {array.shape[1]} bytes); name it"
            )
        if array is None:
            return np.zeros((0, spec.stored_width), spec.stored_dtype)
        expected = spec.stored_width * spec.stored_dtype.itemsize
        if array.shape[1] != expected:
            raise ValueError(
                f"{self.path}: descriptors of {name!r} have {array.shape[1]} bytes, "
                f"but {spec.name!r} ({spec.stored_width} x {spec.stored_dtype}) has {expected}"
            )
        return array.view(spec.stored_dtype)

    def copy_to(self, connection: sqlite3.Connection) -> None:
        """Copies the whole database, tables of others included, into an empty one."""
        self._connection.backup(connection)

    def _descriptor_type(self, name: str) -> int:
        # Databases before COLMAP 4 have no column `type` and hold SIFT alone.
        if all(column[1] != "type" for column in self._query("PRAGMA table_info(descriptors)")):
            return SIFT_TYPE
        return self._query("SELECT type FROM descriptors WHERE image_id = ?", self.ids[name])[0][0]

    def _blob(self, table: str, name: str, dtype: np.dtype) -> np.ndarray | None:
        image_id = self.ids[self._known(name)]
        found = self._query(f"SELECT rows, cols, data FROM {table} WHERE image_id = ?", image_id)
        if not found or found[0][0] == 0:
            return None
        rows, columns, data = found[0]
        expected = rows * columns * dtype.itemsize
        if len(data or b"") != expected:
            raise ValueError(
                f"{self.path}: {table} of {name!r} hold {len(data or b'')} bytes, expected {expected} "
                f"for {rows} x {columns} of {dtype}"
            )
        return np.frombuffer(data, dtype).reshape(rows, columns).copy()

    def _known(self, name: str) -> str:
        if name not in self.ids:
            raise KeyError(f"{self.path}: no photo {name!r} (first of {len(self.ids)}: {self.names[:5]})")
        return name

    def _query(self, sql: str, *values: object) -> list[tuple]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path}: not a readable COLMAP database ({error})") from error
