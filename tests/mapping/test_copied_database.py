"""Databases that mapping starts from, copied from one that lacks something."""

import hashlib
import sqlite3

import numpy as np
import pytest

from tests.support.copied_database import copy
from tests.support.exact_scene import CAMERA
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.cameras import database_cameras
from xdesc_jax.colmap.database import MAX_IMAGES
from xdesc_jax.mapping.mapper import PairCounts, map_incrementally, verify
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import Extent, MatchWriter

SETTINGS = MappingSettings(threads=1)


@pytest.fixture
def source(tmp_path):
    """A synthetic database of COLMAP with matches and verified pairs, one camera for all photos."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_frames_per_rig, options.num_points3D = 1, 5, 120
    path = tmp_path / "source.db"
    with pycolmap.Database.open(path) as db:
        pycolmap.set_random_seed(3)
        pycolmap.synthesize_dataset(options, db)
    return path


def change(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def mapped_photos(database, folder):
    verify(database, SETTINGS)
    return len(read_model(map_incrementally(database, folder, SETTINGS)[0]).names)


def test_source_is_not_changed_and_the_copy_is_mapped(source, tmp_path):
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    counts = copy(source, tmp_path / "copy.db")
    assert counts == {
        "photos": 5, "cameras": 1, "photos_given_frames": 0, "self_pairs": 0, "pairs_verified_again": 0,
    }  # fmt: skip
    assert mapped_photos(tmp_path / "copy.db", tmp_path / "m") == 5
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.db", "m", "source.db"]


def test_photos_without_frame_get_one(source, tmp_path):
    change(source, "DELETE FROM frame_data WHERE data_id = 2", "DELETE FROM frames WHERE frame_id = 2")
    assert copy(source, tmp_path / "copy.db")["photos_given_frames"] == 1
    assert mapped_photos(tmp_path / "copy.db", tmp_path / "m") == 5


def test_frame_that_lost_its_photo_is_no_obstacle(source, tmp_path):
    change(source, "DELETE FROM frame_data WHERE data_id = 2")
    assert copy(source, tmp_path / "copy.db")["photos_given_frames"] == 1
    assert mapped_photos(tmp_path / "copy.db", tmp_path / "m") == 5


def test_database_of_schema_3_is_taken(source, tmp_path):
    tables = ("frame_data", "frames", "rig_sensors", "rigs", "pose_priors")
    change(source, *(f"DROP TABLE {table}" for table in tables), "PRAGMA user_version = 3900",
           "ALTER TABLE descriptors DROP COLUMN type")  # fmt: skip
    assert copy(source, tmp_path / "copy.db")["photos"] == 5
    assert mapped_photos(tmp_path / "copy.db", tmp_path / "m") == 5


EMPTY = "UPDATE two_view_geometries SET rows = 0, cols = 0, data = x'', config = 1 WHERE pair_id % 2"


def test_pairs_whose_verification_failed_are_verified_again_and_counted(source, tmp_path):
    change(source, EMPTY)
    with sqlite3.connect(source) as connection:
        [(failed,)] = connection.execute("SELECT count(*) FROM two_view_geometries WHERE rows = 0")
    connection.close()
    assert failed > 2
    counts = copy(source, tmp_path / "copy.db")
    assert counts["pairs_verified_again"] == failed
    assert verify(tmp_path / "copy.db", SETTINGS) == PairCounts(10, counts_of(source)[0], 10)


def test_failed_verifications_in_a_database_itself_stay_failed(source):
    change(source, EMPTY)
    _, verified = counts_of(source)
    assert verify(source, SETTINGS).verified == verified < 10


def counts_of(path):
    """Most matches of a pair, and verified pairs."""
    with sqlite3.connect(path) as connection:
        [(most,)] = connection.execute("SELECT max(rows) FROM matches")
        [(verified,)] = connection.execute("SELECT count(*) FROM two_view_geometries WHERE rows > 0")
    connection.close()
    return most, verified


OLD = (
    "CREATE TABLE inlier_matches (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, "
    "data BLOB, config INTEGER NOT NULL)",
    "INSERT INTO inlier_matches SELECT pair_id, rows, cols, data, config FROM two_view_geometries",
    "DROP TABLE two_view_geometries",
)


def test_verified_pairs_of_the_oldest_schema_are_taken(source, tmp_path):
    change(source, *OLD, "PRAGMA user_version = 3200")
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    copy(source, tmp_path / "copy.db")
    with pycolmap.Database.open(tmp_path / "copy.db") as db:
        assert db.num_verified_image_pairs() == 10
    assert mapped_photos(tmp_path / "copy.db", tmp_path / "m") == 5
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before


def test_a_database_without_a_table_of_verified_pairs_is_verified(source, tmp_path):
    change(source, "DROP TABLE two_view_geometries")
    copy(source, tmp_path / "copy.db")
    assert mapped_photos(tmp_path / "copy.db", tmp_path / "m") == 5


def test_triggers_and_views_do_not_reach_the_copy(source, tmp_path, capsys, caplog):
    change(source, "CREATE TRIGGER t AFTER INSERT ON frames BEGIN DELETE FROM keypoints; END",
           "CREATE TRIGGER u AFTER DELETE ON two_view_geometries BEGIN DELETE FROM descriptors; END",
           'CREATE VIEW "odd "" name" AS SELECT * FROM images')  # fmt: skip
    change(source, "DELETE FROM frame_data WHERE data_id = 2", "DELETE FROM frames WHERE frame_id = 2")
    copy(source, tmp_path / "copy.db", CAMERA)
    with sqlite3.connect(tmp_path / "copy.db") as connection:
        made = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('trigger', 'view')").fetchall()
        assert made == [] and connection.execute("SELECT count(*) FROM keypoints").fetchall() == [(5,)]
    connection.close()
    assert "3 triggers and views are left out of the copy, first trigger 't'" in " ".join(
        (capsys.readouterr().err + caplog.text).split()
    )


@pytest.fixture
def rigs(tmp_path):
    """A database of 2 rigs of 2 cameras with 3 frames each."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = 2, 2, 3, 60
    with pycolmap.Database.open(tmp_path / "rigs.db") as db:
        pycolmap.set_random_seed(3)
        pycolmap.synthesize_dataset(options, db)
    return tmp_path / "rigs.db"


