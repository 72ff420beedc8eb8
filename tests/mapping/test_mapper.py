"""Mapping and triangulation of exact scenes, and what happens where photos do not connect."""

import dataclasses
import json

import numpy as np
import pytest

from tests.support.exact_scene import CAMERA, NAMES, aligned_error, make_scene
from tests.support.unheld import photos_with_own_cameras, unheld
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.bindings.mapper import model_figures
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.camera_models import parse_camera
from xdesc_jax.colmap.cameras import choose_intrinsics
from xdesc_jax.mapping import mapper
from xdesc_jax.mapping.build import build_database
from xdesc_jax.mapping.mapper import NotReconstructed, map_incrementally, triangulate, verify
from xdesc_jax.matching.feature_set import FeatureSet

SETTINGS = MappingSettings(threads=1)


@pytest.fixture(scope="module")
def scene():
    return make_scene()


def database_of(scene, folder, *, of=None, camera=CAMERA, **features):
    """A database of the scene with one camera a photo; matches as `of` says."""
    store = scene.write_features(folder / "rows.h5", **features)
    matches = scene.write_matches(folder / "matches.h5", of)
    with FeatureSet([store]) as feature_set:
        sizes = {name: feature_set.image_size(name) for name in feature_set.names}
        chosen = choose_intrinsics(sizes, given=parse_camera(camera, "test") if camera else None)
        build_database(folder / "database.db", feature_set, chosen, matches)
    return folder / "database.db"


@pytest.fixture(scope="module")
def database(scene, tmp_path_factory):
    """Verified, with given cameras."""
    path = database_of(scene, tmp_path_factory.mktemp("exact"))
    verify(path, SETTINGS)
    return path


@pytest.fixture(scope="module")
def mapped(database):
    return map_incrementally(database, database.with_name("models"), SETTINGS)


def centers(model):
    return -np.einsum("nji,nj->ni", model.rotations, model.translations)


def test_exact_keypoints_give_the_true_cameras(scene, mapped):
    model = read_model(mapped[0])
    assert model.names == tuple(sorted(NAMES))
    assert aligned_error(centers(model), scene.centers(model.names)) < 1e-4
    assert model_figures(mapped[0])["mean_reprojection_error_px"] < 0.01


def test_given_cameras_are_not_refined_unless_asked(scene, tmp_path):
    path = database_of(scene, tmp_path, camera=CAMERA.replace("1280", "1290"))
    verify(path, SETTINGS)
    kept = read_model(map_incrementally(path, tmp_path / "kept", SETTINGS)[0])
    assert {c.params for c in kept.cameras} == {(1290.0, 512.0, 384.0, 0.05)}
    asked = dataclasses.replace(SETTINGS, refine_intrinsics="all")
    refined = read_model(map_incrementally(path, tmp_path / "refined", asked)[0])
    np.testing.assert_allclose(refined.focals_px, 1280, rtol=1e-3)


def test_guessed_cameras_are_refined_unless_told_to_stay(scene, tmp_path):
    path = database_of(scene, tmp_path, camera=None)
    verify(path, SETTINGS)
    model = read_model(map_incrementally(path, tmp_path / "m", SETTINGS)[0])
    np.testing.assert_allclose(model.focals_px, 1280, rtol=1e-3)  # from 1.2 * 1024
    kept = read_model(map_incrementally(path, tmp_path / "k", MappingSettings(refine_intrinsics="none"))[0])
    np.testing.assert_array_equal(kept.focals_px, 1.2 * 1024)


def test_triangulated_points_are_the_true_ones(scene, database, tmp_path):
    poses = read_model(scene.write_model(tmp_path / "true")).poses
    model = read_model(triangulate(database, poses, tmp_path / "models", SETTINGS))
    assert model.names == tuple(sorted(NAMES))
    for name, pose in model.poses.items():
        np.testing.assert_allclose(pose.rotation, poses[name].rotation, atol=1e-12)
        np.testing.assert_allclose(pose.translation, poses[name].translation, atol=1e-12)
    true = {point_id: point.xyz for point_id, point in scene.model.points3D.items()}
    names = np.array(model.names)[model.view]
    of = np.array([scene.point[name][row] for name, row in zip(names, model.keypoint, strict=True)])
    assert len(model.points) == len(true) and (of >= 0).all()
    np.testing.assert_allclose(model.points[model.point], [true[i] for i in of], atol=1e-3)
    assert model.residual_px.max() < 0.01


def test_keypoints_of_the_wrong_origin_do_not_fit_the_given_poses(scene, tmp_path):
    path = database_of(scene, tmp_path, origin_px=0.0)
    verify(path, SETTINGS)
    poses = read_model(scene.write_model(tmp_path / "true")).poses
    figures = model_figures(triangulate(path, poses, tmp_path / "models", SETTINGS))
    assert 0.1 < figures["mean_reprojection_error_px"] < 1


