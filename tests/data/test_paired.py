"""Rows of aligned feature files, and the differences that are shown where they are not aligned."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from tests.support.aligned_stores import COUNTS, random_rows, write_store
from xdesc_jax.data.paired import PairedStores
from xdesc_jax.data.rows import keypoint_rows
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, get_spec
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter


def pair(tmp_path, first=None, second=None):
    a = write_store(tmp_path / "a.h5", "sift", **(first or {}))
    b = write_store(tmp_path / "b.h5", "tfeat", **(second or {}))
    return [a, b]


def test_rows_valid_in_all_files_come_photo_by_photo(stores):
    with PairedStores(stores) as source, FeatureStore(stores[1]) as tfeat:
        assert list(source.specs) == ["brief", "tfeat", "colmap-sift"] and source.names == sorted(COUNTS)
        found = dict(source.rows())
        for name, count in COUNTS.items():
            valid = np.arange(count) % 5 != 4
            assert set(found[name]) == {"keypoint", *source.specs}
            assert {len(values) for values in found[name].values()} == {valid.sum()}
            np.testing.assert_array_equal(found[name]["tfeat"], tfeat.read(name).descriptors[valid])
            expected = np.stack([np.arange(0, 2 * count, 2), np.arange(1, 2 * count, 2),
                                 np.arange(count) + 1, (np.arange(count) + 1) / 10], axis=1)  # fmt: skip
            np.testing.assert_allclose(found[name]["keypoint"], expected[valid], rtol=1e-6)


def test_a_row_valid_in_one_file_only_is_left_out(tmp_path):
    paths = pair(tmp_path)
    with h5py.File(paths[1], "a") as file:
        file["a.jpg"]["valid"][1] = False
        file["a.jpg"]["descriptors"][:, 2] = 0  # a zero row that its file calls valid
    with PairedStores(paths) as source:
        keypoints = dict(source.rows())["a.jpg"]["keypoint"]
    np.testing.assert_array_equal(keypoints[:, 0], [0, 6])


def test_binary_rows_stay_packed_and_those_of_zeros_stay(tmp_path):
    spec = binary_spec("odd", 13)
    bits = np.array([[0, 0], [255, 31], [1, 16]], np.uint8)
    with StoreWriter(tmp_path / "odd.h5", spec) as store:
        xy = np.arange(6, dtype=np.float32).reshape(3, 2)
        store.write("a", ImageFeatures(xy, bits, np.ones(3, bool), (9, 9)))
    other = write_store(tmp_path / "b.h5", "sift", {"a": 3})
    with PairedStores([tmp_path / "odd.h5", other]) as source:
        np.testing.assert_array_equal(dict(source.rows())["a"]["odd"], bits)


def test_keypoints_may_differ_by_a_thousandth_of_a_pixel(tmp_path):
    with PairedStores(pair(tmp_path, second={"shift": 5e-4})):
        pass
    with pytest.raises(ValueError, match=r"'a.jpg': keypoint 0 is at \[0.0, 1.0\] in .*, at \[0.25, 1.25\]"):
        PairedStores(pair(tmp_path, second={"shift": 0.25}))


def test_keypoints_that_hloc_rounded_to_float16_are_the_same_and_the_exact_ones_are_kept(tmp_path):
    xy = np.float32([[371.695, 2.113], [1203.4, 0.0417], [9.8765, 3999.3]])
    for name, rounded in (("sift", False), ("tfeat", True)):
        with StoreWriter(tmp_path / f"{name}.h5", get_spec(name)) as store:
            rows = random_rows(np.random.default_rng(0), 3, get_spec(name))
            store.write("a.jpg", ImageFeatures(xy, rows, np.ones(3, bool), (4000, 4000)))
        if rounded:
            with h5py.File(tmp_path / f"{name}.h5", "a") as file:
                del file["a.jpg/keypoints"]
                file["a.jpg/keypoints"] = xy.astype(np.float16)
    for order in (("sift", "tfeat"), ("tfeat", "sift")):
        with PairedStores([tmp_path / f"{name}.h5" for name in order]) as source:
            np.testing.assert_array_equal(dict(source.rows())["a.jpg"]["keypoint"][:, :2], xy)
    with h5py.File(tmp_path / "tfeat.h5", "a") as file:
        file["a.jpg/keypoints"][0, 0] += 0.5  # two steps
    with pytest.raises(ValueError, match=r"'a.jpg': keypoint 0 is at .* \(1 of 3 differ\)"):
        PairedStores([tmp_path / "sift.h5", tmp_path / "tfeat.h5"])


def test_photos_that_only_one_file_has_are_listed_first_three(tmp_path):
    more = {**COUNTS, **{f"x{i}.jpg": 3 for i in range(7)}}
    with pytest.raises(ValueError, match="paired feature files differ") as error:
        PairedStores(pair(tmp_path, second={"counts": more}))
    lines = str(error.value).splitlines()[1:]
    assert [line.split()[0] for line in lines] == [f"'x{i}.jpg'" for i in range(3)] + ["..."]
    assert "is in" in lines[0] and "b.h5 but not in" in lines[0] and "a.h5" in lines[0]


def test_row_counts_that_differ_are_shown_with_both(tmp_path):
    with pytest.raises(ValueError, match=r"'a.jpg': 5 keypoints in .*a.h5, 6 in .*b.h5"):
        PairedStores(pair(tmp_path, second={"counts": {**COUNTS, "a.jpg": 6}}))


def test_a_keypoint_that_is_not_a_number_is_a_difference(tmp_path):
    paths = pair(tmp_path)
    with h5py.File(paths[0], "a") as file:
        file["a.jpg"]["keypoints"][3, 1] = np.nan
    with pytest.raises(ValueError, match="'a.jpg': keypoint 3 is at"):
        PairedStores(paths)


def test_a_file_changed_in_place_is_another_configuration(tmp_path):
    paths = pair(tmp_path)
    with PairedStores(paths) as source:
        before, size = source.config, paths[1].stat().st_size
    write_store(paths[1], "tfeat", seed=1)
    with PairedStores(paths) as source:
        assert paths[1].stat().st_size == size and source.config != before


def test_two_files_of_one_descriptor_or_a_single_file_are_refused(tmp_path):
    a = write_store(tmp_path / "a.h5", "sift")
    b = write_store(tmp_path / "b.h5", "sift")
    with pytest.raises(ValueError, match="b.h5: holds 'sift', as another paired file does"):
        PairedStores([a, b])
    with pytest.raises(ValueError, match="two or more feature files, found 1"):
        PairedStores([a])


def test_a_value_that_is_not_finite_is_named_with_file_photo_and_row(tmp_path):
    paths = pair(tmp_path)
    with h5py.File(paths[1], "a") as file:
        file["a.jpg"]["descriptors"][7, 2] = np.inf
    with (
        PairedStores(paths) as source,
        pytest.raises(ValueError, match="b.h5: 'a.jpg': row 2 of 'tfeat' holds"),
    ):
        list(source.rows())


def test_files_that_do_not_say_what_they_hold_are_named_by_the_caller(tmp_path):
    """hloc's files: float16, no spec, no valid mask; the second descriptor is in no registry."""
    paths = [tmp_path / "feats-sift.h5", tmp_path / "feats-mine.h5"]
    rng = np.random.default_rng(0)
    for path, width, length in zip(paths, (128, 11), (1, 3), strict=True):
        rows = rng.standard_normal((4, width))
        with h5py.File(path, "w") as file:
            file["db/1.jpg/keypoints"] = np.arange(8, dtype=np.float16).reshape(4, 2)
            file["db/1.jpg/descriptors"] = (length * rows / np.linalg.norm(rows, axis=1)[:, None]).T.astype("f2")
    with pytest.raises(ValueError, match="sift.h5: does not say which .*; name what each file holds by --descriptors$"):
        PairedStores(paths)
    with pytest.raises(ValueError, match="names 1 of 2"):
        PairedStores(paths, ["sift"])
    with PairedStores(paths, ["sift", "mine"]) as source:
        assert source.specs["mine"] == DescriptorSpec("mine", 11, normalized=False)
        rows = dict(source.rows())["db/1.jpg"]
    assert rows["sift"].dtype == rows["mine"].dtype == np.float32 and len(rows["mine"]) == 4
    assert np.isnan(rows["keypoint"][:, 2:]).all()


