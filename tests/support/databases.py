"""Databases of COLMAP 3 and 4, a translator that takes what they hold, and their whole content for comparison."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import numpy as np

from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, get_spec
from xdesc_jax.translation import database as translate_database
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.deviation import RowStatistics

SPECS = {
    "colmap-sift": get_spec("colmap-sift"),
    "plain": DescriptorSpec("plain", 9, normalized=False),
    "bits": binary_spec("bits", 19),
}
# What COLMAP 3.8 makes, but for the tables that are of no interest here.
SCHEMA_3 = """
CREATE TABLE cameras (camera_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, model INTEGER NOT NULL,
    width INTEGER NOT NULL, height INTEGER NOT NULL, params BLOB, prior_focal_length INTEGER NOT NULL);
CREATE TABLE images (image_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, name TEXT NOT NULL UNIQUE,
    camera_id INTEGER NOT NULL, prior_qw REAL, prior_qx REAL, prior_qy REAL, prior_qz REAL, prior_tx REAL,
    prior_ty REAL, prior_tz REAL, CONSTRAINT image_id_check CHECK(image_id >= 0 and image_id < 2147483647),
    FOREIGN KEY(camera_id) REFERENCES cameras(camera_id));
CREATE UNIQUE INDEX index_name ON images(name);
CREATE TABLE keypoints (image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL,
    data BLOB, FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE);
CREATE TABLE descriptors (image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL,
    data BLOB, FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE);
CREATE TABLE matches (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB);
CREATE TABLE two_view_geometries (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL,
    cols INTEGER NOT NULL, data BLOB, config INTEGER NOT NULL, F BLOB, E BLOB, H BLOB, qvec BLOB, tvec BLOB);
PRAGMA user_version = 3800;
"""


def sift_rows(n: int, seed: int = 0) -> np.ndarray:
    """uint8 [n, 128] with the norm of COLMAP's SIFT."""
    x = np.random.default_rng(seed).random((n, 128))
    return np.rint(512 * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.uint8)


def make_3(path: Path) -> Path:
    """Of COLMAP 3: images of 5, 0 (row '0 x 6'), 3 keypoints, and one without any row."""
    db = sqlite3.connect(path)
    db.executescript(SCHEMA_3)
    db.execute("INSERT INTO cameras VALUES (1, 1, 640, 480, ?, 1)", (np.array([500.0, 500, 320, 240]).tobytes(),))
    for image_id, (name, n) in enumerate({"a b.jpg": 5, "blank.jpg": 0, "sub/é.jpg": 3, "bare.jpg": None}.items(), 1):
        db.execute("INSERT INTO images VALUES (?, ?, 1, 1, 0, 0, 0, ?, 2, 3)", (image_id, name, image_id / 2))
        if n is not None:
            keypoints = np.random.default_rng(image_id).random((n, 6)).astype(np.float32)
            db.execute("INSERT INTO keypoints VALUES (?, ?, 6, ?)", (image_id, n, keypoints.tobytes()))
            rows = sift_rows(n, image_id)
            db.execute("INSERT INTO descriptors VALUES (?, ?, ?, ?)", (image_id, n, 128 * (n > 0), rows.tobytes()))
    pair, matches = 2147483647 * 1 + 3, np.array([[0, 1], [4, 2]], np.uint32).tobytes()
    db.execute("INSERT INTO matches VALUES (?, 2, 2, ?)", (pair, matches))
    db.execute("INSERT INTO two_view_geometries VALUES (?, 2, 2, ?, 2, x'', x'', x'', x'', x'')", (pair, matches))
    db.execute("CREATE TABLE notes (text TEXT)")  # of another program
    db.execute("INSERT INTO notes VALUES ('kept')")
    db.commit()
    db.close()
    return path


def make_4(path: Path) -> Path:
    """Of COLMAP 4: 2 rigs of 3 frames, pose priors, matches and geometries, in WAL mode as COLMAP leaves it."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig = 2, 1, 3
    options.num_points3D, options.prior_position = 40, True
    pycolmap.set_random_seed(0)
    with pycolmap.Database.open(path) as db:
        pycolmap.synthesize_dataset(options, db)
    rng = np.random.default_rng(1)
    edited = sqlite3.connect(path)
    for image_id, n in edited.execute("SELECT image_id, rows FROM descriptors").fetchall():
        data = sift_rows(n, int(rng.integers(1000))).tobytes()
        edited.execute("UPDATE descriptors SET data = ? WHERE image_id = ?", (data, image_id))
    edited.commit()
    edited.close()
    return path


def edit(path: Path, sql: str, *values: object) -> Path:
    """Runs one statement and closes the database, so that nothing is left beside it."""
    db = sqlite3.connect(path)
    db.execute(sql, values)
    db.commit()
    db.close()
    return path


def make_model(path: Path, target_spec: DescriptorSpec | None = None) -> Path:
    """A random translator between `SPECS`, with ratios."""
    rng = np.random.default_rng(0)

    def layers(*widths: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return [
            (rng.normal(0, a**-0.5, (a, b)).astype(np.float32), rng.normal(0, 0.1, b).astype(np.float32))
            for a, b in zip(widths, widths[1:], strict=False)
        ]

    networks = {f"encoder/{n}": layers(s.width, 17, 8) for n, s in SPECS.items()}
    networks |= {f"decoder/{n}": layers(8, 11, s.width) for n, s in SPECS.items()}
    ratios = {"colmap-sift->plain": 0.7, "bits->plain": 0.6, "plain->bits": 0.5, "bits|plain": 0.8}
    statistics = {"colmap-sift": RowStatistics(np.eye(128, dtype=np.float32)[0], np.full(128, 0.01, np.float32))}
    return Bundle("encoder_decoder", SPECS, 8, networks, statistics, ratios=ratios).save(path)


def tables(path: Path) -> dict[str, list[tuple]]:
    """All rows of all tables, by table."""
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in sorted(names)}
    db.close()
    return found


def state(folder: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of every file in a folder."""
    return {
        str(p.relative_to(folder)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file()
    }


def run(*arguments):
    """The exit status of `xdesc translate`."""
    return cli.main(["translate", *map(str, arguments)])


# --- Going on ----------------------------------------------------------------------------------------------


def interrupt(monkeypatch, images):
    """Stops the translation behind so many images, each of which is kept."""
    monkeypatch.setattr(translate_database, "COMMIT_SECONDS", 0)
    kept = DatabaseWriter.checkpoint
    count = iter(range(images))

    def stop(self):
        kept(self)
        if next(count, None) == images - 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(DatabaseWriter, "checkpoint", stop)
