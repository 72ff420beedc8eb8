"""Localising queries in a synthetic place whose true poses are known."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

from tests.support.place import rewrite
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.model import Camera
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.localization import localizer as localizer_module
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.outcome import PoseSettings
from xdesc_jax.translation.translator import Translator


def features(place, name, descriptor="own-a"):
    with FeatureStore(place.features[descriptor]) as store:
        return store.read(name)


def arguments(place, name, descriptor="own-a"):
    photo = features(place, name, descriptor)
    return photo.keypoints, photo.descriptors, place.cameras[name]


@pytest.fixture(scope="module")
def localizer(place):
    return Localizer.open(place.model, [place.features["own-a"]])


def project(localizer, camera, pose, point):
    intrinsics = pycolmap.Camera(model=camera.model, width=camera.width, height=camera.height, params=camera.params)
    return intrinsics.img_from_cam(localizer.map.points[point] @ pose.rotation.T + pose.translation)


def reprojection_px(localizer, place, name, found):
    """Mean distance of the inliers' points, projected with the pose found, from where they truly project to."""
    camera = place.cameras[name]
    poses = (found.pose, place.poses[name])
    a, b = (project(localizer, camera, pose, found.inlier_points) for pose in poses)
    return np.linalg.norm(a - b, axis=1).mean()


def check_exact(place, name, found):
    assert found.status == "localized" and found.reason is None
    np.testing.assert_allclose(found.pose.rotation, place.poses[name].rotation, atol=1e-5)
    np.testing.assert_allclose(found.pose.translation, place.poses[name].translation, atol=1e-4)


def test_the_exact_pose_is_found(place, localizer):
    for name in place.queries:
        found = localizer.localize(*arguments(place, name))
        check_exact(place, name, found)
        assert found.inliers == found.matches == 120 and found.inlier_ratio == 1
        assert found.covariance.shape == (6, 6)
        assert set(found.seconds) == {"retrieval", "translation", "matching", "pose", "total"}
        assert set(found.candidates) == set(place.names)


def test_the_origin_is_shifted_once(place, localizer):
    """By no shift or two, points project 0.7 px from where they truly do."""
    name = place.queries[0]
    keypoints, rows, camera = arguments(place, name)
    assert reprojection_px(localizer, place, name, localizer.localize(keypoints, rows, camera)) < 0.01
    for shift in (-0.5, 0.5):
        found = localizer.localize(keypoints + shift, rows, camera)
        assert reprojection_px(localizer, place, name, found) > 0.5


def test_inliers_say_which_keypoint_observes_which_point(place, localizer):
    name = place.queries[0]
    keypoints, rows, camera = arguments(place, name)
    found = localizer.localize(keypoints, rows, camera)
    projected = project(localizer, camera, place.poses[name], found.inlier_points)
    np.testing.assert_allclose(projected, keypoints[found.inlier_keypoints] + 0.5, atol=1e-3)


@pytest.mark.parametrize(
    ("mode", "target", "query"),
    [("embed", None, "own-b"), ("embed", None, "own-a"), ("directional", "own-b", "own-b"),
     ("directional", None, "own-b")],
)  # fmt: skip
def test_other_descriptors_are_localised(place, mode, target, query):
    localizer = Localizer.open(
        place.model, [place.features["own-a"]], translator=place.translator, mode=mode, target=target
    )
    name = place.queries[1]
    found = localizer.localize(*arguments(place, name, query), descriptor=query)
    check_exact(place, name, found)
    assert found.matches == 120


def test_without_translation_another_descriptor_fails(place, localizer):
    """Rows of `own-b` said to be `own-a`: a failure with its reason, not a pose."""
    keypoints, rows, camera = arguments(place, place.queries[0], "own-b")
    found = localizer.localize(keypoints, rows, camera)
    assert found.status == "failed" and found.pose is None and found.covariance is None
    assert "matches to 3D points, expected 12" in found.reason


