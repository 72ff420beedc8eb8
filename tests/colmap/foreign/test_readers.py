"""Models of other programs: the same scene written in each format reads back as the truth."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.support.foreign_scenes import NAMES, SIZE, WRITERS, opensfm, true_scene
from xdesc_jax.colmap.bindings.api import open_model, pycolmap, read_model
from xdesc_jax.colmap.cameras import read_intrinsics
from xdesc_jax.colmap.foreign.nvm import inverse_radial
from xdesc_jax.colmap.foreign.read import files_of, find, why_no_points
from xdesc_jax.colmap.reference import reference_poses

KINDS = [
    *(("transforms", kind) for kind in ("angle", "opencv", "k3", "fisheye", "frames")),
    *(
        ("opensfm", kind)
        for kind in ("perspective", "brown", "fisheye", "fisheye_opencv", "radial", "simple_radial", "spherical")
    ),
    *(
        ("openmvg", kind)
        for kind in ("pinhole", "pinhole_radial_k1", "pinhole_radial_k3", "pinhole_brown_t2", "fisheye", "spherical")
    ),
    ("bundler", ""),
    *(("nvm", kind) for kind in ("plain", "bent", "spread", "fixed")),
]
TRUE = true_scene()
KNOWN = dict.fromkeys(NAMES, SIZE)
TOLERANCE_PX = 1e-6


def projected(camera, pose) -> np.ndarray:
    """Where COLMAP's own code sees the true points."""
    made = pycolmap.Camera(model=camera.model, width=camera.width, height=camera.height, params=list(camera.params))
    return np.asarray(made.img_from_cam(TRUE.points @ pose.rotation.T + pose.translation))


@pytest.mark.parametrize(("format", "kind"), KINDS)
def test_cameras_and_poses_see_the_points_where_the_program_says(format, kind, tmp_path):
    path, seen = WRITERS[format](tmp_path, TRUE, kind)
    cameras, poses = read_intrinsics(path, KNOWN), reference_poses(path, NAMES)
    assert sorted(cameras) == sorted(poses) == sorted(NAMES)
    for view, name in enumerate(NAMES):
        np.testing.assert_allclose(poses[name].rotation, TRUE.rotations[view], atol=1e-12)
        np.testing.assert_allclose(poses[name].center, TRUE.centers[view], atol=1e-12)
        assert (cameras[name].width, cameras[name].height) == SIZE
        expected = np.array([seen[view, i] for i in range(len(TRUE.points))])
        np.testing.assert_allclose(projected(cameras[name], poses[name]), expected, atol=TOLERANCE_PX, rtol=0)


@pytest.mark.parametrize(("format", "kind"), [k for k in KINDS if k[0] != "transforms"])
def test_points_and_their_observations_are_a_model(format, kind, tmp_path):
    path, seen = WRITERS[format](tmp_path, TRUE, kind)
    model = read_model(path, KNOWN)
    assert model.names == tuple(sorted(NAMES)) and model.keypoint_counts is None
    np.testing.assert_array_equal(model.points, TRUE.points)
    assert len(model.point) == len(NAMES) * len(TRUE.points) and model.residual_px.max() < TOLERANCE_PX
    for point, view, row, xy in zip(model.point, model.view, model.keypoint, model.xy, strict=True):
        of = NAMES.index(model.names[view])
        assert row == 3 * point + of
        np.testing.assert_allclose(xy, seen[of, point], atol=TOLERANCE_PX, rtol=0)
    assert why_no_points(path) == ""
    opened = open_model(path) if format not in ("bundler", "nvm") else None
    assert opened is None or opened.num_points3D() == len(TRUE.points)


def test_a_model_of_poses_alone_has_no_points_and_says_why(tmp_path):
    path, _ = WRITERS["transforms"](tmp_path, TRUE, "opencv")
    model = read_model(path)
    assert model.points.shape == (0, 3) and model.names == tuple(sorted(NAMES))
    assert why_no_points(path) == "it holds poses and intrinsics alone, no points"
    path, _ = WRITERS["opensfm"](tmp_path, TRUE, "brown")
    (tmp_path / "tracks.csv").unlink()
    assert "tracks.csv is not beside it" in why_no_points(path)
    assert len(read_model(path).points) == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_opensfm_tracks_of_every_version_and_the_largest_reconstruction(version, tmp_path, caplog):
    path, _ = opensfm(tmp_path, TRUE, "brown", version)
    assert len(read_model(path).point) == len(NAMES) * len(TRUE.points)
    assert ("of its 2 reconstructions the largest is taken, 4 photos" in caplog.text) == (version == 1)


