"""Models that look at a photo's other rows: a map that takes new photos in gives them frames and positions."""

from __future__ import annotations

import numpy as np

from tests.support.context_place import context_place
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.localization.map import LocalizationMap
from xdesc_jax.localization.outcome import PoseSettings
from xdesc_jax.mapping.bootstrap import UpdatedMap
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.routes import Router
from xdesc_jax.translation.translator import Translator


def test_new_photos_are_indexed_by_a_model_that_asks_for_both(place, tmp_path):
    asked = context_place(place, tmp_path)
    model, translator = read_model(place.model), Translator.load(asked.translator)
    with FeatureSet([asked.features["own-b"]]) as features:
        built = LocalizationMap.build(model, features, Router("native", None), translator, retrieval=True)
    with FeatureStore(asked.features["own-b"]) as store:
        photos, held = dict(store), Held(store.spec)
    real = {name: np.zeros(len(photos[name]), bool) for name in place.names}
    updated = UpdatedMap(built, model, real, PoseSettings(max_error_px=12.0, seed=3))
    updated.take_in([(name, photos[name], held, place.cameras[name]) for name in place.queries])
    found = updated.localizer.map
    assert set(found.index.names) == {*place.names, *place.queries} == set(found.photos)
    for name, photo in found.photos.items():
        np.testing.assert_array_equal(photo.positions, photos[name].keypoints)
