"""Databases that mapping starts from: made of features and matches, or copied from one that lacks something."""

import hashlib
import sqlite3

import h5py
import numpy as np
import pytest

from tests.support.exact_scene import CAMERA, NAMES, make_scene
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.camera_models import parse_camera
from xdesc_jax.colmap.cameras import choose_intrinsics, database_cameras
from xdesc_jax.colmap.database import MAX_IMAGES
from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.mapping.build import build_database, copy_database, made_with
from xdesc_jax.mapping.mapper import PairCounts, map_incrementally, verify
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import Extent, MatchWriter

FIRST, REST = NAMES[:2], NAMES[2:]
SETTINGS = MappingSettings(threads=1)
BLANK = "white wall.png"


@pytest.fixture(scope="module")
def scene():
    return make_scene(points=120)


def cameras_of(feature_set, text=CAMERA):
    sizes = {name: feature_set.image_size(name) for name in feature_set.names}
    return choose_intrinsics(sizes, given=parse_camera(text, "test"))


def build(folder, stores, matches, **options):
    with FeatureSet(stores) as feature_set:
        counts = build_database(folder / "database.db", feature_set, cameras_of(feature_set), matches, **options)
    return folder / "database.db", counts


@pytest.fixture(scope="module")
def built(scene, tmp_path_factory):
    """Two photos of bits, four of real numbers, and one without keypoints."""
    folder = tmp_path_factory.mktemp("built")
    stores = [
        scene.write_features(folder / "a.h5", FIRST),
        scene.write_features(folder / "b.h5", REST, descriptor="hardnet-xdesc"),
    ]
    with StoreWriter(folder / "blank.h5", get_spec("sift")) as writer:
        writer.write(BLANK, ImageFeatures(np.zeros((0, 2)), np.zeros((0, 128)), np.zeros(0, bool), (1024, 768)))
    stores.append(folder / "blank.h5")
    matches = scene.write_matches(folder / "matches.h5")
    path, counts = build(folder, stores, matches)
    return path, counts, stores


def test_counts_are_returned_and_kept(built):
    path, counts, _ = built
    assert made_with(path) == (counts, "")
    assert counts == {
        "photos": 7, "cameras": 7, "photos_without_keypoints": 1, "pairs": 15, "pairs_without_matches": 0,
        "matches": 15 * 120, "self_pairs": 0, "duplicate_pairs": 0, "pairs_of_other_photos": 0,
    }  # fmt: skip


def test_only_the_database_appears(built):
    assert sorted(p.name for p in built[0].parent.iterdir()) == [
        "a.h5",
        "b.h5",
        "blank.h5",
        "database.db",
        "matches.h5",
    ]


def test_keypoints_move_to_colmaps_origin_once(scene, built):
    with pycolmap.Database.open(built[0]) as db:
        for image in db.read_all_images():
            if image.name != BLANK:
                found = np.asarray(db.read_keypoints(image.image_id))
                assert found.shape == (len(scene.xy[image.name]), 6)
                np.testing.assert_allclose(found[:, :2], scene.xy[image.name], atol=2e-4)


def test_descriptors_come_back_as_they_were_with_their_spec(built):
    path, _, stores = built
    with FeatureSet([path]) as read, FeatureSet(stores) as written:
        assert read.names == written.names
        for name in read.names:
            assert read.held(name) == written.held(name)
            np.testing.assert_array_equal(read.read(name).descriptors, written.read(name).descriptors)
            np.testing.assert_allclose(read.keypoints(name), written.keypoints(name), atol=2e-4)


