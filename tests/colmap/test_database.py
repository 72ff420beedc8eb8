"""Reading COLMAP databases: rows as they are, and the file as it was."""

import hashlib
import sqlite3

import numpy as np
import pytest

from tests.support.databases import SPECS, edit, make_3, make_4, state
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.database_matches import read_rows, stored_pairs
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.descriptors import get_spec

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
        with pytest.raises(ValueError, match="'c.jpg' have type UNDEFINED and 128 bytes, expected SIFT"):
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


@pytest.fixture
def old(tmp_path):
    return make_3(tmp_path / "old.db")


def test_a_hot_journal_is_rolled_back_in_a_copy(old, tmp_path):
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    writer = sqlite3.connect(old, isolation_level=None)
    writer.execute("PRAGMA cache_size = 1")  # spills pages into the file before the end
    writer.execute("BEGIN")
    writer.execute("UPDATE images SET name = name || ' changed'")
    writer.executemany("INSERT INTO notes VALUES (?)", [("x" * 3000,)] * 50)
    for name in ("old.db", "old.db-journal"):  # as a killed writer leaves them
        (crashed / name).write_bytes((tmp_path / name).read_bytes())
    writer.execute("ROLLBACK")
    writer.close()
    assert (crashed / "old.db").read_bytes() != old.read_bytes()
    before = state(crashed)
    with DatabaseReader(crashed / "old.db") as reader:
        assert "a b.jpg" in reader.names
    assert state(crashed) == before


def test_a_journal_that_was_kept_after_its_end_is_no_log(old):
    writer = sqlite3.connect(old)
    writer.execute("PRAGMA journal_mode = PERSIST")
    writer.execute("UPDATE images SET name = 'renamed.jpg' WHERE image_id = 1")
    writer.commit()
    writer.close()
    before = state(old.parent)
    assert "old.db-journal" in before
    with DatabaseReader(old) as reader:
        assert "renamed.jpg" in reader.names
    assert state(old.parent) == before


def test_a_database_locked_in_this_process_is_refused(old):
    writer = sqlite3.connect(old, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ValueError, match="old.db: is being written by another program"):
        DatabaseReader(old)
    writer.close()


def test_a_change_by_others_is_noticed(old):
    with DatabaseReader(old) as reader:
        reader.check_unchanged()
        edit(old, "UPDATE images SET name = 'renamed.jpg' WHERE image_id = 1")
        with pytest.raises(ValueError, match="old.db: was changed by another program"):
            reader.check_unchanged()


@pytest.mark.parametrize("columns", [0, 6, 128])
def test_rows_of_nothing_are_read_as_none(old, columns):
    edit(old, "UPDATE descriptors SET cols = ? WHERE rows = 0", columns)
    with DatabaseReader(old) as reader:
        for name in ("blank.jpg", "bare.jpg"):
            assert len(reader.descriptors(name)) == 0 and reader.spec(name) is None
            assert reader.keypoints(name).shape == (0, 6)


@pytest.mark.parametrize("rows, columns, data", [(5, 0, b""), (5, 128, b""), (5, 128, None), (6, 128, b"x" * 640)])
def test_descriptors_of_another_size_than_they_say_are_named(old, rows, columns, data):
    edit(old, "UPDATE descriptors SET rows = ?, cols = ?, data = ? WHERE image_id = 1", rows, columns, data)
    with DatabaseReader(old) as reader:
        message = f"descriptors of 'a b.jpg' hold {len(data or b'')} bytes, expected {rows * columns} for {rows} x"
        with pytest.raises(ValueError, match=message):
            reader.descriptors("a b.jpg", reader.spec("sub/é.jpg"))


def test_a_missing_table_of_descriptors_holds_none(old):
    edit(old, "DROP TABLE descriptors")
    with DatabaseReader(old) as reader:
        assert reader.spec("a b.jpg") is None and reader.sift("a b.jpg") is None
        assert len(reader.keypoints("a b.jpg")) == 5


def test_sift_that_colmap_extracted_anew_is_sift(tmp_path):
    source = make_4(tmp_path / "map.db")
    with DatabaseReader(source) as reader:
        name, rows = reader.names[0], reader.descriptors(reader.names[0])
    with DatabaseWriter(source, tmp_path / "out.db") as writer:
        writer.set_descriptors(name, np.ones((len(rows), 9), np.float32), SPECS["plain"], "colmap-sift")
    with pycolmap.Database.open(tmp_path / "out.db") as db:
        found = pycolmap.FeatureDescriptors(type=pycolmap.FeatureExtractorType.SIFT, data=rows)
        db.clear_descriptors()
        db.write_descriptors(writer.ids[name], found)
    with DatabaseReader(tmp_path / "out.db") as reader:
        assert reader.spec(name).name == "colmap-sift" and reader.translated_from(name) is None
        np.testing.assert_array_equal(reader.descriptors(name), rows)


