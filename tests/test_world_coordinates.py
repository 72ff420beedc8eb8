"""Maps in world coordinates (UTM, ECEF) give what the same maps near the origin give, in every stage with a pose."""

import dataclasses
import json

import numpy as np
import pytest

from tests.support.exact_scene import CAMERA, make_scene
from tests.support.place import moved_model
from xdesc_jax.cli import main
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.camera_models import parse_camera
from xdesc_jax.colmap.cameras import choose_intrinsics
from xdesc_jax.colmap.lists import read_poses
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.alignment import align
from xdesc_jax.evaluate.poses import spacing
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.mapping.build import build_database
from xdesc_jax.mapping.mapper import triangulate, verify
from xdesc_jax.matching.feature_set import FeatureSet

UTM = np.array([441547.0, 5121946.0, 2345.0])
OFFSETS = [np.full(3, size) * [1, -1, 1] for size in (0.0, 1e4, 1e6, 5e6)] + [UTM]
offsets = pytest.mark.parametrize("offset", OFFSETS, ids=lambda offset: f"{offset[1]:.0f}")


@pytest.fixture
def moved(place, tmp_path, offset):
    """The place, its model and true poses moved by the offset."""
    model = moved_model(place.model, tmp_path / "moved", offset)
    poses = {name: pose.moved(offset) for name, pose in place.poses.items()}
    return dataclasses.replace(place, model=model, poses=poses)


@pytest.fixture(scope="module")
def localized(place):
    """Each query, in the place as it is."""
    return localize(place)


def localize(place):
    localizer, found = Localizer.open(place.model, [place.features["own-a"]]), {}
    with FeatureStore(place.features["own-a"]) as store:
        for name in place.queries:
            photo = store.read(name)
            found[name] = localizer.localize(photo.keypoints, photo.descriptors, place.cameras[name])
    return found


@offsets
def test_queries_are_localised_as_near_the_origin(moved, localized, offset):
    for name, found in localize(moved).items():
        free = localized[name]
        assert found.status == "localized" and found.inliers == free.inliers == 120
        np.testing.assert_allclose(found.pose.rotation, free.pose.rotation, atol=1e-6)
        np.testing.assert_allclose(found.pose.center - offset, free.pose.center, atol=1e-6)


@offsets
def test_covariances_are_those_near_the_origin(moved, localized, offset):
    for name, found in localize(moved).items():
        free = localized[name]
        scale = np.abs(free.position_covariance).max()
        np.testing.assert_allclose(found.position_covariance, free.position_covariance, rtol=1e-6, atol=1e-6 * scale)
        np.testing.assert_allclose(found.covariance[:3, :3], free.covariance[:3, :3], rtol=1e-6, atol=1e-12)
        # The translation of a moved world is t - R offset, so a small rotation moves it, too.
        turn = np.eye(6)
        turn[3:, :3] = np.cross(np.eye(3), free.pose.rotation @ offset)
        expected = turn @ free.covariance @ turn.T
        np.testing.assert_allclose(found.covariance, expected, rtol=1e-6, atol=1e-6 * np.abs(expected[3:, 3:]).max())


@offsets
def test_alignment_and_spacing_are_those_near_the_origin(place, moved, offset):
    model, free = read_model(moved.model), read_model(place.model)
    assert spacing(list(model.poses.values())) == pytest.approx(spacing(list(free.poses.values())), rel=1e-6)
    turn = Pose.from_quaternion(np.array([0.9, 0.1, -0.3, 0.2]), np.zeros(3)).rotation
    reference = {}
    for name, pose in free.poses.items():  # turned and three times as large, then moved
        center = 3 * turn @ pose.center
        rotation = pose.rotation @ turn.T
        reference[name] = Pose(rotation, -rotation @ center).moved(offset)
    for found, folder in ((model, moved.model), (free, place.model)):
        similarity = align(folder, found, reference, 0.1)
        assert similarity.scale == pytest.approx(3, rel=1e-6)
        for name, pose in found.poses.items():
            np.testing.assert_allclose(similarity.pose(pose).center, reference[name].center, atol=1e-5)
        np.testing.assert_allclose(
            similarity.points(found.points), 3 * free.points @ turn.T + offset, rtol=1e-12, atol=1e-4
        )


@offsets
def test_residuals_of_a_model_are_those_near_the_origin(place, moved, offset):
    np.testing.assert_allclose(read_model(moved.model).residual_px, read_model(place.model).residual_px, atol=1e-5)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A scene, its keypoints 0.5 px off, and its verified database."""
    scene, folder = make_scene(), tmp_path_factory.mktemp("scene")
    rng = np.random.default_rng(0)
    for xy in scene.xy.values():
        xy += rng.normal(scale=0.5, size=xy.shape)
    store, matches = scene.write_features(folder / "rows.h5"), scene.write_matches(folder / "matches.h5")
    with FeatureSet([store]) as features:
        sizes = {name: features.image_size(name) for name in features.names}
        cameras = choose_intrinsics(sizes, given=parse_camera(CAMERA, "test"))
        build_database(folder / "database.db", features, cameras, matches)
    verify(folder / "database.db", MappingSettings(threads=1))
    return scene, folder / "database.db"


def triangulated(scene, offset, folder):
    """The scene's poses moved by an offset, and the model that is triangulated from them."""
    exact, database = scene
    poses = {}
    for image in exact.model.images.values():
        rigid = image.cam_from_world()
        poses[image.name] = Pose(rigid.rotation.matrix(), np.array(rigid.translation)).moved(offset)
    return poses, read_model(triangulate(database, poses, folder, MappingSettings(threads=1)))