def test_colmaps_own_sift_alone_is_written_as_sift(scene, tmp_path):
    """A SIFT of another kind, and bits, are bytes that COLMAP shall not compare."""
    kinds = ("colmap-sift", "sift", "brief")
    stores = [scene.write_features(tmp_path / f"{k}.h5", NAMES[i : i + 1], descriptor=k) for i, k in enumerate(kinds)]
    with MatchWriter(tmp_path / "matches.h5") as writer:
        writer.write(NAMES[0], NAMES[1], len(scene.xy[NAMES[0]]), scene.matches(*NAMES[:2]), np.ones(120, np.float32))
    path, _ = build(tmp_path, stores, tmp_path / "matches.h5")
    with pycolmap.Database.open(path) as db:
        ids = {image.name: image.image_id for image in db.read_all_images()}
        found = [db.read_descriptors(ids[name]).type for name in NAMES[:3]]
    types = pycolmap.FeatureExtractorType
    assert found == [types.SIFT, types.UNDEFINED, types.UNDEFINED]


def test_every_photo_has_a_frame_and_every_camera_a_rig(built):
    with pycolmap.Database.open(built[0]) as db:
        assert (db.num_images(), db.num_frames(), db.num_rigs(), db.num_cameras()) == (7, 7, 7, 7)
        assert all(image.has_frame_id() for image in db.read_all_images())


def test_photos_of_a_folder_share_a_camera_on_demand(scene, built, tmp_path):
    path, counts = build(tmp_path, built[2], built[0].with_name("matches.h5"), per="folder")
    assert counts["cameras"] == 3  # '.', '日本' and 'sub'
    with pycolmap.Database.open(path) as db:
        assert (db.num_cameras(), db.num_rigs(), db.num_frames()) == (3, 3, 7)
    verify(path, SETTINGS)
    assert len(map_incrementally(path, tmp_path / "models", SETTINGS)) == 1


def test_a_photo_without_keypoints_passes_and_the_others_are_mapped(built, tmp_path):
    copy = tmp_path / "copy.db"
    copy.write_bytes(built[0].read_bytes())
    verify(copy, SETTINGS)
    assert read_model(map_incrementally(copy, tmp_path / "m", SETTINGS)[0]).names == tuple(sorted(NAMES))


# --- Matches -------------------------------------------------------------------------------------------------


def hloc_matches(path, groups):
    """A file as hloc writes it: groups of names with '/' as '-', no attributes."""
    with h5py.File(path, "w") as file:
        for (a, b), matches0 in groups.items():
            file[f"{a}/{b}/matches0"] = np.asarray(matches0, np.int16)
    return path


def test_matches_are_uint32_in_the_order_of_ids_once_and_never_with_itself(scene, tmp_path):
    store = scene.write_features(tmp_path / "a.h5")
    n = len(scene.xy["z.jpg"])
    some = np.full(n, -1)
    some[[4, 7]] = [9, 2]
    matches = hloc_matches(
        tmp_path / "m.h5",
        {
            ("z.jpg", "日本-1.jpg"): some,
            ("日本-1.jpg", "z.jpg"): some,
            ("c.jpg", "c.jpg"): some,
            ("c.jpg", "d.jpg"): some,
        },
    )
    path, counts = build(tmp_path, [store], matches)
    assert (counts["pairs"], counts["matches"], counts["self_pairs"], counts["duplicate_pairs"]) == (2, 4, 1, 1)
    with sqlite3.connect(path) as connection:
        ids = dict(connection.execute("SELECT name, image_id FROM images"))
        found = {row[0]: row[1:] for row in connection.execute("SELECT pair_id, rows, cols, data FROM matches")}
    connection.close()
    c, d, z, far = (ids[name] for name in ("c.jpg", "d.jpg", "z.jpg", "日本/1.jpg"))
    assert c < d and z < far
    as_written = (2, 2, np.array([[4, 9], [7, 2]], np.uint32).tobytes())
    assert found == {MAX_IMAGES * c + d: as_written, MAX_IMAGES * z + far: as_written}


