"""Feature files: round trips, what hloc sees in them, and damaged or foreign files."""

import h5py
import numpy as np
import pytest

from xdesc_jax.descriptors import DescriptorSpec, binary_spec, get_spec
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.files.hdf5 import found_attribute
from xdesc_jax.files.whole import write_json

BITS = binary_spec("bits13", 13)


def features(n: int = 3, spec: DescriptorSpec = BITS, **changes) -> ImageFeatures:
    rng = np.random.default_rng(n)
    rows = rng.integers(1, 200, (n, spec.stored_width)).astype(spec.stored_dtype)
    fields = {
        "keypoints": rng.uniform(0, 99, (n, 2)).astype(np.float32),
        "descriptors": rows,
        "valid": np.ones(n, bool),
        "image_size": (121, 97),
        "scales": rng.uniform(1, 9, n).astype(np.float32),
        "oris": rng.uniform(-3, 3, n).astype(np.float32),
    }
    return ImageFeatures(**(fields | changes))


def write(path, images: dict[str, ImageFeatures], spec: DescriptorSpec = BITS, **attributes):
    with StoreWriter(path, spec, attributes) as writer:
        for name, image in images.items():
            writer.write(name, image)
    return path


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


def test_scores_of_another_number_are_refused(tmp_path):
    path = write(tmp_path / "a.h5", {"a": features(scores=np.ones(3, np.float32))})
    with h5py.File(path, "a") as file:
        del file["a/scores"]
        file["a/scores"] = np.ones(2, np.float32)
    with FeatureStore(path) as store, pytest.raises(ValueError, match=r"'a': scores has shape \(2,\), expected \(3,\)"):
        store.read("a")


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


def test_another_spec_is_refused(tmp_path):
    path = write(tmp_path / "a.h5", {"a": features()})
    with pytest.raises(ValueError, match="holds 'bits13', but 'brief' was asked for"):
        FeatureStore(path, get_spec("brief"))


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"descriptors": np.zeros((3, 3), np.uint8)},
            r"'a': descriptors have shape \(3, 3\), expected \(3, 2\)",
        ),
        ({"descriptors": np.zeros((3, 2), np.float32)}, "dtype float32, but 'bits13' is stored as uint8"),
        ({"valid": np.ones(2, bool)}, r"valid has shape \(2,\), expected \(3,\)"),
        ({"scales": np.ones(4)}, r"scales has shape \(4,\)"),
        ({"affine": np.ones((3, 4))}, r"affine has shape \(3, 4\), expected \(3, 2, 2\)"),
    ],
)
def test_arrays_that_disagree_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "a.h5", {"a": features(**changes)})


def test_photo_written_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'a' written twice"), StoreWriter(tmp_path / "a.h5", BITS) as writer:
        writer.write("a", features())
        writer.write("a", features())


@pytest.mark.parametrize("size", [0, 96, 2000])
def test_file_cut_short_is_named(tmp_path, size):
    path = write(tmp_path / "a.h5", {"a": features()})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="a.h5: not a readable HDF5 file, or cut short"):
        FeatureStore(path)


def test_missing_file_and_photo_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.h5"):
        FeatureStore(tmp_path / "absent.h5")
    with FeatureStore(write(tmp_path / "a.h5", {"a.jpg": features()})) as store:
        with pytest.raises(KeyError, match="no photo 'A.jpg' .*'a.jpg'"):
            store.read("A.jpg")


@pytest.mark.parametrize(
    ("attribute", "value", "message"), [("version", 2, "version 2"), ("origin", "corner", "'corner'")]
)
def test_newer_version_or_other_origin_is_refused(tmp_path, attribute, value, message):
    path = write(tmp_path / "a.h5", {"a": features()})
    with h5py.File(path, "a") as file:
        file.attrs[attribute] = value
    with pytest.raises(ValueError, match=message):
        FeatureStore(path)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("version", "new", "format version is 'new', expected a number"),
        ("spec_json", "[1]", "attribute 'spec_json' .*not a JSON object"),
        ("spec_json", '{"name": "sift"}', "attribute 'spec_json' .* 'width'"),
        ("spec_json", "{", "attribute 'spec_json' is '{', expected a descriptor"),
        ("spec_json", 5, "attribute 'spec_json' is .*5"),
        ("spec_json", '{"name": "a", "width": 3, "storage_dtype": "x"}', "attribute 'spec_json'"),
        ("spec", "shift", "attribute 'spec' is 'shift', expected a descriptor .*sift"),
    ],
)
def test_malformed_attributes_are_refused_with_the_file(tmp_path, attribute, value, message):
    path = write(tmp_path / "a.h5", {"a": features()})
    with h5py.File(path, "a") as file:
        if attribute == "spec":
            del file.attrs["spec_json"]
        file.attrs[attribute] = value
    with pytest.raises(ValueError, match=f"a.h5: {message}"):
        FeatureStore(path)


def test_a_folder_called_keypoints_is_no_photo(tmp_path):
    images = {"x/keypoints/a.jpg": features(2), "x/keypoints/b.jpg": features(3)}
    path = write(tmp_path / "a.h5", images)
    with FeatureStore(path) as store:
        assert store.names == sorted(images) and "x" not in store and len(store.read("x/keypoints/b.jpg")) == 3


def test_a_photo_may_be_written_beside_a_folder_of_its_name(tmp_path):
    with FeatureStore(write(tmp_path / "a.h5", {"x/a.jpg": features(2), "x": features(3)})) as store:
        assert store.names == ["x", "x/a.jpg"]


