"""Reconstruction: of pictures with known cameras, continued, and of what cannot be reconstructed."""

import dataclasses

import cv2
import numpy as np
import pytest

from pipelines.corner import FOCAL, POSITIONS, camera
from xdesc_jax.colmap.bindings import photos as colmap
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.mapping.from_photos import DATABASE, NotReconstructed, ReconstructSettings, reconstruct


def assert_same(a, b):
    for field in dataclasses.fields(a):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def test_cameras_are_found_up_to_a_similarity(corner, reconstructed):
    model = read_model(reconstructed[1][0])
    assert model.names == tuple(corner[1])
    np.testing.assert_allclose(model.focals_px, FOCAL, rtol=0.03)
    found = -np.einsum("nji,nj->ni", model.rotations, model.translations)
    true = np.array(POSITIONS)
    # Distances between cameras do not depend on the model's frame; its scale is a free factor.
    apart = [np.linalg.norm(c[:, None] - c[None], axis=2)[np.triu_indices(len(c), 1)] for c in (found, true)]
    np.testing.assert_allclose(apart[0] / apart[0].sum(), apart[1] / apart[1].sum(), atol=0.005)
    # So does the rotation between two cameras.
    for view in range(1, len(true)):
        turned = model.rotations[view] @ model.rotations[0].T
        expected = camera(view)[0] @ camera(0)[0].T
        assert np.degrees(np.arccos((np.trace(turned @ expected.T) - 1) / 2)) < 1


def test_model_arrays_agree_with_the_keypoints_of_the_database(reconstructed):
    work, models = reconstructed
    model = read_model(models[0])
    assert (np.diff(model.point) >= 0).all() and len(np.unique(model.point)) == len(model.points)
    with DatabaseReader(work / DATABASE) as reader:
        for view, name in enumerate(model.names):
            rows = model.view == view
            inside = model.points[model.point[rows]] @ model.rotations[view].T + model.translations[view]
            size = np.array(reader.image_size(name))
            # Without the lens distortion, which is nearly zero here.
            projected = model.focals_px[view] * inside[:, :2] / inside[:, 2:] + size / 2
            apart = np.linalg.norm(projected - reader.keypoints(name)[model.keypoint[rows], :2], axis=1)
            assert np.median(apart) < 0.5
            assert np.median(np.abs(apart - model.residual_px[rows])) < 0.3
    assert np.median(model.residual_px) < 0.2


def test_finished_models_are_not_made_again(corner, reconstructed, settings, monkeypatch):
    work, models = reconstructed
    monkeypatch.setattr(colmap, "map_photos", None)
    monkeypatch.setattr(colmap, "add_matches", None)
    assert reconstruct(*corner, work, settings) == models


@pytest.mark.parametrize("stop_before", ["add_features", "add_matches", "map_photos"])
def test_stopped_run_goes_on_to_the_same_models(corner, reconstructed, settings, stop_before, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(colmap, stop_before, stop)
        with pytest.raises(KeyboardInterrupt):
            reconstruct(*corner, tmp_path, settings)
    made = DATABASE if stop_before == "map_photos" else f"{DATABASE}.partial"  # under its name once it is complete
    assert sorted(p.name for p in tmp_path.iterdir()) == [made, "settings.json"]
    models = reconstruct(*corner, tmp_path, settings)
    assert_same(read_model(models[0]), read_model(reconstructed[1][0]))


def test_work_of_other_settings_is_refused(corner, reconstructed, settings):
    with pytest.raises(FileExistsError, match=r"models of other photos or settings \(seed: 0 -> 1\)"):
        reconstruct(*corner, reconstructed[0], dataclasses.replace(settings, seed=1))
    with pytest.raises(FileExistsError, match=r"models of other photos or settings \(photos: other content\)"):
        reconstruct(corner[0], corner[1][:-1], reconstructed[0], settings)


def test_threads_and_an_unused_pairing_are_no_part_of_the_configuration():
    a, b = ReconstructSettings(threads=1, neighbours=7), ReconstructSettings(threads=2)
    assert a.config(200) == b.config(200) and a.config(201) != b.config(201)


def test_many_photos_are_matched_to_their_neighbours(corner, settings, tmp_path):
    few = dataclasses.replace(settings, exhaustive_up_to=5, neighbours=3)
    models = reconstruct(*corner, tmp_path, few)
    assert len(read_model(models[0]).names) >= 3
    # 0: 1 2 3, 1: 2 3 4, 2: 3 4 5, 3: 4 5, 4: 5
    assert colmap.database_counts(tmp_path / DATABASE)["verified pairs"] == 12


def test_points_of_two_photos_are_kept_on_demand(corner, reconstructed, settings, tmp_path):
    kept = reconstruct(*corner, tmp_path, dataclasses.replace(settings, two_view_tracks=True))
    few, many = (np.bincount(read_model(m[0]).point) for m in (reconstructed[1], kept))
    assert (many == 2).sum() > 2 * (few == 2).sum() and len(many) > len(few)


def test_photos_without_texture_are_reported_with_counts(settings, tmp_path):
    for name in ("a b.png", "\u00e9.png"):
        cv2.imwrite(str(tmp_path / name), np.full((60, 80), 200, np.uint8))
    for _ in range(2):  # the second call reads what the first kept
        with pytest.raises(NotReconstructed, match="2 photos, 0 features, 0 verified pairs, of 2 photos"):
            reconstruct(tmp_path, ["a b.png", "\u00e9.png"], tmp_path / "work", settings)


def test_photo_that_cannot_be_read_is_left_out_and_named(settings, tmp_path, caplog):
    for name in ("a.png", "b.png"):
        cv2.imwrite(str(tmp_path / name), np.full((60, 80), 200, np.uint8))
    (tmp_path / "empty.png").touch()
    names = ["a.png", "b.png", "empty.png"]
    with pytest.raises(NotReconstructed, match="2 photos, 0 features, 0 verified pairs, of 3 photos"):
        reconstruct(tmp_path, names, tmp_path / "work", settings)
    assert "1 of 3 photos" in caplog.text and "empty.png" in caplog.text
    with pytest.raises(ValueError, match=r"1 of 3 photos in .* cannot be read, first \['empty.png'\]"):
        reconstruct(tmp_path, names, tmp_path / "strict", settings, strict=True)


def test_one_photo_is_too_few(corner, settings, tmp_path):
    with pytest.raises(NotReconstructed, match="1 photo, expected at least 2"):
        reconstruct(corner[0], corner[1][:1], tmp_path, settings)


@pytest.mark.parametrize(("field", "value"), [("threads", 0), ("max_side_px", -1), ("seed", -1)])
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}, expected"):
        ReconstructSettings(**{field: value})