def test_reversed_pair_of_our_file_keeps_its_rows(scene, tmp_path):
    store = scene.write_features(tmp_path / "a.h5")
    with MatchWriter(tmp_path / "m.h5") as writer:
        writer.write("z.jpg", "a b.jpg", len(scene.xy["z.jpg"]), np.array([[5, 3]]), np.ones(1, np.float32))
    path, _ = build(tmp_path, [store], tmp_path / "m.h5")
    with pycolmap.Database.open(path) as db:
        ids = {image.name: image.image_id for image in db.read_all_images()}
        assert np.asarray(db.read_matches(ids["a b.jpg"], ids["z.jpg"])).tolist() == [[3, 5]]


def test_row_that_a_photo_has_not_is_named_and_nothing_is_left(scene, tmp_path):
    store = scene.write_features(tmp_path / "a.h5")
    rows = len(scene.xy["d.jpg"])
    matches = hloc_matches(tmp_path / "m.h5", {("c.jpg", "d.jpg"): [rows, *[-1] * (len(scene.xy["c.jpg"]) - 1)]})
    message = f"m.h5: matches of 'c.jpg' and 'd.jpg' use row {rows} of 'd.jpg', which has {rows} keypoints"
    with pytest.raises(ValueError, match=message):
        build(tmp_path, [store], matches)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "m.h5"]


@pytest.mark.parametrize("count", [1, 129, 131])
def test_matches_of_another_number_of_keypoints_are_refused_with_both(scene, tmp_path, count):
    store = scene.write_features(tmp_path / "a.h5")
    assert len(scene.xy["c.jpg"]) == 130
    matches = hloc_matches(tmp_path / "m.h5", {("c.jpg", "d.jpg"): np.full(count, -1)})
    with pytest.raises(
        ValueError, match=f"m.h5: .* are of {count} keypoints of 'c.jpg', which has 130: give the features"
    ):
        build(tmp_path, [store], matches)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "m.h5"]


@pytest.mark.parametrize("order", [("c.jpg", "d.jpg"), ("d.jpg", "c.jpg")])
def test_matches_of_other_keypoints_are_refused_although_they_are_as_many(scene, tmp_path, order):
    store = scene.write_features(tmp_path / "a.h5")

    def file(extents):
        with MatchWriter(tmp_path / "m.h5") as writer:
            scores = np.ones(1, np.float32)
            writer.write(*order, extents[0].rows, np.array([[0, 0]]), scores, extents)
        return tmp_path / "m.h5"

    true = [Extent.of(scene.xy[name] - 0.5) for name in order]
    _, counts = build(tmp_path, [store], file(true))
    assert counts["matches"] == 1
    turned = Extent.of(scene.xy[order[1]][::-1] - 0.5)  # the same positions in another order
    with pytest.raises(ValueError, match=f"m.h5: .* are of 130 other keypoints of {order[1]!r}"):
        build(tmp_path, [store], file((true[0], turned)))
    with pytest.raises(ValueError, match=f"are of 131 keypoints of {order[1]!r}, which has 130"):
        build(tmp_path, [store], file((true[0], Extent(131, true[1].place))))


@pytest.mark.parametrize("layout", ["rows", "joined", "joined rows", "nested rows"])
def test_matches_of_other_programs_are_read(scene, tmp_path, layout):
    store = scene.write_features(tmp_path / "a.h5")
    a, b = "日本/1.jpg", "sub/e\u0301.jpg"
    rows, matches0 = np.array([[3, 5], [8, 1]]), np.full(len(scene.xy[a]), -1)
    matches0[rows[:, 0]] = rows[:, 1]
    flat = (a.replace("/", "-"), b.replace("/", "-"))
    with h5py.File(tmp_path / "m.h5", "w") as file:
        if layout == "joined":
            file[f"{'_'.join(flat)}/matches0"] = matches0
        else:
            file[{"rows": "/".join(flat), "joined rows": "_".join(flat), "nested rows": f"{a}/{b}"}[layout]] = rows
    path, counts = build(tmp_path, [store], tmp_path / "m.h5")
    assert (counts["pairs"], counts["matches"]) == (1, 2)
    with pycolmap.Database.open(path) as db:
        ids = {image.name: image.image_id for image in db.read_all_images()}
        assert sorted(map(tuple, np.asarray(db.read_matches(ids[a], ids[b])).tolist())) == [(3, 5), (8, 1)]