# --- What a database cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("UPDATE images SET name = x'ff00' WHERE image_id = 1", r"image 1 has the name b'\\xff\\x00', expected a text"),
        ("UPDATE images SET name = 5 WHERE image_id = 1", None),  # SQLite makes a text of it
        ("UPDATE cameras SET width = -320", "the camera of '.*' is of -320 x 480 px, expected whole numbers"),
        ("UPDATE cameras SET height = 'tall'", "is of 640 x 'tall' px"),
        ("UPDATE cameras SET model = 'PINHOLE'", "has model 'PINHOLE', expected 0 to 17"),
        ("UPDATE cameras SET params = 'abc'", "the parameters of the camera of '.*' are 'abc', expected bytes"),
        ("UPDATE cameras SET params = x'00'", "are b'.x00', expected bytes of float64"),
        ("UPDATE keypoints SET rows = 'abc' WHERE image_id = 1", "keypoints of image 1 say 'abc' x 6, expected whole"),
        ("UPDATE descriptors SET cols = 1.5 WHERE image_id = 1", "descriptors of image 1 say 5 x 1.5, expected whole"),
        ("UPDATE keypoints SET rows = -1 WHERE image_id = 1", "keypoints of image 1 say -1 x 6"),
        ("UPDATE keypoints SET data = 'no bytes at all, but as many as there have to be of them'", "keypoints of "),
    ],
)
def test_values_that_no_database_of_colmap_has_are_told(tmp_path, sql, message):
    path = edit(make_3(tmp_path / "map.db"), sql)

    def read_all():
        with DatabaseReader(path) as reader:
            for name in reader.names:
                reader.camera(name), reader.keypoints(name), reader.descriptors(name)

    if message is None:
        return read_all()
    with pytest.raises(ValueError, match=f"map.db: .*{message}"):
        read_all()


def test_bytes_that_are_text_are_told(tmp_path):
    path = edit(make_3(tmp_path / "map.db"), "UPDATE keypoints SET data = ? WHERE image_id = 1", "x" * 120)
    with DatabaseReader(path) as reader, pytest.raises(ValueError, match="map.db: keypoints of 'a b.jpg' are str"):
        reader.keypoints("a b.jpg")


@pytest.mark.parametrize("table", ["images", "two_view_geometries", "xdesc_images"])
def test_a_view_is_not_taken_for_a_table(tmp_path, table):
    path = make_3(tmp_path / "map.db")
    edit(path, f"DROP TABLE IF EXISTS {table}")
    edit(path, f"CREATE VIEW {table} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n")
    with pytest.raises(ValueError, match=f"map.db: '{table}' is a view, expected a table"):
        DatabaseReader(path)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO xdesc_attributes VALUES ('ratios', x'00')", "attribute 'ratios' is b'.x00', expected a text"),
        ("UPDATE xdesc_images SET translated_from = 7", None),
        ("UPDATE xdesc_images SET translated_from = x'07'", "was translated from b'.x07', expected a name"),
        ("UPDATE xdesc_specs SET spec = '[1]'", "the spec of .* expected a descriptor"),
    ],
)
def test_own_tables_of_other_values_are_told(tmp_path, sql, message):
    with DatabaseWriter(make_3(tmp_path / "map.db"), tmp_path / "own.db") as writer:
        writer.set_descriptors("sub/é.jpg", np.ones((3, 9), np.float32), SPECS["plain"], "bits")
    path = edit(tmp_path / "own.db", sql)
    if message is None:
        return DatabaseReader(path).close()
    with pytest.raises(ValueError, match=f"own.db: .*{message}"):
        DatabaseReader(path)


def test_a_database_without_images_says_so(tmp_path):
    path = edit(make_3(tmp_path / "map.db"), "DELETE FROM images")
    with DatabaseReader(path) as reader, pytest.raises(ValueError, match="map.db: holds no photo: it is a COLMAP"):
        reader.require_photos()


def test_root_sift_floats_are_read_as_the_bytes_of_colmap(tmp_path):
    path = make_4(tmp_path / "map.db")
    with DatabaseReader(path) as reader:
        name = reader.names[0]
        n, image_id = len(reader.descriptors(name)), reader.ids[name]
    root = np.sqrt(np.random.default_rng(0).dirichlet(np.full(128, 0.5), n)).astype(np.float32)
    sql = "UPDATE descriptors SET data = ?, cols = 512, type = -1 WHERE image_id = ?"
    edit(path, sql, root.tobytes(), image_id)
    with DatabaseReader(path) as reader:
        found = reader.descriptors(name, get_spec("colmap-sift"))
        assert found.dtype == np.uint8
        np.testing.assert_allclose(found, np.minimum(512 * root, 255), atol=0.6)
        with pytest.raises(ValueError, match=f"map.db: {name!r}: row 0 has norm 1, but 'opencv-sift' .* 'colmap-sift'"):
            reader.descriptors(name, get_spec("opencv-sift"))


@pytest.mark.parametrize("table", ["images", "keypoints", "descriptors"])
def test_rows_that_are_there_twice_for_want_of_a_key_are_refused(tmp_path, table):
    path = make_3(tmp_path / "a.db")
    edit(path, f"CREATE TABLE plain AS SELECT * FROM {table}")
    edit(path, f"DROP TABLE {table}")
    edit(path, f"ALTER TABLE plain RENAME TO {table}")
    edit(path, f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")
    with pytest.raises(ValueError, match="a.db: .*expected"), DatabaseReader(path) as reader:
        reader.blobs(table)


@pytest.mark.parametrize("value", [-1, "x", b"", 2**62, 0.5])
def test_matches_of_a_number_that_cannot_be_are_refused(tmp_path, value):
    path = make_3(tmp_path / "a.db")
    edit(path, "UPDATE matches SET rows = ?", value)
    with DatabaseReader(path) as reader, pytest.raises(ValueError, match="a.db: matches .*expected"):
        stored_pairs(reader)
        read_rows(reader, "matches", "a b.jpg", "sub/é.jpg")


def test_matches_that_are_no_bytes_are_refused(tmp_path):
    path = edit(make_3(tmp_path / "a.db"), "UPDATE matches SET data = -1")
    with DatabaseReader(path) as reader, pytest.raises(ValueError, match="a.db: matches of .*expected"):
        read_rows(reader, "matches", "a b.jpg", "sub/é.jpg")
