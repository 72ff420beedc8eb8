"""Pairs from places of many views: rows, their numbers, what is kept, and what cannot be used."""

import dataclasses
import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from pipelines.corner import camera, save_photos
from tests.support.pair_records import pair_records
from xdesc_jax.data.build import build
from xdesc_jax.data.columns import open_column
from xdesc_jax.data.pairs import multiview
from xdesc_jax.data.pairs.multiview import MultiviewPairs, MultiviewSettings, places
from xdesc_jax.data.pairs.pairs import pairs
from xdesc_jax.data.pairs.tracks import PairRules
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.schema import KEYPOINT, PAIR, PATCH, PHOTO, POINT
from xdesc_jax.features.images import UnreadablePhoto
from xdesc_jax.mapping.from_photos import NotReconstructed, ReconstructSettings

SETTINGS = MultiviewSettings(ReconstructSettings(max_features=400, threads=1), PairRules(min_track_length=2))


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """Two places, one with its photos a folder deeper, and one of blank photos."""
    folder = tmp_path_factory.mktemp("places")
    save_photos(folder / "b" / "images", seed=0)
    save_photos(folder / "c \u00e9", seed=1)
    (folder / "a").mkdir()
    for name in ("1.png", "2.png"):
        cv2.imwrite(str(folder / "a" / name), np.full((50, 70), 90, np.uint8))
    return folder


