"""Databases that mapping starts from, made of features and matches."""

import sqlite3

import h5py
import numpy as np
import pytest

from tests.support.copied_database import copy
from tests.support.exact_scene import CAMERA, NAMES, make_scene
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.camera_models import parse_camera
from xdesc_jax.colmap.cameras import choose_intrinsics, database_cameras
from xdesc_jax.colmap.database import MAX_IMAGES
from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.mapping.build import build_database, made_with
from xdesc_jax.mapping.mapper import map_incrementally, verify
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
    with pytest.raises(ValueError, match=r"match file .*m.h5 names 2 photos not in .*'C.jpg', 'images-d.jpg'"):
        build(tmp_path, [store], matches)


def test_pairs_of_photos_that_are_not_taken_are_left_out(scene, built, tmp_path):
    path, counts = build(tmp_path, built[2], built[0].with_name("matches.h5"), names=["z.jpg", "c.jpg", "d.jpg"])
    assert (counts["photos"], counts["pairs"], counts["pairs_of_other_photos"]) == (3, 3, 12)
    assert list(database_cameras(path)) == ["c.jpg", "d.jpg", "z.jpg"]


def test_photos_without_camera_are_named(scene, built, tmp_path):
    with FeatureSet(built[2]) as feature_set:
        cameras = cameras_of(feature_set)
        del cameras["z.jpg"]
        with pytest.raises(ValueError, match=r"1 photo has no camera, first \['z.jpg'\]"):
            build_database(tmp_path / "d.db", feature_set, cameras, built[0].with_name("matches.h5"))


def test_keypoint_that_cannot_be_is_named_with_its_photo(scene, tmp_path):
    with StoreWriter(tmp_path / "a.h5", DescriptorSpec("own", 4)) as writer:
        rows = np.full((2, 4), 0.5, np.float32)
        bad = ImageFeatures(np.ones((2, 2)), rows, np.ones(2, bool), (1024, 768), np.array([1, 0]), np.zeros(2))
        writer.write("bad.jpg", bad)
    matches = hloc_matches(tmp_path / "m.h5", {})
    with pytest.raises(ValueError, match="a.h5: 'bad.jpg': scales of keypoint 1 is 0.0"):
        build(tmp_path, [tmp_path / "a.h5"], matches)


def test_descriptors_of_a_copied_database_stay(built, tmp_path):
    copy(built[0], tmp_path / "copy.db")
    with FeatureSet([tmp_path / "copy.db"]) as copied, FeatureStore(built[2][0]) as store:
        np.testing.assert_array_equal(copied.read("a b.jpg").descriptors, store.read("a b.jpg").descriptors)
