"""Writing into a copy of a database."""

import contextlib
import sqlite3

import numpy as np
import pytest

from tests.support.databases import SPECS, edit, make_3, make_4, sift_rows, state, tables
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.database_writer import DatabaseWriter

ROWS = np.arange(45, dtype=np.float32).reshape(5, 9)


@pytest.fixture
def database(tmp_path):
    return make_3(tmp_path / "map.db")


def test_replaced_rows_are_read_and_the_others_stay(database, tmp_path):
    with DatabaseWriter(database, tmp_path / "out.db") as writer:
        writer.set_descriptors("a b.jpg", ROWS, SPECS["plain"], "colmap-sift")
    with DatabaseReader(database) as before, DatabaseReader(tmp_path / "out.db") as after:
        np.testing.assert_array_equal(after.descriptors("a b.jpg"), ROWS)
        assert after.translated_from("a b.jpg") == "colmap-sift"
        np.testing.assert_array_equal(after.descriptors("sub/é.jpg"), before.descriptors("sub/é.jpg"))
        assert after.spec("sub/é.jpg").name == "colmap-sift"


@pytest.mark.parametrize("make", [make_3, make_4])
def test_rows_have_the_type_by_which_colmap_tells_sift(tmp_path, make):
    """COLMAP 3 keeps no types; what it wrote is SIFT."""
    with DatabaseWriter(make(tmp_path / "map.db"), tmp_path / "out.db") as writer:
        first, second, kept = sorted(writer.ids, key=writer.ids.get)[:3]
        writer.set_descriptors(first, sift_rows(5), SPECS["colmap-sift"], "plain")
        writer.set_descriptors(second, np.full((3, 3), 7, np.uint8), SPECS["bits"], None)
    types = pycolmap.FeatureExtractorType
    with pycolmap.Database.open(tmp_path / "out.db") as db:
        found = [db.read_descriptors(writer.ids[name]) for name in (first, second, kept)]
    assert [rows.type for rows in found] == [types.SIFT, types.UNDEFINED, types.SIFT]
    np.testing.assert_array_equal(found[0].data, sift_rows(5))


def test_no_rows_are_written_as_no_rows(database, tmp_path):
    with DatabaseWriter(database, tmp_path / "out.db") as writer:
        writer.set_descriptors("blank.jpg", np.zeros((0, 9), np.float32), SPECS["plain"], None)
    with DatabaseReader(tmp_path / "out.db") as reader:
        assert reader.spec("blank.jpg") == SPECS["plain"]
        assert reader.descriptors("blank.jpg").shape == (0, 9)


def test_rows_of_another_width_are_refused(database, tmp_path):
    with pytest.raises(ValueError, match=r"rows of 'a b.jpg' have shape \(5, 8\), expected \[N, 9\] of 'plain'"):
        with DatabaseWriter(database, tmp_path / "out.db") as writer:
            writer.set_descriptors("a b.jpg", ROWS[:, :8], SPECS["plain"], None)


def test_an_error_leaves_nothing_and_the_old_result(database, tmp_path):
    (tmp_path / "out.db").write_bytes(b"old")
    before = state(tmp_path)
    with pytest.raises(RuntimeError):
        with DatabaseWriter(database, tmp_path / "out.db") as writer:
            writer.clear_matches()
            raise RuntimeError
    assert state(tmp_path) == before


def test_colmap_reads_matches_in_either_order(tmp_path):
    source = make_4(tmp_path / "map.db")
    with DatabaseWriter(source, tmp_path / "out.db") as writer:
        names = sorted(writer.ids, key=writer.ids.get)
        writer.clear_matches()
        writer.write_matches(names[2], names[0], np.array([[7, 1], [8, 2]]))
        writer.write_matches(names[0], names[1], np.zeros((0, 2), int))
    with pycolmap.Database.open(tmp_path / "out.db") as db:
        assert db.num_matched_image_pairs() == 2 and db.num_verified_image_pairs() == 0
        assert db.read_matches(writer.ids[names[0]], writer.ids[names[2]]).tolist() == [[1, 7], [2, 8]]
        assert db.read_matches(writer.ids[names[2]], writer.ids[names[0]]).tolist() == [[7, 1], [8, 2]]


