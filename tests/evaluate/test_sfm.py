"""Reconstructions against a reference: figures as COLMAP's own, shares by hand, what cannot be aligned."""

import json

import numpy as np
import pytest

from tests.evaluate.test_alignment import MOVED
from tests.support.feature_files import write_store
from tests.support.html_page import HtmlPage
from xdesc_jax.cli import main
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.alignment import NotAlignable
from xdesc_jax.evaluate.sfm import measure


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A noisy model of 9 photos, and the true one with 11 in metres, moved."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_cameras_per_rig, options.num_rigs, options.num_frames_per_rig, options.num_points3D = 1, 1, 11, 60
    pycolmap.set_random_seed(3)
    model = pycolmap.synthesize_dataset(options)
    root = tmp_path_factory.mktemp("sfm")
    for name in ("found", "true"):
        (root / name).mkdir()
    moved = pycolmap.Reconstruction(model)
    moved.transform(pycolmap.Sim3d(MOVED.scale, pycolmap.Rotation3d(MOVED.rotation), MOVED.translation))
    moved.write_text(root / "true")
    noise = pycolmap.SyntheticNoiseOptions()
    noise.point2D_stddev = 0.5
    pycolmap.synthesize_noise(noise, model)
    for image_id in sorted(model.reg_image_ids())[:2]:
        model.deregister_frame(model.images[image_id].frame_id)
    model.write(root / "found")
    return root


def test_figures_are_those_of_colmap(place, tmp_path):
    colmap = pycolmap.Reconstruction(place / "found")
    for point_id in sorted(colmap.points3D)[::2]:  # tracks of two lengths, so that points do not weigh alike
        seen = [(e.image_id, e.point2D_idx) for e in colmap.points3D[point_id].track.elements]
        for observation in seen[3:]:
            colmap.delete_observation(*observation)
    colmap.write(tmp_path)
    colmap.update_point_3d_errors()
    model = read_model(tmp_path)
    result = measure(tmp_path, model, read_model(place / "true").poses, model.names, "metric")
    assert (result.points, result.observations) == (colmap.num_points3D(), colmap.compute_num_observations())
    assert result.track_length == pytest.approx(colmap.compute_mean_track_length())
    assert result.reprojection_px == pytest.approx(colmap.compute_mean_reprojection_error(), rel=1e-6)
    assert abs(result.reprojection_px - np.mean(model.residual_px)) > 1e-3  # the mean over observations


def test_photos_that_are_not_registered_are_not_near(place):
    truth = read_model(place / "true")
    result = measure(place / "found", read_model(place / "found"), truth.poses, truth.names, "relative")
    assert (result.asked, result.registered) == (11, 9)
    assert result.errors.within(0.1) == pytest.approx(9 / 11) and result.errors.within(np.inf) == 1
    assert result.errors.found.sum() == 9


def test_a_model_is_aligned_within_the_largest_threshold_by_the_seed_given(place, monkeypatch):
    """0.5 of the reference's spacing, and 0.5 m."""
    truth, given = read_model(place / "true"), []
    centers = np.array([pose.center for pose in truth.poses.values()])
    apart = np.linalg.norm(centers[:, None] - centers, axis=2)
    nearest = np.sort(apart, axis=1)[:, 1]

    def refused(path, model, reference, max_error, seed):
        given.append((max_error, seed))
        raise NotAlignable("watched")

    monkeypatch.setattr("xdesc_jax.evaluate.sfm.align", refused)
    for scale in ("relative", "metric"):
        measure(place / "found", read_model(place / "found"), truth.poses, truth.names, scale, seed=7)
    assert given == [(pytest.approx(np.median(nearest) / 2), 7), (0.5, 7)]


def test_what_cannot_be_aligned_has_its_reason_and_no_shares(place):
    model = read_model(place / "found")
    line = {name: Pose(np.eye(3), np.array([i, 0.0, 0.0])) for i, name in enumerate(model.names)}
    value = measure(place / "found", model, line, model.names, "metric").to_dict()
    assert value["aligned"] is False and "on one line" in value["reason"]
    assert "within_position" not in value and value["points"] == 60


def test_command_writes_table_json_and_page(place, tmp_path, capsys):
    model = read_model(place / "found")
    kinds = {name: ("sift", "hardnet")[i % 2] for i, name in enumerate(model.names)}
    stores = [write_store(tmp_path, kind, [n for n, k in kinds.items() if k == kind]) for kind in ("sift", "hardnet")]
    out = tmp_path / "out"
    words = ["evaluate", "sfm", str(place / "found"), "--reference", str(place / "true"), "--out", str(out)]
    assert main([*words, "--scale", "relative", "--features", *map(str, stores)]) == 0
    value = json.loads((out / "results.json").read_text())
    assert value["registered"] == 9 and value["covisibility"]["kinds"] == ["hardnet", "sift"]
    assert sum(value["covisibility"]["by_count"]) == pytest.approx(1)
    assert (
        len(value["per_photo"]) == 11
        and list(value["per_photo"].values()).count({"position": None, "rotation_deg": None}) == 2
    )
    page = HtmlPage.read(out / "report.html")
    page.check()
    # The 9 that are registered are noise away from their true poses.
    assert page.by_class["answer"] == ["9 of 11 photos registered, 9 of them within 0.1 u, 2 deg of the true pose."]
    assert page.by_class["numbers"][0].count("3D points, ") == 1 and "60" in page.by_class["numbers"][0].split()
    assert page.headings[1:4] == ["Model", "Co-visibility", "Photos"]
    assert page.source.count("data:image/png") == 4 * 3  # each light and dark, wide and narrow
    assert "registered within 0.1 u, 2 deg" in capsys.readouterr().out


def test_folder_without_a_model_is_named(tmp_path, capsys):
    assert main(["evaluate", "sfm", str(tmp_path), "--reference", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
    assert "holds no COLMAP model" in capsys.readouterr().err


def test_a_reference_of_one_camera_is_named(place, tmp_path, capsys):
    alone = pycolmap.Reconstruction(place / "true")
    for image_id in sorted(alone.reg_image_ids())[1:]:
        alone.deregister_frame(alone.images[image_id].frame_id)
    (tmp_path / "one").mkdir()
    alone.write_text(tmp_path / "one")
    words = ["--reference", str(tmp_path / "one"), "--out", str(tmp_path / "out"), "--scale", "relative"]
    assert main(["evaluate", "sfm", str(place / "found"), *words]) == 2
    assert f"{tmp_path / 'one'} has 1 camera," in " ".join(capsys.readouterr().err.split())