def test_the_map_may_be_of_several_descriptors(place, tmp_path):
    first = place.names[:3]
    parts = [
        rewrite(place.features["own-a"], tmp_path / "a.h5", lambda n, p: p if n in first else None),
        rewrite(place.features["own-b"], tmp_path / "b.h5", lambda n, p: p if n not in first else None),
    ]
    name = place.queries[0]
    for mode in ("embed", "directional"):
        localizer = Localizer.open(place.model, parts, translator=place.translator, mode=mode)
        check_exact(place, name, localizer.localize(*arguments(place, name), descriptor="own-a"))
    with pytest.raises(ValueError, match="say which descriptor the query holds; the map's rows are own-a, own-b"):
        localizer.localize(*arguments(place, name))


def test_a_descriptor_that_only_the_model_knows_may_be_that_of_the_map(place, tmp_path):
    """The map's file does not say what it holds, as hloc's do not."""
    path = tmp_path / "map.h5"
    with FeatureStore(place.features["own-a"]) as store, h5py.File(path, "w") as file:
        for name, photo in store:
            file[f"{name}/keypoints"], file[f"{name}/descriptors"] = photo.keypoints, photo.descriptors.T
            file[f"{name}/image_size"] = np.array(photo.image_size)
    opened = Localizer.open(place.model, [path], translator=place.translator, mode="embed", descriptor="own-a")
    check_exact(place, place.queries[0], opened.localize(*arguments(place, place.queries[0]), descriptor="own-a"))


def test_a_query_says_its_descriptor_where_rows_meet_in_the_joint_space(place):
    opened = Localizer.open(place.model, [place.features["own-a"]], translator=place.translator, mode="embed")
    with pytest.raises(ValueError, match="say which descriptor the query holds; the map's rows are embedding"):
        opened.localize(*arguments(place, place.queries[0]))


def test_threads_find_what_one_finds(place):
    localizer = Localizer.open(
        place.model, [place.features["own-a"]], translator=Translator.load(place.translator), mode="embed", retrieval=4
    )
    photos = [arguments(place, name, "own-b") for name in (place.queries + place.names) * 2]

    def work(given):
        return localizer.localize(*given, descriptor="own-b")

    serial = [work(given) for given in photos]
    with ThreadPoolExecutor(4) as pool:
        threaded = list(pool.map(work, photos))
    for a, b in zip(serial, threaded, strict=True):
        assert (a.status, a.inliers, a.matches, a.candidates) == (b.status, b.inliers, b.matches, b.candidates)
        np.testing.assert_array_equal(a.pose.rotation, b.pose.rotation)
        np.testing.assert_array_equal(a.pose.translation, b.pose.translation)


def test_retrieval_gives_the_candidates(place):
    localizer = Localizer.open(
        place.model, [place.features["own-a"]], translator=place.translator, retrieval=2, mode="directional",
        target="own-b",
    )  # fmt: skip
    name = place.names[3]
    found = localizer.localize(*arguments(place, name, "own-b"))
    assert len(found.candidates) == 2 and found.candidates[0] == name
    check_exact(place, name, found)


def test_candidates_are_matched_alone(place, localizer):
    found = localizer.localize(*arguments(place, place.queries[0]), candidates=[place.names[1], place.names[1]])
    assert found.candidates == (place.names[1],)
    with pytest.raises(ValueError, match="1 candidate is no photo of the map, first .'absent.jpg'"):
        localizer.localize(*arguments(place, place.queries[0]), candidates=["absent.jpg"])


def test_excluded_photos_are_not_matched(place, localizer):
    name = place.names[3]
    found = localizer.localize(*arguments(place, name), exclude=[name])
    assert set(found.candidates) == set(place.names) - {name}
    check_exact(place, name, found)
    retrieving = Localizer.open(
        place.model, [place.features["own-a"]], translator=place.translator, mode="embed", retrieval=2
    )
    found = retrieving.localize(*arguments(place, name), descriptor="own-a", exclude=[name])
    assert len(found.candidates) == 2 and name not in found.candidates