def test_matches_are_stored_as_colmap_reads_them(database, tmp_path):
    with DatabaseWriter(database, tmp_path / "out.db") as writer:
        writer.clear_matches()
        writer.write_matches("a b.jpg", "sub/é.jpg", np.array([[4, 1]], np.int64))
    [(pair_id, rows, columns, data)] = tables(tmp_path / "out.db")["matches"]
    assert (pair_id, rows, columns) == (2147483647 + 3, 1, 2)
    assert np.frombuffer(data, np.uint32).tolist() == [4, 1]


def test_a_photo_is_not_matched_with_itself(database, tmp_path):
    with pytest.raises(ValueError, match="'a b.jpg' is matched with itself"):
        with DatabaseWriter(database, tmp_path / "out.db") as writer:
            writer.write_matches("a b.jpg", "a b.jpg", np.array([[0, 1]]))


def test_a_table_of_descriptors_is_made_where_there_is_none(database, tmp_path):
    edit(database, "DROP TABLE descriptors")
    with DatabaseWriter(database, tmp_path / "out.db") as writer:
        writer.set_descriptors("a b.jpg", ROWS, SPECS["plain"], None)
    with DatabaseReader(tmp_path / "out.db") as reader:
        np.testing.assert_array_equal(reader.descriptors("a b.jpg"), ROWS)


def test_types_come_before_the_rows_so_that_they_are_read_alone(database, tmp_path):
    with DatabaseWriter(database, tmp_path / "out.db"):
        pass
    with DatabaseReader(tmp_path / "out.db") as reader:
        columns = reader.columns("descriptors")
    assert columns.index("type") < columns.index("data")


def test_what_failed_goes_on_from_its_last_checkpoint(database, tmp_path):
    with pytest.raises(OSError, match="unplugged"):
        with DatabaseWriter(database, tmp_path / "out.db", resume="key") as writer:
            writer.set_descriptors("a b.jpg", ROWS, SPECS["plain"], None)
            writer.checkpoint()
            writer.set_descriptors("sub/é.jpg", ROWS[:3], SPECS["plain"], None)
            raise OSError("unplugged")
    assert not (tmp_path / "out.db").exists()
    with DatabaseWriter(database, tmp_path / "out.db", resume="key") as writer:
        assert writer.resumed
        assert (writer.held("a b.jpg"), writer.held("sub/é.jpg")) == ("plain", None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["map.db", "out.db"]


@pytest.mark.parametrize("other", ["another key", "another boot"])
def test_a_partial_file_of_another_key_or_boot_is_made_anew(database, tmp_path, monkeypatch, other):
    with pytest.raises(OSError, match="unplugged"):
        with DatabaseWriter(database, tmp_path / "out.db", resume="key") as writer:
            writer.set_descriptors("a b.jpg", ROWS, SPECS["plain"], None)
            writer.checkpoint()
            raise OSError("unplugged")
    if other == "another boot":
        monkeypatch.setattr("xdesc_jax.colmap.database_writer._boot", lambda: "later")
    key = "other" if other == "another key" else "key"
    with DatabaseWriter(database, tmp_path / "out.db", resume=key) as writer:
        assert not writer.resumed and writer.held("a b.jpg") is None
    with DatabaseReader(tmp_path / "out.db") as reader:
        assert reader.spec("a b.jpg").name == "colmap-sift"


def test_a_database_damaged_inside_is_named_and_leaves_nothing(tmp_path):
    path = make_3(tmp_path / "a.db")
    with contextlib.closing(sqlite3.connect(path)) as db:
        [(page,)] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'descriptors'")
        [(size,)] = db.execute("PRAGMA page_size")
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(data)
    with pytest.raises(ValueError, match="a.db: not a readable COLMAP database"):
        with DatabaseWriter(path, tmp_path / "out.db", resume="a"):
            pytest.fail("it was copied")
    assert [p.name for p in tmp_path.iterdir()] == ["a.db"]


def test_a_partial_file_is_named_only_where_there_is_one(database):
    with pytest.raises(OSError, match=r"/proc/z.db: cannot be written \([^;]*\)$"):
        with DatabaseWriter(database, "/proc/z.db", resume="key"):
            pass