def test_a_damaged_file_of_the_right_length_is_named(tmp_path):
    path = write(tmp_path / "a.h5", {"x/a.jpg": features(), "x/b.jpg": features()})
    content = path.read_bytes()
    assert b"SNOD" in content
    path.write_bytes(content.replace(b"SNOD", b"\0\0\0\0"))
    with pytest.raises(ValueError, match="a.h5: is damaged"):
        FeatureStore(path)
    assert found_attribute(path, "config_hash") is None


def test_damaged_keypoints_are_named_with_their_photo(tmp_path):
    path, keypoints = tmp_path / "a.h5", np.arange(6, dtype=np.float32).reshape(3, 2)
    with h5py.File(path, "w") as file:
        file.create_dataset("a.jpg/keypoints", data=keypoints, fletcher32=True)
        file["a.jpg/descriptors"] = np.eye(5, 3, dtype=np.float32)
    content = path.read_bytes()
    path.write_bytes(content.replace(keypoints.tobytes(), keypoints[::-1].copy().tobytes()[::-1]))
    assert path.read_bytes() != content
    with FeatureStore(path, DescriptorSpec("theirs", 5)) as store:
        for read in (store.read, store.keypoints):
            with pytest.raises(ValueError, match="a.h5: features of 'a.jpg' cannot be read"):
                read("a.jpg")


def test_keypoints_of_another_shape_are_refused(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a.jpg/keypoints"] = np.zeros((3, 4), np.float16)
        file["a.jpg/descriptors"] = np.zeros((5, 6), np.float16)
        file["none.jpg/keypoints"] = np.zeros(0, np.float16)
        file["none.jpg/descriptors"] = np.zeros((5, 0), np.float16)
    with FeatureStore(path, DescriptorSpec("theirs", 5)) as store:
        for read in (store.read, store.keypoints, store.count):
            with pytest.raises(ValueError, match=r"a.h5: 'a.jpg': keypoints have shape \(3, 4\), expected \[N, 2\]"):
                read("a.jpg")
        assert len(store.read("none.jpg")) == store.count("none.jpg") == 0


def declared(path, **changes):
    """A file of 3 keypoints, in which some arrays are declared and not written."""
    write(path, {"a": features()})
    with h5py.File(path, "a") as file:
        for key, (shape, dtype) in changes.items():
            del file["a"][key]
            file["a"].create_dataset(key, shape, dtype)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"descriptors": ((2, 4_000_000_000), np.uint8)},
            "descriptors declares .* 8000000000 bytes, of which 0 are stored",
        ),
        ({"descriptors": ((2, 3), np.uint8)}, "descriptors declares .* of which 0 are stored"),
        ({"keypoints": ((30_000_000, 2), np.float32)}, "keypoints declares .* of which 0 are stored"),
        ({"keypoints": ((4_000_000_000, 3), np.float32)}, "keypoints declares"),
        ({"valid": ((4_000_000_000,), bool)}, r"valid declares|valid has shape \(4000000000,\)"),
        ({"scales": ((3,), np.float32)}, "scales declares"),
        ({"image_size": ((4_000_000_000,), np.int32)}, r"image_size has shape \(4000000000,\), expected \(2,\)"),
    ],
)
def test_declared_sizes_are_compared_before_anything_is_read(tmp_path, changes, message):
    with FeatureStore(declared(tmp_path / "a.h5", **changes)) as store:
        with pytest.raises(ValueError, match=f"a.h5: .*'a'.*({message})"):
            store.read("a")


@pytest.mark.parametrize(
    "size", [(-320, 240), (320, -1), (2.5, 3), (np.nan, 3), (1 << 40, 3), (3,), (1, 2, 3), (3j, 4)]
)
def test_a_photo_size_that_cannot_be_is_refused(tmp_path, size):
    path = write(tmp_path / "a.h5", {"a": features()})
    with h5py.File(path, "a") as file:
        del file["a/image_size"]
        file["a/image_size"] = size
    with FeatureStore(path) as store, pytest.raises(ValueError, match="a.h5: .*'a'.*image_size"):
        store.read("a")


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"config": {}, "hash": "", "data": "", "init": None, "versions": {}},
            r"not of `xdesc train`, lacks \['specs'\]",
        ),
        (
            {"config": {}, "specs": {"a": {"name": "a"}}, "hash": "", "data": "", "init": None, "versions": {}},
            "not a configuration of this version .*'width'",
        ),
    ],
)
def test_a_run_whose_configuration_lacks_a_key_is_refused_by_name(tmp_path, settings, message):
    trained = pytest.importorskip("xdesc_jax.train.translators.trained")
    write_json(tmp_path / "config.json", settings)
    with pytest.raises(ValueError, match=f"config.json: {message}"):
        trained.load_model(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_keypoint_that_is_nowhere_is_refused_by_its_row(tmp_path, value):
    path = write(tmp_path / "a.h5", {"a": features()})
    with h5py.File(path, "a") as file:
        file["a/keypoints"][1, 0] = value
    with FeatureStore(path) as store, pytest.raises(ValueError, match="a.h5: 'a': keypoint 1 is at .*expected finite"):
        store.read("a")


@pytest.mark.parametrize("dtype", ["c8", "S3", "V5"])
def test_keypoints_that_are_no_numbers_are_refused(tmp_path, dtype):
    path = write(tmp_path / "a.h5", {"a": features()})
    with h5py.File(path, "a") as file:
        del file["a/keypoints"]
        file["a/keypoints"] = np.zeros((3, 2), dtype)
    with FeatureStore(path) as store, pytest.raises(ValueError, match="a.h5: .*'a'.*keypoints has dtype"):
        store.read("a")