@pytest.mark.parametrize("format", WRITERS)
def test_a_folder_is_known_by_the_file_in_it(format, tmp_path):
    kind = next(kind for f, kind in KINDS if f == format)
    path, _ = WRITERS[format](tmp_path, TRUE, kind)
    assert find(path) == find(path.parent) == path
    extra = {"opensfm": ["tracks.csv"], "bundler": ["list.txt"]}.get(format, [])
    assert [file.name for file in files_of(path.parent)] == [path.name, *extra]
    (path.parent / "images.bin").touch()
    assert find(path.parent) is None  # COLMAP's comes first


def test_sizes_come_from_the_photos_where_nothing_else_says_them(tmp_path):
    from PIL import Image

    path, seen = WRITERS["bundler"](tmp_path, TRUE, "")
    with pytest.raises(ValueError, match=r"bundle.out: does not say the size .*left/a 1.jpg' \(first of 4\)"):
        read_intrinsics(path)
    assert len(reference_poses(path)) == 4  # which need no size
    for name in (*NAMES, "right/lost.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", SIZE).save(tmp_path / "images" / name)
    cameras, poses = read_intrinsics(path), reference_poses(path)
    expected = np.array([seen[1, i] for i in range(len(TRUE.points))])
    np.testing.assert_allclose(projected(cameras[NAMES[1]], poses[NAMES[1]]), expected, atol=TOLERANCE_PX, rtol=0)


def test_photos_that_are_not_asked_for_need_no_size(tmp_path):
    path, _ = WRITERS["nvm"](tmp_path, TRUE, "plain")
    assert list(read_intrinsics(path, {NAMES[2]: SIZE})) == [NAMES[2]]


def test_nerf_s_synthetic_scenes_leave_out_suffixes_and_sizes(tmp_path):
    path, _ = WRITERS["transforms"](tmp_path, TRUE, "angle")
    content = json.loads(path.read_text())
    del content["w"], content["h"]
    for i, frame in enumerate(content["frames"]):
        frame["file_path"] = f"./train/r_{i}"
    path.write_text(json.dumps(content))
    sizes = {f"r_{i}.png": SIZE for i in range(4)}
    cameras = read_intrinsics(path, sizes)
    assert sorted(cameras) == sorted(sizes)
    np.testing.assert_allclose(cameras["r_0.png"].params, (720.5, 720.5, 501, 250.5), atol=1e-9)


@pytest.mark.parametrize("r", [-0.1, -0.03, 0.04, 0.1])
def test_the_inverse_of_visualsfm_s_distortion(r):
    """Against Newton's method on u = m (1 + r m^2), within 35 degrees."""
    k1, k2, k3, k4, k5, k6 = inverse_radial(r)
    for u in np.linspace(0.01, 0.7, 9):
        m = u
        for _ in range(80):
            m -= (m + r * m**3 - u) / (1 + 3 * r * m * m)
        z = u * u
        s = (1 + k1 * z + k2 * z**2 + k3 * z**3) / (1 + k4 * z + k5 * z**2 + k6 * z**3)
        assert abs(u * s - m) < 1e-7


# --- What is wrong with a file -----------------------------------------------------------------------------