def test_the_ratio_test_asks_all_keypoints_of_a_photo(place, tmp_path):
    """A keypoint without a 3D point that resembles the query's as much makes the match doubtful."""
    model = Localizer.open(place.model, [place.features["own-a"]]).map

    def twin(name, photo):
        rows = photo.descriptors.copy()
        if name in model.photos:
            point = model.photos[name].point
            free = np.flatnonzero(point < 0)
            twins = np.flatnonzero(point >= 0)[: len(free)]
            rows[free] = rows[twins] + 1e-3
        return dataclasses.replace(photo, descriptors=unit_rows(rows))

    twins = rewrite(place.features["own-a"], tmp_path / "twins.h5", twin)
    localizer = Localizer.open(place.model, [twins])
    name = place.queries[0]
    one = localizer.localize(*arguments(place, name), candidates=[place.names[0]])
    assert one.matches == 110


def test_queries_without_anything_to_match_fail_with_the_reason(place, localizer):
    keypoints, rows, camera = arguments(place, place.queries[0])
    cases = {
        "no keypoints": (keypoints[:0], rows[:0], None),
        "no candidate photo": (keypoints, rows, []),
        "none of 130 keypoints has a finite position": (keypoints, 0 * rows, None),
        "8 matches to 3D points, expected 12": (keypoints, rows, None),
    }
    for reason, (xy, values, candidates) in cases.items():
        if reason.startswith("8"):
            seen = localizer.localize(keypoints, rows, camera).inlier_keypoints[:8]
            xy, values = keypoints[seen], rows[seen]
        found = localizer.localize(xy, values, camera, candidates=candidates)
        assert (found.status, found.pose) == ("failed", None)
        assert reason in found.reason
        assert found.seconds["total"] > 0


def test_matches_are_counted_where_no_pose_fits(place, localizer, monkeypatch):
    monkeypatch.setattr(localizer_module, "estimate_pose", lambda *given, **settings: None)
    found = localizer.localize(*arguments(place, place.queries[0]))
    assert (found.status, found.matches, found.inliers, len(found.correspondences)) == ("failed", 120, 0, 120)
    assert found.reason == "no pose fits 120 matches to 3D points"


def test_few_inliers_are_a_failure(place, localizer):
    """Half of the keypoints at random places: their poses are found, but not believed below the limit."""
    name = place.queries[0]
    keypoints, rows, camera = arguments(place, name)
    seen = localizer.localize(keypoints, rows, camera).inlier_keypoints
    moved = keypoints.copy()
    moved[seen[20:]] = np.random.default_rng(0).uniform(0, 700, (len(seen) - 20, 2))
    assert localizer.localize(moved, rows, camera).status == "localized"
    strict = Localizer(localizer.map, settings=PoseSettings(min_inliers=60))
    found = strict.localize(moved, rows, camera)
    assert found.status == "failed" and found.pose is None and 20 <= found.inliers < 60
    assert f"{found.inliers} inliers of 120 matches to 3D points, expected 60" == found.reason


def test_keypoints_at_one_position_count_once(place, localizer):
    keypoints, rows, camera = arguments(place, place.queries[0])
    doubled = np.concatenate([keypoints, keypoints]), np.concatenate([rows, unit_rows(rows + 0.02)])
    free = Localizer.open(place.model, [place.features["own-a"]], ratio=None)
    found = free.localize(*doubled, camera)
    assert found.matches == 120 and found.inliers == 120


def test_rows_and_positions_that_are_not_finite_are_ignored(place, localizer):
    name = place.queries[0]
    keypoints, rows, camera = (np.array(v) if i < 2 else v for i, v in enumerate(arguments(place, name)))
    keypoints[::5, 0] = np.nan
    rows[1::5, 3] = np.inf
    found = localizer.localize(keypoints, rows, camera)
    check_exact(place, name, found)
    assert 50 < found.matches <= 78
    assert np.isfinite(keypoints[found.inlier_keypoints]).all()


