"""Feature files: round trips, and what hloc sees in them."""

import h5py
import numpy as np
import pytest

from tests.support.stored_features import BITS, features, write
from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter


@pytest.mark.parametrize("spec", [BITS, get_spec("colmap-sift"), get_spec("opencv-sift"), get_spec("tfeat")])
def test_features_round_trip(tmp_path, spec):
    path = write(tmp_path / "a.h5", {"x/b c.jpg": features(5, spec), "empty.jpg": features(0, spec)}, spec)
    with FeatureStore(path) as store:
        assert (store.spec, store.names) == (spec, ["empty.jpg", "x/b c.jpg"])
        for name, n in (("x/b c.jpg", 5), ("empty.jpg", 0)):
            found, expected = store.read(name), features(n, spec)
            assert found.image_size == (121, 97) and store.count(name) == n
            assert found.descriptors.dtype == spec.stored_dtype
            for field in ("keypoints", "descriptors", "valid", "scales", "oris"):
                np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))


def test_scores_round_trip_and_are_no_frame(tmp_path):
    scores = np.array([0.5, -3, 40], np.float32)
    path = write(tmp_path / "a.h5", {"a": features(scores=scores, scales=None, oris=None)})
    with FeatureStore(path) as store:
        np.testing.assert_array_equal(store.read("a").scores, scores)
        assert store.frames("a") == {} and store.read("a").scales is None