def test_an_affine_shape_gives_scale_and_orientation():
    turn, scale = 0.5, 3.0
    a = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]], np.float32)
    features = ImageFeatures(np.zeros((1, 2), np.float32), np.zeros((1, 4)), np.ones(1, bool), (9, 9), affine=a[None])
    np.testing.assert_allclose(keypoint_rows([features]), [[0, 0, scale, turn]], rtol=1e-6)


def folders(tmp_path, photos=("a.jpg", "b.jpg")):
    """Two sets of keypoints, of which the second has no tfeat."""
    counts = {"wide": dict.fromkeys(photos, 7), "own": {photos[0]: 4, "c.jpg": 6}}
    held = {"wide": ("brief", "sift", "tfeat"), "own": ("brief", "sift")}
    for label, names in held.items():
        (tmp_path / label).mkdir()
        for seed, name in enumerate(names):
            write_store(tmp_path / label / f"{name}.h5", name, counts[label], seed=seed)
    return [tmp_path / "wide", tmp_path / "own"]


def test_folders_are_sets_of_keypoints_and_rows_of_what_one_lacks_are_zero(tmp_path):
    with PairedStores(folders(tmp_path)) as source:
        assert source.names == ["a.jpg::own", "a.jpg::wide", "b.jpg::wide", "c.jpg::own"]
        assert list(source.specs) == ["brief", "sift", "tfeat"]
        found = dict(source.rows())
        with source.reader().open() as read:
            np.testing.assert_array_equal(read("c.jpg::own")["sift"], found["c.jpg::own"]["sift"])
    with FeatureStore(tmp_path / "own" / "sift.h5") as own:
        np.testing.assert_array_equal(found["a.jpg::own"]["sift"], own.read("a.jpg").descriptors)
    assert {name: len(rows["tfeat"]) for name, rows in found.items()} == {
        "a.jpg::own": 4, "a.jpg::wide": 6, "b.jpg::wide": 6, "c.jpg::own": 5,
    }  # fmt: skip
    assert all(rows["tfeat"].any() == name.endswith("wide") for name, rows in found.items())