def test_poses_join_by_name_and_a_photo_without_one_is_named(scene, database, tmp_path):
    """Ids of the model follow NAMES, those of the database the alphabet."""
    poses = read_model(scene.write_model(tmp_path / "true")).poses
    with pycolmap.Database.open(database) as db:
        assert [scene.model.images[i.image_id].name for i in db.read_all_images()] != sorted(NAMES)
    del poses["a b.jpg"], poses["z.jpg"]
    with pytest.raises(ValueError, match=r"2 of 6 photos have no given pose, first \['a b.jpg', 'z.jpg'\]"):
        triangulate(database, poses, tmp_path / "models", SETTINGS)
    assert not (tmp_path / "models").exists()


def test_two_groups_give_two_models_and_the_larger_comes_first(tmp_path):
    names = [f"{i}.jpg" for i in range(10)]
    scene = make_scene(names, points=150)

    def within_groups(a, b):
        return scene.matches(a, b) if (a < "4.jpg") == (b < "4.jpg") else None

    path = database_of(scene, tmp_path, of=within_groups)
    verify(path, SETTINGS)
    models = map_incrementally(path, tmp_path / "models", SETTINGS)
    assert [read_model(m).names for m in models] == [tuple(names[4:]), tuple(names[:4])]
    assert [m.name for m in models] == ["0", "1"]


def test_a_photo_that_sees_no_point_is_no_part_of_a_model(database, tmp_path, monkeypatch):
    """COLMAP itself takes it out of models of 20 photos and more alone."""
    made, alone = photos_with_own_cameras(), photos_with_own_cameras()
    lost = unheld(made)
    for point_id in list(alone.points3D):
        alone.delete_point3D(point_id)
    monkeypatch.setattr(pycolmap, "incremental_mapping", lambda *args, **kwargs: {0: alone, 1: made}, raising=False)
    (folder,) = map_incrementally(database, tmp_path / "models", SETTINGS)
    model = read_model(folder)
    assert len(model.names) == 5 and lost not in model.names
    assert len(model.points) == 40 and model_figures(folder)["photos"] == 5


def test_no_matches_at_all_are_the_reason(scene, tmp_path):
    path = database_of(scene, tmp_path, of=lambda a, b: None)
    with pytest.raises(NotReconstructed, match="no pair of its 6 photos has matches"):
        verify(path, SETTINGS)


def test_matches_that_agree_on_nothing_are_the_reason(scene, tmp_path):
    rng = np.random.default_rng(0)
    path = database_of(scene, tmp_path, of=lambda a, b: np.stack([np.arange(20), rng.permutation(20)], axis=1))
    with pytest.raises(NotReconstructed, match=r"15 pairs have matches \(at most 20\), but none passed .* for 15 that"):
        verify(path, SETTINGS)


def test_verified_pairs_without_a_model_are_the_reason(scene, tmp_path):
    path = database_of(scene, tmp_path, of=lambda a, b: scene.matches(a, b)[:20])
    assert verify(path, SETTINGS).verified == 15
    with pytest.raises(NotReconstructed, match="15 of 15 pairs with matches are verified, but no pair of the 6"):
        map_incrementally(path, tmp_path / "models", SETTINGS)
    assert not (tmp_path / "models").exists()


def test_verification_is_that_of_colmap_and_does_not_depend_on_threads(scene, tmp_path):
    def verified(folder, run):
        folder.mkdir()
        path = database_of(scene, folder)
        run(path)
        with pycolmap.Database.open(path) as db:
            pairs, geometries = db.read_two_view_geometries()
        return {i: (g.config, g.inlier_matches.tolist()) for i, g in zip(pairs, geometries, strict=True)}

    def by_colmap(path):
        options = pycolmap.TwoViewGeometryOptions()
        options.ransac.random_seed = 0
        pycolmap.geometric_verification(path, two_view_geometry_options=options)

    expected = verified(tmp_path / "colmap", by_colmap)
    assert len(expected) == 15
    for threads in (1, 3):
        settings = dataclasses.replace(SETTINGS, threads=threads)
        assert verified(tmp_path / str(threads), lambda path, s=settings: verify(path, s)) == expected


def test_stopped_verification_goes_on_with_the_rest(scene, tmp_path, monkeypatch):
    path = database_of(scene, tmp_path)
    monkeypatch.setattr(mapper.colmap, "_PAIRS_AT_ONCE", 4)
    pairs = mapper.colmap.unverified_pairs(path)

    def stop(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mapper.colmap.verify_pairs(path, pairs, SETTINGS, stop)
    assert mapper.colmap.unverified_pairs(path) == pairs[4:]
    assert verify(path, SETTINGS).verified == 15


def test_one_thread_and_one_seed_repeat_the_model(database, mapped, tmp_path):
    again = map_incrementally(database, tmp_path / "models", SETTINGS)
    a, b = read_model(mapped[0]), read_model(again[0])
    for field in dataclasses.fields(a):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


@pytest.mark.parametrize(
    ("field", "value"), [("threads", 0), ("min_model_size", 1), ("max_error_px", 0.0), ("refine_intrinsics", "some")]
)
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value!r}, expected"):
        MappingSettings(**{field: value})


def test_threads_are_no_part_of_the_configuration():
    assert MappingSettings(threads=1).config() == MappingSettings(threads=5).config()
    json.dumps(MappingSettings().config())