@pytest.mark.parametrize(("name", "width"), [("superpoint", 256), ("r2d2", 128), ("disk", 128), ("aliked-t16", 64)])
def test_files_of_hloc_are_read_as_the_descriptor_they_are_said_to_hold(tmp_path, name, width):
    rng = np.random.default_rng(width)
    rows = rng.standard_normal((5, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    with h5py.File(tmp_path / "feats.h5", "w") as file:  # as hloc writes: float16, one column a keypoint
        group = file.create_group("db/1.jpg")
        group["keypoints"] = rng.uniform(0, 99, (5, 2)).astype(np.float16)
        group["descriptors"] = rows.T.astype(np.float16)
        group["scores"] = np.linspace(0, 1, 5).astype(np.float16)
        group["image_size"] = np.array([640, 480])
    with FeatureStore(tmp_path / "feats.h5", get_spec(name)) as store:
        found = store.read("db/1.jpg")
    np.testing.assert_allclose(found.descriptors, rows, atol=1e-3)
    np.testing.assert_allclose(found.scores, [0, 0.25, 0.5, 0.75, 1], atol=1e-3)
    assert found.valid.all() and found.scales is None and found.image_size == (640, 480)


def test_affine_shapes_round_trip(tmp_path):
    shapes = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    path = write(tmp_path / "a.h5", {"a": features(affine=shapes, scales=None, oris=None)})
    with FeatureStore(path) as store:
        found = store.read("a")
    np.testing.assert_array_equal(found.affine, shapes)
    assert found.scales is None and found.oris is None


def test_layout_is_hlocs(tmp_path):
    path = write(tmp_path / "a.h5", {"x/b.jpg": features(4)})
    with h5py.File(path) as file:
        group = file["x/b.jpg"]
        assert group["keypoints"].shape == (4, 2) and group["keypoints"].dtype == np.float32
        assert group["descriptors"].shape == (2, 4)  # [bytes, N]
        assert group["image_size"][:].tolist() == [121, 97]
        assert (file.attrs["spec"], file.attrs["origin"], file.attrs["bits"]) == ("bits13", "center", 13)


def test_rows_that_are_not_valid_are_zero(tmp_path):
    path = write(tmp_path / "a.h5", {"a": features(3, valid=np.array([True, False, True]))})
    with FeatureStore(path) as store:
        assert store.read("a").descriptors.any(axis=1).tolist() == [True, False, True]


def test_of_valid_rows_alone_all_arrays_are_taken():
    whole = ImageFeatures(
        np.arange(8.0).reshape(4, 2), np.arange(12.0).reshape(4, 3), np.array([True, False, False, True]), (7, 5),
        scales=np.arange(4.0), scores=np.arange(4.0) + 9,
    )  # fmt: skip
    found = whole.only_valid()
    assert found.keypoints.tolist() == [[0, 1], [6, 7]] and found.descriptors.tolist() == [[0, 1, 2], [9, 10, 11]]
    assert found.valid.tolist() == [True, True] and found.image_size == (7, 5)
    assert found.scales.tolist() == [0, 3] and found.scores.tolist() == [9, 12] and found.oris is None


def test_names_that_differ_by_case_are_two_photos(tmp_path):
    path = write(tmp_path / "a.h5", {"a.jpg": features(1), "A.jpg": features(2)})
    with FeatureStore(path) as store:
        assert [len(image) for _, image in store] == [2, 1]


def test_half_precision_of_hloc_becomes_float32(tmp_path):
    path = tmp_path / "hloc.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("a.jpg")
        group["keypoints"] = np.array([[1.5, 2], [3, 4]], np.float16)
        group["descriptors"] = np.eye(5, 2, dtype=np.float16)
    spec = DescriptorSpec("theirs", 5)
    with FeatureStore(path, spec) as store:
        found = store.read("a.jpg")
    assert found.keypoints.dtype == found.descriptors.dtype == np.float32
    np.testing.assert_array_equal(found.descriptors, np.eye(2, 5))
    assert found.image_size == (0, 0) and found.valid.all()
    with pytest.raises(ValueError, match="hloc.h5: does not say which descriptor it holds"):
        FeatureStore(path)


def test_degrees_of_hloc_become_radians_and_nothing_else_does(tmp_path):
    """hloc's extractor of SIFT writes `oris` in degrees; ours, and what others write in radians, stay."""
    angles = np.array([-3.1, 0.02, 1.5, 6.2], np.float32)
    for name, oris in {"hloc": np.rad2deg(angles).astype(np.float16), "others": angles}.items():
        with h5py.File(tmp_path / name, "w") as file:
            group = file.create_group("a.jpg")
            group["keypoints"], group["descriptors"] = np.ones((4, 2), np.float16), np.eye(5, 4)
            group["scales"], group["oris"] = np.ones(4, np.float16), oris
        with FeatureStore(tmp_path / name, DescriptorSpec("theirs", 5)) as store:
            for found in (store.read("a.jpg").oris, store.frames("a.jpg")["oris"]):
                assert found.dtype == np.float32
                np.testing.assert_allclose(found, angles, atol=1.5e-3 if name == "hloc" else 0)
    degrees = np.array([90.0, 180.0, 270.0], np.float32)
    path = write(tmp_path / "a.h5", {"a": features(3, oris=degrees)})
    with FeatureStore(path) as store:
        np.testing.assert_array_equal(store.read("a").oris, degrees)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_root_sift_of_hloc_is_read_as_the_bytes_of_colmap(tmp_path, dtype):
    path, root = tmp_path / "hloc.h5", np.sqrt(np.random.default_rng(0).dirichlet(np.full(128, 0.5), 4))
    with h5py.File(path, "w") as file:
        file["a.jpg/keypoints"] = np.zeros((4, 2), np.float32)
        file["a.jpg/descriptors"] = root.T.astype(dtype)
    with FeatureStore(path, get_spec("colmap-sift")) as store:
        found = store.read("a.jpg").descriptors
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found, np.minimum(512 * root, 255), atol=0.7)  # float16 is off by up to 0.12 of it
    with (
        FeatureStore(path, get_spec("opencv-sift")) as store,
        pytest.raises(ValueError, match="hloc.h5: 'a.jpg': row 0 has norm 1, but 'opencv-sift' .* 'colmap-sift'"),
    ):
        store.read("a.jpg")


def test_file_appears_only_when_complete(tmp_path):
    with pytest.raises(RuntimeError), StoreWriter(tmp_path / "a.h5", BITS) as writer:
        writer.write("a", features())
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_failed_writing_leaves_the_old_file(tmp_path):
    path = write(tmp_path / "a.h5", {"a": features()})
    with pytest.raises(ValueError), StoreWriter(path, BITS) as writer:
        writer.write("b", features(descriptors=np.zeros((2, 2), np.uint8)))
    with FeatureStore(path) as store:
        assert store.names == ["a"]


def test_a_folder_called_keypoints_is_no_photo(tmp_path):
    images = {"x/keypoints/a.jpg": features(2), "x/keypoints/b.jpg": features(3)}
    path = write(tmp_path / "a.h5", images)
    with FeatureStore(path) as store:
        assert store.names == sorted(images) and "x" not in store and len(store.read("x/keypoints/b.jpg")) == 3


def test_a_photo_may_be_written_beside_a_folder_of_its_name(tmp_path):
    with FeatureStore(write(tmp_path / "a.h5", {"x/a.jpg": features(2), "x": features(3)})) as store:
        assert store.names == ["x", "x/a.jpg"]


def test_a_registered_name_stands_for_its_spec(tmp_path):
    path = write(tmp_path / "a.h5", {"a": features(3, get_spec("colmap-sift"))}, get_spec("colmap-sift"))
    with h5py.File(path, "a") as file:
        for key in ("spec", "spec_json"):
            file.attrs.pop(key, None)
    with FeatureStore(path, "colmap-sift") as store:
        assert store.spec == get_spec("colmap-sift") and len(store.read("a")) == 3
    with pytest.raises(ValueError, match="unknown descriptor 'colmap-sfit'; did you mean colmap-sift"):
        FeatureStore(path, "colmap-sfit")
    with pytest.raises(TypeError, match="descriptor is 128, expected a registered name or a DescriptorSpec"):
        FeatureStore(path, 128)


def test_a_file_without_photos_says_what_it_is(tmp_path):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["a/b/matches0"] = [0]
    for given in ({}, {"spec": BITS}, {"fallback": BITS}):
        with pytest.raises(ValueError, match="m.h5: holds no photo: it is a match file"):
            with FeatureStore(tmp_path / "m.h5", **given) as store:
                store.require_photos()
    with FeatureStore(write(tmp_path / "a.h5", {})) as store:
        with pytest.raises(ValueError, match="a.h5: holds no photo: it is a feature file without photos"):
            store.require_photos()
