"""Reading COLMAP databases: rows as they are, and the file as it was."""

import hashlib
import sqlite3

import numpy as np
import pytest

from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.pycolmap_api import pycolmap

KEYPOINTS = {
    "a b.jpg": np.array([[1, 2], [3, 4]], np.float32),
    "sub/\u00e9.jpg": np.array([[1, 2, 3, 0.5]], np.float32),
    "c.jpg": np.arange(18, dtype=np.float32).reshape(3, 6),
}


@pytest.fixture
def database(tmp_path):
    """Three photos of 2, 4 and 6 columns, and one without keypoints."""
    path = tmp_path / "map #1.db"
    with pycolmap.Database.open(path) as db:
        pinhole = pycolmap.Camera(model="SIMPLE_PINHOLE", width=64, height=48, params=[100, 32, 24])
        camera = db.write_camera(pinhole)
        for name in [*KEYPOINTS, "empty.jpg"]:
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera))
            if name in KEYPOINTS:
                db.write_keypoints(image, KEYPOINTS[name])
                types = pycolmap.FeatureExtractorType
                kind = types.UNDEFINED if name == "c.jpg" else types.SIFT
                rows = np.full((len(KEYPOINTS[name]), 128), image, np.uint8)
                db.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=rows))
    return path


def test_names_and_sizes_are_read(database):
    with DatabaseReader(database) as reader:
        assert reader.names == sorted([*KEYPOINTS, "empty.jpg"])
        assert reader.image_size("a b.jpg") == (64, 48)


@pytest.mark.parametrize("name", KEYPOINTS)
def test_keypoints_keep_their_columns(database, name):
    with DatabaseReader(database) as reader:
        np.testing.assert_array_equal(reader.keypoints(name), KEYPOINTS[name])


def test_photo_without_keypoints_has_zero_rows(database):
    with DatabaseReader(database) as reader:
        assert reader.keypoints("empty.jpg").shape == (0, 6)
        assert reader.sift("empty.jpg") is None


def test_sift_descriptors_are_read_and_others_refused(database):
    with DatabaseReader(database) as reader:
        assert reader.sift("sub/\u00e9.jpg").tolist() == [[2] * 128]
        with pytest.raises(ValueError, match="'c.jpg' have type -1 and 128 bytes, expected SIFT"):
            reader.sift("c.jpg")


def test_unknown_photo_is_named(database):
    with DatabaseReader(database) as reader:
        with pytest.raises(KeyError, match="no photo 'A b.jpg'"):
            reader.keypoints("A b.jpg")


def test_reading_changes_no_file(database):
    def state():
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in database.parent.iterdir()}

    before = state()
    with DatabaseReader(database) as reader:
        for name in reader.names:
            reader.keypoints(name)
        assert state() == before
    assert state() == before


def test_rows_still_in_the_write_ahead_log_are_read(database):
    writer = sqlite3.connect(database)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("UPDATE images SET name = 'renamed.jpg' WHERE name = 'empty.jpg'")
    writer.commit()
    log = database.with_name(database.name + "-wal")
    before = database.read_bytes(), log.read_bytes()
    assert before[1]
    with DatabaseReader(database) as reader:
        assert "renamed.jpg" in reader.names
    assert (database.read_bytes(), log.read_bytes()) == before
    writer.close()


def test_database_without_descriptor_types_holds_sift(database):
    with sqlite3.connect(database) as connection:
        connection.execute("ALTER TABLE descriptors DROP COLUMN type")
    connection.close()
    with DatabaseReader(database) as reader:
        assert reader.sift("c.jpg").shape == (3, 128)


def test_damaged_row_is_named(database):
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE keypoints SET rows = rows + 1")
    connection.close()
    with DatabaseReader(database) as reader:
        with pytest.raises(ValueError, match="keypoints of 'a b.jpg' hold .* bytes, expected"):
            reader.keypoints("a b.jpg")


def test_missing_or_foreign_file_is_refused_and_not_created(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.db"):
        DatabaseReader(tmp_path / "absent.db")
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "text.db").write_text("no database")
    with pytest.raises(ValueError, match="text.db: not a readable COLMAP database"):
        DatabaseReader(tmp_path / "text.db")
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(ValueError, match="no such table"):
        (tmp_path / "empty.db").touch()
        DatabaseReader(tmp_path / "empty.db")
