"""Maps, references and intrinsics of other programs, where stages take them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xdesc_jax import Localizer, cli
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.reference import reference_poses
from xdesc_jax.evaluate.localization import read_localized
from xdesc_jax.evaluate.poses import pose_errors


@pytest.fixture(scope="module")
def foreign(place, tmp_path_factory):
    """The place's map as `sfm_data.json` of OpenMVG, and the poses of all its photos as `transforms.json`."""
    folder = tmp_path_factory.mktemp("foreign")
    model = pycolmap.Reconstruction(place.model)
    images = sorted((model.images[i] for i in model.reg_image_ids()), key=lambda image: image.name)
    views, intrinsics, extrinsics = [], [], []
    for i, image in enumerate(images):
        camera = model.cameras[image.camera_id]
        f, cx, cy, k = camera.params.tolist()
        about = {"filename": f"map/{image.name}", "width": camera.width, "height": camera.height, "local_path": ""}
        about |= {"id_view": i, "id_intrinsic": i, "id_pose": i}
        views.append({"key": i, "value": {"ptr_wrapper": {"data": about}}})
        lens = {"width": camera.width, "height": camera.height, "focal_length": f, "disto_k1": [k]}
        lens["principal_point"] = [cx - 0.5, cy - 0.5]
        kind = {"polymorphic_id": 1, "polymorphic_name": "pinhole_radial_k1", "ptr_wrapper": {"data": lens}}
        intrinsics.append({"key": i, "value": kind})
        pose = image.cam_from_world()
        center = image.projection_center().tolist()
        extrinsics.append({"key": i, "value": {"rotation": pose.rotation.matrix().tolist(), "center": center}})
    place_of = {image.image_id: i for i, image in enumerate(images)}
    structure = []
    for number, point_id in enumerate(sorted(model.points3D)):
        seen = []
        for element in model.points3D[point_id].track.elements:
            if element.image_id in place_of:
                xy = model.images[element.image_id].points2D[element.point2D_idx].xy - 0.5
                value = {"id_feat": element.point2D_idx, "x": xy.tolist()}
                seen.append({"key": place_of[element.image_id], "value": value})
        structure.append({"key": number, "value": {"X": model.points3D[point_id].xyz.tolist(), "observations": seen}})
    content = {"sfm_data_version": "0.3", "views": views, "intrinsics": intrinsics, "extrinsics": extrinsics}
    (folder / "sfm_data.json").write_text(json.dumps({**content, "structure": structure}))
    frames = []
    for name, pose in place.poses.items():
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = pose.rotation.T @ np.diag([1, -1, -1]), pose.center
        camera = place.cameras[name]
        f, cx, cy, k = camera.params
        lens = {"fl_x": f, "cx": cx, "cy": cy, "w": camera.width, "h": camera.height, "k1": k}
        frames.append({"file_path": f"images/{name}", "transform_matrix": matrix.tolist(), **lens})
    (folder / "transforms.json").write_text(json.dumps({"frames": frames}))
    return folder


def test_a_map_of_openmvg_is_the_map_that_colmap_has(place, foreign):
    features = [place.features["own-a"]]
    ours, theirs = (Localizer.open(path, features).map for path in (foreign / "sfm_data.json", place.model))
    assert list(ours.photos) == list(theirs.photos)
    np.testing.assert_allclose(ours.points, theirs.points, atol=1e-12)
    for name, photo in theirs.photos.items():
        np.testing.assert_array_equal(ours.photos[name].point, photo.point)


def test_queries_are_localized_in_it_and_judged_by_another_program_s_poses(place, foreign, tmp_path, capsys):
    (tmp_path / "queries.txt").write_text("\n".join(place.queries) + "\n")
    words = ["localize", str(foreign / "sfm_data.json"), str(tmp_path / "out"), "--pairs", "exhaustive"]
    words += ["--features", str(place.features["own-a"]), "--queries", str(tmp_path / "queries.txt")]
    words += ["--intrinsics", str(foreign / "transforms.json")]
    assert cli.main(words) == 0
    settings = json.loads((tmp_path / "out" / "results.json").read_text())["settings"]
    assert list(settings["reconstruction"]) == ["sfm_data.json"]
    found, true = read_localized(tmp_path / "out"), reference_poses(foreign / "transforms.json", place.queries)
    errors = pose_errors(found.poses, true, place.queries, "metric")
    assert max(errors.position) < 0.05 and max(errors.rotation_deg) < 0.5
    capsys.readouterr()
    assert cli.main(words) == 0
    assert "up to date" in capsys.readouterr().out


def test_poses_alone_are_no_map_and_say_why(place, foreign, tmp_path):
    lacks = (
        "transforms.json: holds no 3D points, so nothing can be localised in it .it holds poses and intrinsics alone"
    )
    with pytest.raises(ValueError, match=lacks):
        Localizer.open(foreign / "transforms.json", [place.features["own-a"]])


def test_features_of_another_detection_are_refused(place, foreign, tmp_path):
    content = json.loads((foreign / "sfm_data.json").read_text())
    content["structure"][0]["value"]["observations"][0]["value"]["id_feat"] = 99999
    (tmp_path / "sfm_data.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="has a keypoint in row 99999 in the model .*, but 130 in "):
        Localizer.open(tmp_path, [place.features["own-a"]])


def test_only_a_model_of_colmap_is_updated(place, foreign, tmp_path, capsys):
    (tmp_path / "new.txt").write_text(place.query_list)
    words = [
        "map",
        "update",
        str(foreign / "sfm_data.json"),
        str(tmp_path / "out"),
        "--queries",
        str(tmp_path / "new.txt"),
    ]
    words += ["--features", str(place.features["own-a"]), "--new-features", str(place.features["own-a"])]
    assert cli.main(words) == 2
    assert "sfm_data.json: is of another program, and only a COLMAP model can be updated" in capsys.readouterr().err