def test_a_guessed_focal_length_is_estimated(place, localizer):
    name = place.queries[0]
    keypoints, rows, camera = arguments(place, name)
    guess = Camera("SIMPLE_PINHOLE", camera.width, camera.height, (0.8 * 1280, 512, 384), known=False)
    found = localizer.localize(keypoints, rows, guess)
    assert abs(found.focal_px - 1280) < 15
    np.testing.assert_allclose(found.pose.center, place.poses[name].center, atol=0.1)
    assert localizer.localize(keypoints, rows, camera).focal_px is None


def test_the_error_of_an_inlier_and_the_seed_are_those_of_the_settings(place, localizer):
    """A third of the keypoints is off by 15 px, the others by about half a pixel."""
    keypoints, rows, camera = arguments(place, place.queries[0])
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, len(keypoints))
    keypoints = keypoints + rng.normal(scale=0.5, size=keypoints.shape)
    keypoints[::3] += 15 * np.stack([np.cos(angle), np.sin(angle)], axis=1)[::3]

    def found(max_error_px, seed=3):
        settings = PoseSettings(max_error_px=max_error_px, seed=seed)
        return Localizer(localizer.map, settings=settings).localize(keypoints, rows, camera)

    observing = found(25).inlier_keypoints
    assert len(observing) == 120
    assert found(5).inlier_keypoints.tolist() == observing[observing % 3 > 0].tolist()
    of_seeds = [tuple(found(1.2, seed).pose.translation) for seed in (3, 4, 5, 6, 3, 4, 5, 6)]
    assert of_seeds[:4] == of_seeds[4:] and len(set(of_seeds)) > 1


def test_images_go_through_the_extractor(place):
    name = place.queries[0]
    photo = features(place, name)
    seen = []

    def extractor(image):
        seen.append(image.shape)
        return photo.keypoints, photo.descriptors

    localizer = Localizer.open(place.model, [place.features["own-a"]], extractor=extractor)
    found = localizer.localize_image(np.zeros((768, 1024, 3), np.uint8), place.cameras[name])
    check_exact(place, name, found)
    assert seen == [(768, 1024, 3)] and found.seconds["extraction"] >= 0
    with pytest.raises(ValueError, match="without an extractor"):
        Localizer(localizer.map).localize_image(np.zeros((768, 1024, 3), np.uint8), place.cameras[name])


def test_arguments_that_do_not_fit_are_refused(place, localizer):
    keypoints, rows, camera = arguments(place, place.queries[0])
    with pytest.raises(ValueError, match=r"descriptors of 129 query keypoints have shape \[130, 24\]"):
        localizer.localize(keypoints[1:], rows, camera)
    with pytest.raises(ValueError, match=r"shape \(130, 23\), but 'own-a' expects \[N, 24\]"):
        localizer.localize(keypoints, rows[:, 1:], camera)
    with pytest.raises(ValueError, match="the query's camera: 3 parameters, but SIMPLE_RADIAL has 4"):
        localizer.localize(keypoints, rows, dataclasses.replace(camera, params=camera.params[:3]))
    with pytest.raises(ValueError, match="rows of 'sift' .* and 'own-a' .* do not compare"):
        localizer.localize(keypoints, np.eye(128, dtype=np.float32)[np.arange(130) % 128], camera, descriptor="sift")
    with pytest.raises(ValueError, match="retrieval of 5 photos, expected at least 1 and a map with an index"):
        Localizer(localizer.map, retrieval=5)
    with pytest.raises(ValueError, match="min_inliers is 3, expected at least 4"):
        PoseSettings(min_inliers=3)
    with pytest.raises(ValueError, match="max_error_px is -4.0 px, expected above 0"):
        PoseSettings(max_error_px=-4.0)
