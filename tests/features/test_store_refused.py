"""Feature files that are refused: damaged, foreign, or not what they say."""

import h5py
import numpy as np
import pytest

from tests.support.stored_features import BITS, features, write
from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.files.hdf5 import found_attribute
from xdesc_jax.files.whole import write_json


def test_scores_of_another_number_are_refused(tmp_path):
    path = write(tmp_path / "a.h5", {"a": features(scores=np.ones(3, np.float32))})
    with h5py.File(path, "a") as file:
        del file["a/scores"]
        file["a/scores"] = np.ones(2, np.float32)
    with FeatureStore(path) as store, pytest.raises(ValueError, match=r"'a': scores has shape \(2,\), expected \(3,\)"):
        store.read("a")


def test_another_spec_is_refused(tmp_path):
    path = write(tmp_path / "a.h5", {"a": features()})
    with pytest.raises(ValueError, match="holds 'bits13', but 'brief' was asked for"):
        FeatureStore(path, get_spec("brief"))


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