@offsets
def test_points_are_triangulated_as_near_the_origin(scene, offset, tmp_path):
    poses, model = triangulated(scene, offset, tmp_path / "there")
    _, free = triangulated(scene, np.zeros(3), tmp_path / "here")
    np.testing.assert_array_equal(model.point, free.point)
    np.testing.assert_allclose(model.points - offset, free.points, atol=1e-6)
    for name, pose in model.poses.items():  # they stay as they were given
        np.testing.assert_allclose(pose.rotation, poses[name].rotation, atol=1e-12)
        np.testing.assert_array_equal(pose.translation, poses[name].translation)


def update(place, folder, features, true):
    """Exit status of `map update` with the first query as the new photo and the second as a test; its summary."""
    listed = place.query_list.splitlines()
    for name, line in (("new", listed[0]), ("test", listed[1])):
        (folder / f"{name}.txt").write_text(line + "\n")
    words = ["map", "update", place.model, folder / "out", "--features", features, "--queries", folder / "new.txt"]
    words += ["--new-features", place.features["own-b"], "--test-queries", folder / "test.txt"]
    words += ["--test-features", place.features["own-b"], "--reference", true, "--scale", "relative"]
    assert main([str(word) for word in words]) == 0
    return json.loads((folder / "out" / "summary.json").read_text())


@pytest.mark.parametrize("offset", [UTM, OFFSETS[3]], ids=["utm", "ecef"])
def test_an_update_is_that_near_the_origin(place, moved, offset, tmp_path):
    with (
        FeatureStore(place.features["own-b"]) as store,
        StoreWriter(tmp_path / "translated.h5", store.spec, {"translated_from": "own-a"}) as writer,
    ):
        for name in place.names:
            writer.write(name, store.read(name))
    outs = {}
    for which, given, shift in (("here", place, np.zeros(3)), ("there", moved, offset)):
        folder = tmp_path / which
        true = write_reference(folder / "true", place, shift)
        outs[which] = (update(given, folder, tmp_path / "translated.h5", true), read_model(folder / "out" / "model"))
    (here, near), (there, far) = outs["here"], outs["there"]
    assert near.names == far.names and here["registered"] == there["registered"] == place.queries[:1]
    np.testing.assert_allclose(far.points - offset, near.points, atol=1e-8)
    np.testing.assert_array_equal(far.point, near.point)
    for name in near.names:
        np.testing.assert_allclose(far.poses[name].center - offset, near.poses[name].center, atol=1e-6)
    for a, b in zip(here["steps"], there["steps"], strict=True):
        assert {k: v for k, v in a.items() if k != "test"} == {k: v for k, v in b.items() if k != "test"}
        assert a["test"]["within"] == b["test"]["within"]
        assert a["test"]["median_position"] == pytest.approx(b["test"]["median_position"], abs=1e-6)
    with FeatureStore(tmp_path / "here/out/features.h5") as a, FeatureStore(tmp_path / "there/out/features.h5") as b:
        for name in a.names:
            np.testing.assert_array_equal(a.read(name).descriptors, b.read(name).descriptors)


def write_reference(folder, place, offset):
    """A model of the true poses of all photos, moved."""
    model = pycolmap.Reconstruction()
    folder.mkdir(parents=True)
    model.add_camera_with_trivial_rig(
        pycolmap.Camera(camera_id=1, model="SIMPLE_PINHOLE", width=8, height=6, params=[9, 4, 3])
    )
    for i, (name, pose) in enumerate(place.poses.items(), start=1):
        pose = pose.moved(offset)
        rigid = pycolmap.Rigid3d(pycolmap.Rotation3d(pose.rotation), pose.translation)
        model.add_image_with_trivial_frame(pycolmap.Image(name=name, camera_id=1, image_id=i), rigid)
    model.write(folder)
    return folder


@pytest.mark.parametrize("offset", [UTM, OFFSETS[3]], ids=["utm", "ecef"])
def test_figures_and_pictures_of_localised_queries_are_those_near_the_origin(place, moved, offset, tmp_path):
    queries = tmp_path / "queries.txt"
    queries.write_text(place.query_list)
    figures = []
    for which, given, shift in (("here", place, np.zeros(3)), ("there", moved, offset)):
        out, true = tmp_path / which, write_reference(tmp_path / which / "true", place, shift)
        words = ["localize", given.model, out / "found", "--features", place.features["own-a"], "--queries", queries]
        assert main([str(w) for w in [*words, "--pairs", "exhaustive"]]) == 0
        assert set(read_poses(out / "found" / "poses.txt")) == set(place.queries)
        words = ["evaluate", "localization", out / "found", "--reference", true, "--out", out / "errors"]
        assert main([str(w) for w in [*words, "--scale", "relative", "--map", given.model]]) == 0
        words = ["evaluate", "sfm", given.model, "--reference", true, "--out", out / "sfm", "--scale", "relative"]
        assert main([str(w) for w in words]) == 0
        figures.append([json.loads((out / name / "results.json").read_text()) for name in ("errors", "sfm")])
        figures[-1].append((out / "sfm" / "report.html").read_text().count("data:image/png"))
    (errors, sfm, drawn), (far_errors, far_sfm, far_drawn) = figures
    assert errors["within"] == far_errors["within"] and drawn == far_drawn
    assert far_errors["median_position"] == pytest.approx(errors["median_position"], abs=1e-6)
    assert far_sfm["aligned"] and far_sfm["within_pose"] == sfm["within_pose"]
    assert far_sfm["median_position"] == pytest.approx(sfm["median_position"], abs=1e-6)
