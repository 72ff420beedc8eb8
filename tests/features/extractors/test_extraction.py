"""Rows of networks from `xdesc extract` and `xdesc records`, by an extractor that needs no torch."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
from PIL import Image

from tests.support.fake_extractor import Fake, rows_at
from tests.support.spotted_photos import FACTOR, SIZE, given, spots
from tests.support.textures import NAMES, assert_same, read
from xdesc_jax import descriptors
from xdesc_jax.data import open_source
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import DescriptorSpec, register
from xdesc_jax.features.extract import ExtractSettings, configuration_keys, extract, extract_parts
from xdesc_jax.features.extractors.process import BORDER_PX, Extractors
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.whole import read_json

pytestmark = pytest.mark.usefixtures("names")

# --- Rows at given keypoints -----------------------------------------------------------------------------


def test_rows_stand_at_given_keypoints_and_share_rows_and_mask_with_the_others(photos, tmp_path, weights):
    xy = np.array([[60.25, 48.5], [1.99, 50], [20, 30], [118.5, 40], [60, 94.1], [40.75, 93.9], [2, 2]], np.float32)
    file = given(tmp_path / "points.h5", xy, np.array([1, 1, 90, 1, 1, 0.1, 0.1]))
    asked = ("brief", "fake", "fake-b")
    out = extract(photos, tmp_path / "out", descriptors=asked, keypoints=file, weights=weights)
    files = {name: read(out, name) for name in asked}
    inside = (xy >= BORDER_PX).all(axis=1) & (xy <= np.array(SIZE) - 1 - BORDER_PX).all(axis=1)
    patch_inside = np.arange(7) != 2  # 90 sigma
    for name in NAMES:
        brief, fake, other = (files[d][name] for d in asked)
        np.testing.assert_array_equal(fake.valid, inside & patch_inside)
        for field in ("keypoints", "valid", "scales", "oris"):
            np.testing.assert_array_equal(getattr(fake, field), getattr(brief, field))
            np.testing.assert_array_equal(getattr(other, field), getattr(brief, field))
        for found, factor in ((fake, FACTOR), (other, 2 * FACTOR)):
            expected = np.where(found.valid[:, None], rows_at(xy, factor), 0)
            np.testing.assert_allclose(found.descriptors, expected, atol=1e-6)


def test_keypoints_without_scales_serve_networks_and_are_refused_for_patches(photos, tmp_path, weights):
    file = given(tmp_path / "points.h5", [[60.25, 48.5], [20, 30]])
    out = extract(photos, tmp_path / "out", descriptors=("fake",), keypoints=file, weights=weights[:1])
    found = read(out, "fake")["a.png"]
    assert found.valid.all() and found.scales is None and found.oris is None and found.scores is None
    with pytest.raises(ValueError, match=r"points.h5: .*'A.png' .*the file holds positions without `scales`"):
        extract(photos, tmp_path / "b", descriptors=("fake", "brief"), keypoints=file, weights=weights[:1])


def test_several_processes_give_what_one_gives(photos, tmp_path, weights):
    settings = {"descriptors": ("opencv-sift", "fake"), "keypoints": "opencv", "weights": weights[:1]}
    one = extract(photos, tmp_path / "one", **settings)
    two = extract(photos, tmp_path / "two", **settings, processes=2)
    for name in NAMES:
        assert read(one, "fake")[name].valid.sum() > 10
        assert_same(read(one, "fake")[name], read(two, "fake")[name])


# --- A network's own keypoints ---------------------------------------------------------------------------


def test_own_keypoints_have_scores_and_no_frames(tmp_path, weights):
    photos = spots(tmp_path / "photos", {"a.png": [(10, 9, 7), (30, 50, 200), (99, 20, 90)], "b/c.png": []})
    out = extract(photos, tmp_path / "out", descriptors=("fake", "fake-b"), keypoints="fake", weights=weights)
    with FeatureStore(out / "fake.h5") as store:
        assert store.frames("a.png") == {}
        found = store.read("a.png")
        assert len(store.read("b/c.png")) == 0
    np.testing.assert_array_equal(found.keypoints, [[10, 9], [99, 20], [30, 50]])
    np.testing.assert_array_equal(found.scores, [7, 90, 200])
    np.testing.assert_allclose(found.descriptors, rows_at(found.keypoints, FACTOR), atol=1e-6)
    assert found.scales is None and found.oris is None and found.affine is None and found.image_size == SIZE
    other = read(out, "fake-b")["a.png"]
    np.testing.assert_array_equal(other.scores, found.scores)
    np.testing.assert_allclose(other.descriptors, rows_at(found.keypoints, 2 * FACTOR), atol=1e-6)


def test_the_strongest_by_score_are_kept_in_their_order(tmp_path, weights):
    photos = spots(tmp_path / "photos", {"a.png": [(10, 9, 90), (30, 20, 7), (99, 30, 200), (50, 60, 8)]})
    out = extract(
        photos, tmp_path / "out", descriptors=("fake",), keypoints="fake", weights=weights[:1], max_keypoints=2
    )
    found = read(out, "fake")["a.png"]
    np.testing.assert_array_equal(found.keypoints, [[10, 9], [99, 30]])
    np.testing.assert_array_equal(found.scores, [90, 200])


def test_own_keypoints_closer_than_nms_to_one_of_a_higher_score_are_left_out(tmp_path, weights):
    photos = spots(tmp_path / "photos", {"a.png": [(10, 9, 90), (13, 9, 91), (13, 13, 7), (16, 9, 200), (50, 60, 8)]})
    asked = {"descriptors": ("fake",), "keypoints": "fake", "weights": weights[:1]}
    found = read(extract(photos, tmp_path / "out", **asked, nms=4.0), "fake")["a.png"]
    np.testing.assert_array_equal(found.scores, [90, 200, 7, 8])
    # In px of the photo, also where the network sees it smaller: 6 px apart, which are 3 of its own.
    photo = np.full((96, 120), 100, np.uint8)
    photo[20:22, 30:40] = np.repeat([255, 77, 100, 255, 78], 2)
    (tmp_path / "large").mkdir()
    Image.fromarray(photo).save(tmp_path / "large" / "a.png")
    out = extract(tmp_path / "large", tmp_path / "smaller", **asked, nms=4.0, network_side=60)
    np.testing.assert_array_equal(read(out, "fake")["a.png"].scores, [77, 78])


def test_own_keypoints_serve_another_network_alone(tmp_path, weights):
    photos = spots(tmp_path / "photos", {"a.png": [(10, 9, 90)]})
    out = extract(photos, tmp_path / "out", descriptors=("fake-b",), keypoints="fake", weights=weights)
    assert sorted(p.name for p in out.iterdir()) == ["extract.json", "fake-b.h5"]
    np.testing.assert_allclose(read(out, "fake-b")["a.png"].descriptors, rows_at(np.array([[10, 9]]), 2 * FACTOR))


@pytest.mark.parametrize("asked", ["brief", "opencv-sift"])
def test_patches_at_a_networks_keypoints_are_refused_before_any_work(photos, tmp_path, weights, calls, asked):
    with pytest.raises(ValueError, match=f"{asked}: computed from keypoints with scales, but 'fake' finds positions"):
        extract(photos, tmp_path / "out", descriptors=("fake", asked), keypoints="fake", weights=weights[:1])
    assert calls() == []


def test_colmap_sift_at_a_networks_keypoints_is_refused(photos, tmp_path, weights):
    with pytest.raises(ValueError, match="'colmap-sift' exists only where COLMAP detects"):
        extract(photos, tmp_path / "out", descriptors=("fake", "colmap-sift"), keypoints="fake", weights=weights[:1])


# --- Photos that networks see smaller --------------------------------------------------------------------


def test_a_network_that_sees_the_photo_smaller_reads_the_same_places(photos, tmp_path, weights):
    xy = np.array([[60.25, 48.5], [7, 50], [20, 30], [3.4, 40]], np.float32)
    file = given(tmp_path / "points.h5", xy)
    words = {"descriptors": ("fake",), "keypoints": file, "weights": weights[:1]}
    out = extract(photos, tmp_path / "out", **words, network_side=60)
    found = read(out, "fake")["a.png"]
    np.testing.assert_array_equal(found.valid, [True, True, True, False])  # the last is at 1.4 of 60 px
    np.testing.assert_array_equal(found.keypoints, xy)
    seen = (xy + 0.5) * [60 / 121, 48 / 97] - 0.5
    np.testing.assert_allclose(found.descriptors[:3], rows_at(seen, FACTOR)[:3], atol=1e-5)
    with pytest.raises(FileExistsError):
        extract(photos, out, **words)
    larger = extract(photos, tmp_path / "larger", **words, network_side=121)
    np.testing.assert_allclose(read(larger, "fake")["a.png"].descriptors, rows_at(xy, FACTOR), atol=1e-6)


def test_keypoints_found_in_the_smaller_photo_are_places_in_the_photo(tmp_path, weights):
    photo = np.full((96, 120), 100, np.uint8)
    photo[20:22, 30:32] = 255
    photo[20:22, 32:34] = 77
    (tmp_path / "photos").mkdir()
    Image.fromarray(photo).save(tmp_path / "photos" / "a.png")
    words = {"descriptors": ("fake", "fake-b"), "keypoints": "fake", "weights": weights, "network_side": 60}
    out = extract(tmp_path / "photos", tmp_path / "out", **words)
    found, other = read(out, "fake")["a.png"], read(out, "fake-b")["a.png"]
    np.testing.assert_allclose(found.keypoints, [[30.5, 20.5]])  # the centre of the spot
    assert found.image_size == (120, 96) and found.scores.tolist() == [77]
    np.testing.assert_allclose(found.descriptors, rows_at(np.array([[15, 10]]), FACTOR), atol=1e-6)
    np.testing.assert_allclose(other.descriptors, rows_at(np.array([[15, 10]]), 2 * FACTOR), atol=1e-5)


# --- Going on, and what identifies a result --------------------------------------------------------------


def test_a_stopped_run_goes_on_and_computes_what_is_missing_alone(photos, tmp_path, weights, calls):
    out = tmp_path / "out"
    words = {"descriptors": ("fake",), "keypoints": "opencv", "weights": weights[:1]}
    settings = ExtractSettings(("fake",), "opencv", weights={"fake": tmp_path / "fake.npz"})
    with contextlib.closing(extract_parts(photos, sorted(NAMES), settings, out / ".parts")) as found:
        assert len(list(itertools.islice(found, 3))) == 3
    assert len(calls()) == 3
    extract(photos, out, **words)
    assert len(calls()) == 4
    whole = extract(photos, tmp_path / "whole", **words)
    for name in NAMES:
        assert_same(read(out, "fake")[name], read(whole, "fake")[name])
    extract(photos, out, **words)
    assert len(calls()) == 8


def test_weights_of_descriptor_and_detector_are_part_of_the_configuration(tmp_path, weights):
    settings = ExtractSettings(
        ("fake",), "fake-b", weights={"fake": tmp_path / "fake.npz", "fake-b": tmp_path / "fake-b.npz"}
    )
    before = configuration_keys(settings)
    for file in ("fake.npz", "fake-b.npz"):
        content = (tmp_path / file).read_bytes()
        np.savez(tmp_path / file, factor=9.0)
        assert configuration_keys(settings) != before
        (tmp_path / file).write_bytes(content)
        assert configuration_keys(settings) == before


def test_other_weights_are_refused_over_a_finished_file(photos, tmp_path, weights):
    words = {"descriptors": ("fake",), "keypoints": "opencv", "weights": weights[:1]}
    extract(photos, tmp_path / "out", **words)
    np.savez(tmp_path / "fake.npz", factor=9.0)
    with pytest.raises(FileExistsError):
        extract(photos, tmp_path / "out", **words)


def test_the_report_sets_the_networks_time_beside_the_whole(photos, tmp_path, weights, caplog):
    out = extract(photos, tmp_path / "out", descriptors=("fake",), keypoints="opencv", weights=weights[:1])
    seconds = read_json(out / "extract.json")["seconds"]
    assert 0 < seconds["networks"] < seconds["whole"]
    without = extract(photos, tmp_path / "b", descriptors=("opencv-sift",), keypoints="opencv")
    assert "seconds" not in read_json(without / "extract.json")


# --- The process -----------------------------------------------------------------------------------------


def test_no_process_starts_before_there_is_a_photo_and_none_is_left(tmp_path, weights):
    with Extractors(["fake"], {"fake": tmp_path / "fake.npz"}, "cpu") as extractors:
        assert extractors._process is None
        photo = np.full((20, 30, 3), 100, np.uint8)
        rows, valid = extractors.describe("fake", photo, np.array([[-3, 4], [1, 1]], np.float32), "photo")
        assert not valid.any() and not rows.any() and extractors._process is None
        extractors.detect("fake", photo, "photo")
        process = extractors._process
        assert process is not None and process.poll() is None
    assert process.poll() is not None


def test_a_network_that_is_a_plugins_class_is_found_in_the_process(tmp_path, weights, monkeypatch):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from tests.support.fake_extractor import Fake\n"
        "from xdesc_jax.descriptors import DescriptorSpec, register\n"
        "register(DescriptorSpec('mine', 2), Fake, source='network')\n"
    )
    monkeypatch.setenv(descriptors.PLUGINS, str(plugin))
    register(DescriptorSpec("mine", 2), Fake, source="network")
    with Extractors(["mine"], {"mine": tmp_path / "fake.npz"}, "cpu") as extractors:
        photo = np.full((20, 30, 3), 100, np.uint8)
        rows, _ = extractors.describe("mine", photo, np.array([[10, 9.5]], np.float32), "photo")
    np.testing.assert_allclose(rows, rows_at(np.array([[10, 9.5]]), FACTOR), atol=1e-6)


# --- Records ---------------------------------------------------------------------------------------------


def rows_of(folder):
    """The rows of both splits."""
    names, found = ["fake", "fake-b", "keypoint"], []
    for split in ("train", "validation"):
        found += open_source(folder, split, 8, names, shuffle=False, remainder="pad").epoch(0)
    return {name: np.concatenate([batch[name][batch["mask"]] for batch in found]) for name in names}


def test_records_hold_rows_of_networks_at_the_same_keypoints(photos, tmp_path, weights):
    out = tmp_path / "records"
    records(
        out, photos=photos, descriptors=("opencv-sift", "fake", "fake-b"), keypoints="opencv", weights=weights,
        format="npy", validation_share=0.3, max_rows_per_photo=40,
    )  # fmt: skip
    rows = rows_of(out)
    assert 40 < len(rows["fake"]) <= 160
    for name, factor in (("fake", FACTOR), ("fake-b", 2 * FACTOR)):
        np.testing.assert_allclose(rows[name], rows_at(rows["keypoint"][:, :2], factor), atol=1e-6)


def test_records_at_a_networks_keypoints_have_no_patches_and_no_frames(tmp_path, weights, calls):
    points = {name: [(10 * i, 5 * i + 2, 9) for i in range(1, 9)] for name in ("a.png", "b.png", "c.png")}
    photos = spots(tmp_path / "photos", points)
    words = {"photos": photos, "descriptors": ("fake", "fake-b"), "keypoints": "fake", "weights": weights}
    words["format"] = "npy"
    with pytest.raises(ValueError, match=r"^patches \(--no-patches\): computed from keypoints with scales, but 'fake'"):
        records(tmp_path / "out", **words)
    assert calls() == []
    records(tmp_path / "out", **words, patches=False)
    rows = rows_of(tmp_path / "out")
    assert len(rows["fake"]) == 24 and np.isnan(rows["keypoint"][:, 2:]).all()
    np.testing.assert_allclose(rows["fake-b"], rows_at(rows["keypoint"][:, :2], 2 * FACTOR), atol=1e-6)
