"""What a map to localise in holds, and what it refuses."""

import dataclasses

import numpy as np
import pytest

from tests.support.place import WIDTH, rewrite
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.map import LocalizationMap
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.routes import Router
from xdesc_jax.translation.translator import Translator


def build(place, features, mode="native", target=None, **settings):
    translator = Translator.load(place.translator)
    with FeatureSet([features]) as known:
        router = Router(mode, translator, target=target)
        return LocalizationMap.build(read_model(place.model), known, router, translator, **settings)


def test_keypoints_know_the_points_that_they_observe(place):
    built = build(place, place.features["own-a"])
    assert list(built.photos) == place.names
    name = place.names[2]
    with FeatureStore(place.features["own-a"]) as store:
        photo = store.read(name)
    np.testing.assert_allclose(built.photos[name].rows, photo.descriptors, atol=1e-6)
    point = built.photos[name].point
    seen = point >= 0
    assert 0 < seen.sum() < len(seen)
    pose, camera = place.poses[name], pycolmap.Camera(model="SIMPLE_RADIAL", width=1024, height=768, params=[1] * 4)
    camera.params = list(place.cameras[name].params)
    projected = camera.img_from_cam(built.points[point[seen]] @ pose.rotation.T + pose.translation)
    np.testing.assert_allclose(projected, photo.keypoints[seen] + 0.5, atol=1e-3)


@pytest.mark.parametrize(("mode", "target", "space"), [("native", None, "own-b"), ("directional", "own-a", "own-a")])
def test_rows_are_in_the_space_of_the_mode(place, mode, target, space):
    built = build(place, place.features["own-b"], mode, target)
    with FeatureStore(place.features[space]) as store:
        for name, photo in built.photos.items():
            assert photo.space.name == space
            np.testing.assert_allclose(photo.rows, store.read(name).descriptors, atol=1e-6)


def test_photos_that_the_features_lack_are_named_or_left_out(place, tmp_path):
    lost = place.names[1]
    part = rewrite(place.features["own-a"], tmp_path / "part.h5", lambda n, p: None if n == lost else p)
    with pytest.raises(ValueError, match=f"names 1 photo not in .*part.h5, first .*{lost}"):
        build(place, part)
    built = build(place, part, allow_missing=True)
    assert built.missing == (lost,) and lost not in built.photos


def test_other_numbers_of_keypoints_are_refused(place, tmp_path):
    def cut(name, photo):
        fields = {f: getattr(photo, f)[:-1] for f in ("keypoints", "descriptors", "valid")}
        return dataclasses.replace(photo, **fields)

    short = rewrite(place.features["own-a"], tmp_path / "short.h5", cut)
    with pytest.raises(ValueError, match=r"has 130 keypoints in the model .*model, but 129 in .*short.h5"):
        build(place, short, where=str(place.model))


def test_the_same_number_of_other_keypoints_is_refused(place, tmp_path):
    def turned(name, photo):
        return dataclasses.replace(photo, keypoints=photo.keypoints[::-1])

    other = rewrite(place.features["own-a"], tmp_path / "other.h5", turned)
    with pytest.raises(ValueError, match=r"px \(median\) from those of the same rows"):
        build(place, other)


def test_points_without_descriptors_are_counted(place, tmp_path):
    model = read_model(place.model)
    bare = {name: model.keypoint[(model.view == v) & (model.point < 7)] for v, name in enumerate(model.names)}

    def blank(name, photo):
        valid = photo.valid.copy()
        valid[bare.get(name, [])] = False
        return dataclasses.replace(photo, valid=valid)

    built = build(place, rewrite(place.features["own-a"], tmp_path / "blank.h5", blank))
    assert built.bare_points == 7


def test_a_map_without_any_descriptor_is_refused(place, tmp_path):
    def blank(name, photo):
        return dataclasses.replace(photo, valid=np.zeros(len(photo), bool))

    dark = rewrite(place.features["own-a"], tmp_path / "dark.h5", blank)
    with pytest.raises(ValueError, match=r"none of the 120 3D points of .* has a descriptor in .*dark.h5"):
        build(place, dark)


def test_a_model_without_points_is_refused(place):
    empty = dataclasses.replace(read_model(place.model), points=np.zeros((0, 3)))
    with FeatureSet([place.features["own-a"]]) as known:
        with pytest.raises(ValueError, match="the model: holds no 3D points"):
            LocalizationMap.build(empty, known, Router("native"))


def test_a_database_serves_as_features(place, tmp_path):
    """Its keypoints have COLMAP's origin, and it may lack the descriptors of a photo."""
    path = tmp_path / "map.db"
    with pycolmap.Database.open(path) as db, FeatureStore(place.features["own-a"]) as store:
        camera = db.write_camera(pycolmap.Camera(model="PINHOLE", width=1024, height=768, params=[9, 9, 1, 1]))
        for name in place.names:
            photo = store.read(name)
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera))
            db.write_keypoints(image, photo.keypoints + np.float32(0.5))
            if name != place.names[0]:
                rows = np.rint(128 + 127 * np.tile(photo.descriptors, (1, 6))[:, :128]).astype(np.uint8)
                kind = pycolmap.FeatureExtractorType.SIFT
                db.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=rows))
    with FeatureSet([path]) as known:
        built = LocalizationMap.build(read_model(place.model), known, Router("native"))
    assert not built.photos[place.names[0]].observes
    assert all(built.photos[name].observes for name in place.names[1:])
    assert built.bare_points == 0


def test_a_model_without_photos_is_refused(place, tmp_path):
    pycolmap.Reconstruction().write(tmp_path)
    with pytest.raises(ValueError, match="the COLMAP model has no registered photo"):
        Localizer.open(tmp_path, [place.features["own-a"]])


def test_opening_tells_what_is_wrong(place, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no COLMAP model"):
        Localizer.open(tmp_path, [place.features["own-a"]])
    with pytest.raises(ValueError, match="mode 'embed' translates, so it needs a model"):
        Localizer.open(place.model, [place.features["own-a"]], mode="embed")
    with pytest.raises(ValueError, match=r"files hold \['own-a'\]: give a --model"):
        Localizer.open(place.model, [place.features["own-a"]], retrieval=3)
    with pytest.raises(ValueError, match="holds 'other', which the model cannot take"):
        with StoreWriter(tmp_path / "other.h5", DescriptorSpec("other", WIDTH)) as writer:
            with FeatureStore(place.features["own-a"]) as store:
                for name, photo in store:
                    writer.write(name, photo)
        Localizer.open(place.model, [tmp_path / "other.h5"], translator=place.translator, mode="embed")
    with pytest.raises(ValueError, match="mode 'progressive' would translate the map anew"):
        router = Router("progressive", Translator.load(place.translator), order=["own-a", "own-b"])
        with FeatureSet([place.features["own-a"]]) as known:
            LocalizationMap.build(read_model(place.model), known, router)