BROKEN = [
    ("transforms", "opencv", '"fl_x": 720.5', '"fl_x": "far"', r"transforms.json: 'frames'\[0\]: 'fl_x' is 'far'"),
    ("transforms", "opencv", '"file_path"', '"file"', r"transforms.json: 'frames'\[0\]: 'file_path' is missing"),
    ("transforms", "opencv", '"fl_x": 720.5,\n  "fl_y"', '"x"', r"'frames'\[0\]: says no focal length"),
    ("transforms", "opencv", '"OPENCV"', '"OMNI"', "camera model is 'OMNI', expected one of OPENCV"),
    ("transforms", "k3", '"k4": 0', '"k4": 0.5', "'k4' is 0.5, a term of r.8, which no camera model of COLMAP has"),
    ("transforms", "opencv", '"w": 1002', '"w": 1002.5', "'w' is 1002.5, expected a whole number"),
    ("transforms", "angle", '"camera_angle_x": 1', '"camera_angle_x": 9', "field of view along x is 9.* rad"),
    ("transforms", "opencv", '"frames"', '"images"', "transforms.json: is a JSON of .*'images'.* expected transforms"),
    (
        "opensfm",
        "brown",
        '"focal_x"',
        '"focal"',
        "reconstruction 0: 'cameras': 'v2 lens': 'focal_x' is missing",
    ),
    ("opensfm", "brown", '"brown"', '"dual"', "projection is 'dual', expected one of perspective, fisheye, brown"),
    ("opensfm", "brown", '"camera": "v2 lens"', '"camera": "v3"', "its camera is 'v3', which 'cameras' does not hold"),
    ("opensfm", "brown", '"translation": [', '"translation": [1, ', r"'translation' is \[1, .* expected 3 numbers"),
    ("openmvg", "fisheye", '"fisheye": [0.03', '"fisheye": [true', "'fisheye' is True, expected a number"),
    (
        "openmvg",
        "pinhole",
        '"pinhole"',
        '"pinhole_new"',
        "type of the camera is 'pinhole_new', expected one of pinho",
    ),
    (
        "openmvg",
        "pinhole",
        '"id_intrinsic": 4',
        '"id_intrinsic": 9',
        "'id_intrinsic' is 9, which 'intrinsics' does",
    ),
    ("openmvg", "pinhole", '"rotation": [[', '"rotation": [[7', "'rotation' is .* expected a rotation"),
    ("openmvg", "pinhole", '"id_feat": 0', '"id_feat": -1', "'id_feat' is -1, expected a whole number"),
    ("bundler", "", "720.5 -0.09", "720.5 nan", "bundle.out: camera 0 holds 'nan', expected a number"),
    ("bundler", "", "5 23", "4 23", "bundle.out: has 4 cameras, but .*list.txt lists 5 photos"),
    ("bundler", "", "5 23", "5 22", "bundle.out: holds more than it says"),
    ("nvm", "plain", "NVM_V3", "NVM_V9", "scene.nvm:1: begins with 'NVM_V9 ', expected NVM_V3"),
    ("nvm", "plain", "9 8 7 4 0 0", "9 8 7 5 0 0", "scene.nvm:10: a point of 23 numbers, which its number of views"),
    ("nvm", "plain", "9 8 7 4 0 0", "9 8 7 4 6 0", "scene.nvm:10: is seen by feature 0 of photo 6 of 4"),
    ("nvm", "plain", "\t720.5 ", "\tx ", "scene.nvm:4: a camera holds 'x', expected a number"),
]


@pytest.mark.parametrize(("format", "kind", "before", "after", "message"), BROKEN)
def test_what_cannot_be_is_told_with_file_and_value(format, kind, before, after, message, tmp_path):
    path, _ = WRITERS[format](tmp_path, TRUE, kind)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(ValueError, match=message) as error:
        read_model(path, KNOWN)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("share", [0.3, 0.8, 0.97])
@pytest.mark.parametrize("format", WRITERS)
def test_a_file_that_is_cut_short_is_refused(format, share, tmp_path):
    path, _ = WRITERS[format](tmp_path, TRUE, next(kind for f, kind in KINDS if f == format))
    text = path.read_text()
    path.write_text(text[: int(share * len(text.rstrip(" \n")[: text.find("#the last")]))])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        read_model(path, KNOWN)


def test_tracks_of_another_form_are_told_with_their_line(tmp_path):
    path, _ = opensfm(tmp_path, TRUE, "brown")
    tracks = tmp_path / "tracks.csv"
    good = tracks.read_text()
    tracks.write_text(good.replace("\t-1\n", "\n", 1))
    with pytest.raises(ValueError, match=r"tracks.csv:2: 10 values, expected 11 with tabs between"):
        read_model(path)
    tracks.write_text(good.replace("_v2", "_v3"))
    with pytest.raises(ValueError, match="tracks.csv:1: tracks have version '3'"):
        read_model(path)


def test_a_bundle_file_without_its_list_is_told(tmp_path):
    path, _ = WRITERS["bundler"](tmp_path, TRUE, "")
    (tmp_path / "list.txt").unlink()
    with pytest.raises(FileNotFoundError, match="bundle.out: the list of its photos is neither beside it"):
        reference_poses(path)


def test_a_keypoint_that_sees_two_points_counts_once(tmp_path, caplog):
    path, _ = WRITERS["openmvg"](tmp_path, TRUE, "pinhole")
    path.write_text(path.read_text().replace('"id_feat": 3,', '"id_feat": 0,'))  # of point 1 in the first photo
    assert len(read_model(path).point) == len(NAMES) * len(TRUE.points) - 1
    assert "1 keypoint sees several points; the first of each is taken" in caplog.text
