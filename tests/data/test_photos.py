"""Records from photos, through the real extraction (OpenCV's detector, BRIEF and SIFT)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.killed import kill_within
from xdesc_jax.data import open_source
from xdesc_jax.data.records import records

cv2 = pytest.importorskip("cv2", reason="needs the features extra")
pytest.importorskip("jax", reason="needs the features extra")

from tests.support.blob_photos import write_blobs  # noqa: E402
from xdesc_jax.features.extract import ExtractSettings, extract_photo  # noqa: E402

SETTINGS = {"keypoints": "opencv", "max_keypoints": 40}
NAMES = ["a.png", "blank.png", "sub/C.PNG", "été.png"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Three photos of blobs and a blank one, in sub-folders, with non-ASCII and upper-case names."""
    return write_blobs(tmp_path_factory.mktemp("photos"), NAMES)


@pytest.fixture(scope="module")
def straight(photos, tmp_path_factory):
    """The records of an undisturbed run."""
    out = tmp_path_factory.mktemp("straight") / "out"
    return records(out, photos=photos, format="npy", validation_share=0.3, **SETTINGS)


def rows_of(folder, split):
    source = open_source(folder, split, 9, ["brief", "sift", "keypoint"], True, shuffle=False, remainder="pad")
    batches = list(source.epoch(0))
    return {k: np.concatenate([b[k][b["mask"]] for b in batches]) for k in batches[0]}


def test_rows_are_the_valid_ones_of_each_photo_with_their_patches(photos, straight):
    assert straight.photos == tuple(sorted(NAMES)) and straight.has_patches
    found = {split: rows_of(straight.path, split) for split in ("train", "validation")}
    settings = ExtractSettings(("brief", "sift"), **SETTINGS, patches=True)
    for index, name in enumerate(straight.photos):
        expected = extract_photo(photos / name, settings)
        valid = expected.valid & expected.descriptors["sift"].any(axis=1)
        where = {split: np.flatnonzero(rows["photo"] == index) for split, rows in found.items()}
        assert sorted(map(len, where.values())) == [0, valid.sum()]
        for split, at in where.items():
            mine = {column: values[at] for column, values in found[split].items()}
            if len(at):
                points = expected.keypoints
                keys = np.column_stack([points.xy, points.scales, points.oris])[valid]
                order, theirs = np.lexsort(mine["keypoint"].T), np.lexsort(keys.T)
                np.testing.assert_array_equal(mine["keypoint"][order], keys[theirs])
                np.testing.assert_array_equal(mine["patch"][order], expected.patches[valid][theirs])
                for descriptor, rows in expected.descriptors.items():
                    np.testing.assert_array_equal(mine[descriptor][order], rows[valid][theirs])


def test_the_blank_photo_has_no_rows_and_both_splits_have_some(straight):
    blank = straight.photos.index("blank.png")
    for split in ("train", "validation"):
        photo = rows_of(straight.path, split)["photo"]
        assert len(photo) and blank not in photo


def test_several_processes_without_patches_give_the_same_rows(photos, straight, tmp_path):
    info = records(
        tmp_path / "out",
        photos=photos,
        format="npy",
        validation_share=0.3,
        patches=False,
        processes=2,
        **SETTINGS,
    )
    assert not info.has_patches and info.counts == straight.counts
    for name in ("train.sift.npy", "validation.brief.npy", "train.keypoint.npy"):
        assert (info.path / name).read_bytes() == (straight.path / name).read_bytes()


def test_an_unreadable_photo_is_left_out_or_stops_a_strict_run(photos, tmp_path, capsys, caplog):
    root = tmp_path / "photos"
    root.mkdir()
    (root / "a.png").write_bytes((photos / "a.png").read_bytes())
    (root / "bad.png").write_bytes((photos / "a.png").read_bytes()[:60])
    info = records(tmp_path / "out", photos=root, format="npy", **SETTINGS)
    assert info.photos == ("a.png", "bad.png") and info.counts["train"] > 0
    assert caplog.text.count("bad.png") == 1
    assert "2 photos" not in capsys.readouterr().out
    with pytest.raises(ValueError, match="bad.png"):
        records(tmp_path / "strict", photos=root, format="npy", strict=True, **SETTINGS)
    assert not (tmp_path / "strict").exists()


def test_a_dangling_link_is_left_out_and_stops_a_strict_run(photos, tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    (root / "a.png").write_bytes((photos / "a.png").read_bytes())
    (root / "gone.png").symlink_to(root / "nowhere.png")
    assert records(tmp_path / "out", photos=root, format="npy", **SETTINGS).counts["train"] > 0
    with pytest.raises(ValueError, match=r"gone.png: no such photo"):
        records(tmp_path / "strict", photos=root, format="npy", strict=True, **SETTINGS)


def test_a_photo_changed_in_place_is_another_configuration(photos, tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    gray = cv2.imread(str(photos / "a.png"), cv2.IMREAD_GRAYSCALE)
    cv2.imwrite(str(root / "a.pgm"), gray)
    size = (root / "a.pgm").stat().st_size
    records(tmp_path / "out", photos=root, format="npy", **SETTINGS)
    cv2.imwrite(str(root / "a.pgm"), gray[::-1])
    assert (root / "a.pgm").stat().st_size == size
    with pytest.raises(FileExistsError, match="another configuration"):
        records(tmp_path / "out", photos=root, format="npy", **SETTINGS)


def test_a_run_killed_after_a_photo_keeps_it_and_ends_in_the_same_records(photos, straight, tmp_path):
    code = """
import os, signal, sys
from pathlib import Path
from xdesc_jax.data.records import records
from xdesc_jax.features import extract
save, saved = extract.save_part, []
def save_then_die(*arguments):
    save(*arguments)
    saved.append(arguments)
    if len(saved) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
extract.save_part = save_then_die
records(Path(sys.argv[2]), photos=Path(sys.argv[1]), format="npy", validation_share=0.3, keypoints="opencv",
        max_keypoints=40)
"""
    kill_within(code, photos, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / ".out.work" / "parts").glob("*.npz"))) == 2
    info = records(tmp_path / "out", photos=photos, format="npy", validation_share=0.3, **SETTINGS)
    for name in straight.files:
        assert (info.path / name).read_bytes() == (straight.path / name).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_photos_and_feature_files_at_once_or_neither_are_refused(photos, tmp_path):
    for arguments in ({}, {"photos": photos, "paired": (tmp_path / "a.h5", tmp_path / "b.h5")}):
        with pytest.raises(ValueError, match="name one of the two"):
            records(tmp_path / "out", **arguments)


def test_a_folder_without_photos_is_an_error_that_names_it(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        records(tmp_path / "out", photos=tmp_path / "empty", **SETTINGS)


def test_a_sample_of_rows_is_drawn_before_they_are_described(tmp_path, photos, straight):
    info = records(
        tmp_path / "out", photos=photos, format="npy", validation_share=0.3, max_rows_per_photo=3, **SETTINGS
    )
    for split in ("train", "validation"):
        every, drawn = rows_of(straight.path, split), rows_of(info.path, split)
        assert np.bincount(drawn["photo"]).max() == 3 and set(drawn["photo"]) == set(every["photo"])
        known = {
            (p, bytes(k), bytes(d)) for p, k, d in zip(every["photo"], every["keypoint"], every["sift"], strict=True)
        }
        assert all(
            (p, bytes(k), bytes(d)) in known
            for p, k, d in zip(drawn["photo"], drawn["keypoint"], drawn["sift"], strict=True)
        )