@pytest.fixture(scope="session")
def work(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def source(root, work) -> MultiviewPairs:
    """After its first pass."""
    source = MultiviewPairs(root, work, SETTINGS)
    list(source.rows())
    return source


@pytest.fixture(scope="session")
def rows(source) -> dict:
    return dict(source.rows())


def test_places_are_the_folders_with_photos_at_any_depth(root, tmp_path):
    assert {place: len(names) for place, names in places(root).items()} == {"a": 2, "b": 6, "c \u00e9": 6}
    assert places(root)["b"][0] == "images/0.png"
    with pytest.raises(ValueError, match="expected one folder of photos per place"):
        places(root / "a")
    with pytest.raises(FileNotFoundError, match="no such folder of photos"):
        places(tmp_path / "none")


def test_rows_have_the_columns_of_records_of_pairs(rows):
    assert list(rows) == ["b", "c \u00e9"]
    for columns in rows.values():
        n = len(columns[POINT])
        assert n > 100
        found = {name: (values.dtype, values.shape) for name, values in columns.items()}
        assert found == {
            PATCH: (np.uint8, (n, 32, 32)),
            PAIR: (np.uint8, (n, 32, 32)),
            POINT: (np.int32, (n,)),
            KEYPOINT: (np.float32, (n, 4)),
        }


def test_both_patches_show_the_same_thing(rows):
    for columns in rows.values():
        a, b = (columns[name].reshape(len(columns[POINT]), -1).astype(float) for name in (PATCH, PAIR))
        a, b = ((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) for x in (a, b))
        same, other = (a * b).mean(1), (a * np.roll(b, len(b) // 2, axis=0)).mean(1)
        assert np.median(same) > 0.8 and np.percentile(same, 5) > 0.4
        assert abs(np.median(other)) < 0.2


def test_keypoints_are_those_of_the_first_patch(rows, root):
    """Each patch is the photo around its keypoint: its centre has the photo's gray there, in one of the photos."""
    columns = rows["b"]
    photos = [cv2.imread(str(p), cv2.IMREAD_GRAYSCALE) for p in sorted((root / "b" / "images").iterdir())]
    x, y = np.rint(columns[KEYPOINT][:, :2]).astype(int).T
    fine = columns[KEYPOINT][:, 2] < 2.67  # patches of the full-size photo
    centre = columns[PATCH][:, 16, 16].astype(int)
    nearest = np.min([np.abs(photo[y, x].astype(int) - centre) for photo in photos], axis=0)
    assert fine.sum() > 20 and np.median(nearest[fine]) <= 4


def test_points_of_two_places_have_different_numbers(rows):
    assert not set(rows["b"][POINT]) & set(rows["c \u00e9"][POINT])
    counts = np.unique(rows["b"][POINT], return_counts=True)[1]
    assert counts.max() > 1  # pairs of one track share theirs


def test_place_that_is_not_reconstructed_is_reported_and_left_out(source, root, tmp_path):
    assert list(source.skipped) == ["a"] and "0 features" in source.skipped["a"]
    assert source.names == ["a", "b", "c \u00e9"]
    with pytest.raises(NotReconstructed, match="a: no model could be reconstructed"):
        list(MultiviewPairs(root, tmp_path, SETTINGS, strict=True).rows())


def test_places_of_which_none_gives_a_pair_are_counted_as_places(root, tmp_path):
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "a").symlink_to(root / "a")
    with pytest.raises(ValueError, match="none of the 1 places has a valid row"):
        pairs(tmp_path / "out", multiview=tmp_path / "all", places=SETTINGS, format="npy")


def test_figures_of_a_place_count_photos_points_and_pairs(source, rows):
    figures = source.figures["b"]
    assert figures["photos"] == figures["registered"] == 6
    assert figures["pairs"] == len(rows["b"][POINT])
    assert figures["points"] >= figures["distinct"] > 100
    assert figures["error_px"] < 0.3 and figures["angle_deg"] > 5 and 0 <= figures["disagreeing"] < 0.1
    json.dumps(figures, allow_nan=False)


def test_later_passes_and_later_runs_read_what_is_kept(source, rows, root, work, monkeypatch):
    monkeypatch.setattr(multiview, "choose_pairs", None)
    again = dict(MultiviewPairs(root, work, SETTINGS).rows())
    for place, columns in rows.items():
        for name, values in columns.items():
            np.testing.assert_array_equal(again[place][name], values)


def test_other_rules_take_the_same_models(source, rows, root, work, monkeypatch):
    monkeypatch.setattr("xdesc_jax.colmap.bindings.photos.add_matches", None)
    one = dataclasses.replace(SETTINGS, rules=dataclasses.replace(SETTINGS.rules, pairs_per_track=1))
    fewer = MultiviewPairs(root, work, one)
    assert fewer.config != source.config
    counts = {place: len(columns[POINT]) for place, columns in fewer.rows()}
    assert all(0 < counts[place] < len(columns[POINT]) for place, columns in rows.items())


def test_a_place_gives_no_more_pairs_than_asked_for(rows, root, work):
    capped = dict(MultiviewPairs(root, work, dataclasses.replace(SETTINGS, max_pairs_per_place=37)).rows())
    assert [len(columns[POINT]) for columns in capped.values()] == [37, 37]
    assert set(capped["b"][POINT]) <= set(rows["b"][POINT])


def test_photo_that_is_cut_short_is_left_out_and_refused_when_strict(root, work, source, tmp_path, monkeypatch):
    """COLMAP reads what is there of such a photo, so it can be part of a model."""
    whole = multiview.read_gray

    def read(path):
        if path.name == "3.png":
            raise UnreadablePhoto(f"{path}: cut")
        return whole(path)

    monkeypatch.setattr(multiview, "read_gray", read)
    (tmp_path / "b").symlink_to(root / "b")
    with pytest.raises(UnreadablePhoto, match="3.png: cut"):
        list(MultiviewPairs(tmp_path, work, dataclasses.replace(SETTINGS, seed=5), strict=True).rows())
    (_, fewer), *_ = MultiviewPairs(tmp_path, work, dataclasses.replace(SETTINGS, seed=5)).rows()
    assert 0 < len(fewer[POINT]) < source.figures["b"]["pairs"]


def test_records_split_by_place(source, rows, tmp_path):
    info = build(tmp_path / "out", source, tmp_path / "work", RecordSettings("npy", 0.5), source.config)
    assert info.has_pairs and info.specs == {} and info.photos == ("a", "b", "c \u00e9")
    for split, count in info.counts.items():
        (place,) = set(open_column(info, split, PHOTO).tolist())
        assert len(rows[info.photos[place]][POINT]) == count > 0


def test_rows_of_one_place_alone_are_told_to_be_in_one_split(tmp_path, caplog):
    pair_records(tmp_path / "one", photos=1)
    assert "all rows are in train: photos are not divided" in caplog.text
    caplog.clear()
    pair_records(tmp_path / "two", photos=2)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="max_pairs_per_place is 0, expected at least 1"):
        MultiviewSettings(max_pairs_per_place=0)
    with pytest.raises(ValueError, match="seed is -1, expected 0 or more"):
        MultiviewSettings(seed=-1)


def test_cameras_of_the_synthetic_scene_look_at_the_corner():
    for view in range(6):
        rotation, translation = camera(view)
        inside = rotation @ [0, 0, 5.0] + translation
        np.testing.assert_allclose(inside[:2], 0, atol=1e-9)