def test_scores_are_no_reason_to_refuse_matches(scene, tmp_path):
    store = scene.write_features(tmp_path / "a.h5")
    matches = hloc_matches(tmp_path / "m.h5", {("c.jpg", "d.jpg"): [4, *[-1] * 129]})
    with h5py.File(matches, "a") as file:
        file["c.jpg/d.jpg/matching_scores0"] = np.ones(7, np.float32)
    assert build(tmp_path, [store], matches)[1]["matches"] == 1


def test_matches_of_unknown_photos_are_named_before_any_work(scene, tmp_path):
    store = scene.write_features(tmp_path / "a.h5")
    matches = hloc_matches(tmp_path / "m.h5", {("c.jpg", "images-d.jpg"): [0], ("C.jpg", "d.jpg"): [0]})
    with pytest.raises(ValueError, match=r"match file .*m.h5 names 2 photos that are not in .*'C.jpg', 'images-d.jpg'"):
        build(tmp_path, [store], matches)


def test_pairs_of_photos_that_are_not_taken_are_left_out(scene, built, tmp_path):
    path, counts = build(tmp_path, built[2], built[0].with_name("matches.h5"), names=["z.jpg", "c.jpg", "d.jpg"])
    assert (counts["photos"], counts["pairs"], counts["pairs_of_other_photos"]) == (3, 3, 12)
    assert list(database_cameras(path)) == ["c.jpg", "d.jpg", "z.jpg"]


def test_photos_without_camera_are_named(scene, built, tmp_path):
    with FeatureSet(built[2]) as feature_set:
        cameras = cameras_of(feature_set)
        del cameras["z.jpg"]
        with pytest.raises(ValueError, match=r"1 photos have no camera, first \['z.jpg'\]"):
            build_database(tmp_path / "d.db", feature_set, cameras, built[0].with_name("matches.h5"))


def test_keypoint_that_cannot_be_is_named_with_its_photo(scene, tmp_path):
    with StoreWriter(tmp_path / "a.h5", DescriptorSpec("own", 4)) as writer:
        rows = np.full((2, 4), 0.5, np.float32)
        bad = ImageFeatures(np.ones((2, 2)), rows, np.ones(2, bool), (1024, 768), np.array([1, 0]), np.zeros(2))
        writer.write("bad.jpg", bad)
    matches = hloc_matches(tmp_path / "m.h5", {})
    with pytest.raises(ValueError, match="a.h5: 'bad.jpg': scales of keypoint 1 is 0.0"):
        build(tmp_path, [tmp_path / "a.h5"], matches)


# --- Copies --------------------------------------------------------------------------------------------------


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


def copy(source, out, text=None, **options):
    own = database_cameras(source)
    given = parse_camera(text, "test") if text else None
    chosen = choose_intrinsics({n: (c.width, c.height) for n, c in own.items()}, own=own, given=given)
    return copy_database(source, out, chosen, **options)


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


def test_descriptors_of_a_copied_database_stay(built, tmp_path):
    copy(built[0], tmp_path / "copy.db")
    with FeatureSet([tmp_path / "copy.db"]) as copied, FeatureStore(built[2][0]) as store:
        np.testing.assert_array_equal(copied.read("a b.jpg").descriptors, store.read("a b.jpg").descriptors)


@pytest.mark.parametrize(("database", "told"), [("rigs", "6 of 6 frames"), ("source", "5 of 5 photos")])
def test_progress_of_mapping_counts_to_its_end_with_rigs_as_well(database, told, tmp_path, caplog, request):
    with caplog.at_level("INFO", "xdesc_jax"):
        map_incrementally(request.getfixturevalue(database), tmp_path / "models", SETTINGS)
    assert f"mapping: {told}" in caplog.text