def test_one_folder_is_as_its_files(tmp_path):
    wide = folders(tmp_path)[0]
    with PairedStores([wide]) as source, PairedStores(sorted(wide.glob("*.h5"))) as files:
        assert source.names == files.names == ["a.jpg", "b.jpg"] and source.config == files.config


def test_folders_that_are_no_sets_of_keypoints_are_refused(tmp_path):
    wide, own = folders(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "own").symlink_to(own)
    with pytest.raises(ValueError, match="own is a folder and .*brief.h5 a file"):
        PairedStores([own, wide / "brief.h5"])
    with pytest.raises(FileNotFoundError, match="nowhere: no such"):
        PairedStores([own, tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"--descriptors names \['brief'\]"):
        PairedStores([own, wide], ["brief"])
    write_store(own / "tfeat.h5", DescriptorSpec("tfeat", 9), {"a.jpg": 4, "c.jpg": 6})
    with pytest.raises(ValueError, match=r"tfeat.h5: holds 'tfeat' of another form"):
        PairedStores([wide, own])
    (own / "tfeat.h5").unlink()
    (own / "sift.h5").unlink()
    with pytest.raises(ValueError, match=r"own: has 1 feature files"):
        PairedStores([wide, own])
    copy = tmp_path / "copy" / "wide"
    copy.mkdir(parents=True)
    for file in wide.glob("*.h5"):
        (copy / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match="two folders are named 'wide'"):
        PairedStores([wide, copy])