def test_rigs_and_shared_cameras_stay_where_matches_are_replaced(rigs, tmp_path):
    names = list(database_cameras(rigs))
    with FeatureSet([rigs]) as features, MatchWriter(tmp_path / "m.h5") as writer:
        extents = tuple(Extent.of(features.keypoints(name)) for name in names[:2])
        rows = np.array([[3, 1], [5, 0]])
        writer.write(names[1], names[0], extents[1].rows, rows, np.ones(2, np.float32), extents[::-1])
    counts = copy(rigs, tmp_path / "copy.db", matches=tmp_path / "m.h5")
    assert (counts["matches"], counts["cameras"]) == (2, 4)
    with pycolmap.Database.open(tmp_path / "copy.db") as db:
        assert (db.num_rigs(), db.num_cameras(), db.num_frames(), db.num_verified_image_pairs()) == (2, 4, 6, 0)
        ids = [next(i.image_id for i in db.read_all_images() if i.name == name) for name in names[:2]]
        assert np.asarray(db.read_matches(*ids)).tolist() == [[1, 3], [0, 5]]
        assert db.num_matched_image_pairs() == 1


def test_matches_that_are_not_verified_are_verified(source, tmp_path):
    change(source, "DELETE FROM two_view_geometries")
    copy(source, tmp_path / "copy.db")
    assert verify(tmp_path / "copy.db", SETTINGS).verified == 10


def test_other_cameras_replace_those_of_the_database_and_its_verified_pairs(source, tmp_path, caplog):
    copy(source, tmp_path / "copy.db", CAMERA.replace("1280", "1290"))
    assert {c.params[0] for c in database_cameras(tmp_path / "copy.db").values()} == {1290}
    assert "verified again" in caplog.text
    with sqlite3.connect(tmp_path / "copy.db") as connection:
        assert connection.execute("SELECT count(*) FROM two_view_geometries").fetchone() == (0,)
    connection.close()


def test_pair_of_a_photo_with_itself_is_left_out(source, tmp_path):
    change(source, f"UPDATE matches SET pair_id = {MAX_IMAGES * 2 + 2} WHERE pair_id = {MAX_IMAGES * 2 + 3}")
    assert copy(source, tmp_path / "copy.db")["self_pairs"] == 1
    assert mapped_photos(tmp_path / "copy.db", tmp_path / "m") == 5


@pytest.mark.parametrize("table", ["matches", "two_view_geometries"])
def test_damaged_matches_are_named(source, tmp_path, table):
    change(
        source, f"UPDATE {table} SET data = CAST(zeroblob(length(data) * 2) AS BLOB) WHERE pair_id = {MAX_IMAGES + 2}"
    )
    with pytest.raises(ValueError, match=rf"{table} of .* have 1920 bytes, expected 960 for 120 pairs of uint32"):
        copy(source, tmp_path / "copy.db")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source.db"]


def test_row_that_a_photo_has_not_is_named_in_a_database(source, tmp_path):
    change(source, "UPDATE keypoints SET rows = 100, data = substr(data, 1, 100 * cols * 4) WHERE image_id = 2")
    with pytest.raises(ValueError, match=r"matches of .* use row \d+ of .*, which has 100 keypoints"):
        copy(source, tmp_path / "copy.db")


def test_rigs_are_dissolved_on_demand(tmp_path):
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig = 1, 2, 3
    with pycolmap.Database.open(tmp_path / "rig.db") as db:
        pycolmap.synthesize_dataset(options, db)
    for own_frames, frames, rigs in ((False, 3, 1), (True, 6, 2)):
        copy(tmp_path / "rig.db", tmp_path / "copy.db", own_frames=own_frames)
        with pycolmap.Database.open(tmp_path / "copy.db") as db:
            assert (db.num_frames(), db.num_rigs()) == (frames, rigs)


@pytest.mark.parametrize(("database", "told"), [("rigs", "6 of 6 frames"), ("source", "5 of 5 photos")])
def test_progress_of_mapping_counts_to_its_end_with_rigs_as_well(database, told, tmp_path, caplog, request):
    with caplog.at_level("INFO", "xdesc_jax"):
        map_incrementally(request.getfixturevalue(database), tmp_path / "models", SETTINGS)
    assert f"mapping: {told}" in caplog.text
