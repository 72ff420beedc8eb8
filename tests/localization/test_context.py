"""Models that look at a photo's other rows: queries and maps give them frames and positions of all keypoints."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.context_place import context_place
from tests.support.context_translators import (
    context_translator,
    embedded_by_definition,
    positions,
    turning_translator,
)
from tests.support.framed_translators import frames, rows
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.features.frames import of_features
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.map import LocalizationMap
from xdesc_jax.localization.query_features import QueryFeatures
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.routes import Router
from xdesc_jax.translation.translator import Translator


def test_a_query_is_embedded_among_its_own_rows_and_those_that_are_not_finite_are_none():
    translator, x, seen, at = Translator(context_translator()), rows(13)["turned-bits"], frames(13), positions(13)
    at = at.astype(np.float64)
    at[5], seen[5] = np.nan, (0, np.nan)
    query = QueryFeatures(Held(translator.spec("turned-bits")), at, x, translator, seen)
    found = query.rows(translator.embedding_spec)
    kept = np.arange(13) != 5
    expected = embedded_by_definition(
        translator.bundle.networks,
        translator.bundle.contexts,
        x[kept],
        "turned-bits",
        seen[kept],
        at[kept].astype("f4"),
    )
    np.testing.assert_allclose(found[kept], expected, atol=1e-5)
    assert not found[5].any()
    none = QueryFeatures(Held(translator.spec("turned-bits")), at[:0], x[:0], translator)
    assert none.rows(translator.embedding_spec).shape == (0, 8)


@pytest.mark.parametrize("made", [context_translator, turning_translator])
def test_a_map_keeps_the_frames_that_a_model_asks_for_in_either_space(place, tmp_path, made):
    asked = context_place(place, tmp_path)
    with FeatureSet([asked.features["own-a"]]) as features:
        router = Router("native", None)
        built = LocalizationMap.build(read_model(place.model), features, router, Translator(made()))
        for name, photo in built.photos.items():
            np.testing.assert_array_equal(photo.frames, features.frames(name))


@pytest.mark.parametrize(("mode", "target"), [("embed", None), ("directional", "own-b")])
def test_a_query_is_localised_by_a_model_that_asks_for_both(place, tmp_path, mode, target):
    asked = context_place(place, tmp_path)
    localizer = Localizer.open(
        asked.model, [asked.features["own-a"]], translator=asked.translator, mode=mode, target=target, retrieval=3
    )  # fmt: skip
    name = place.queries[0]
    with FeatureStore(asked.features["own-b"]) as store:
        photo = store.read(name)
        spec = store.spec
    found = localizer.localize(
        photo.keypoints, photo.descriptors, place.cameras[name], descriptor=Held(spec), frames=of_features(photo)
    )  # fmt: skip
    assert found.status == "localized", found.reason
    np.testing.assert_allclose(found.pose.translation, place.poses[name].translation, atol=1e-3)
    of_map = localizer.map.photos[place.names[0]]
    with FeatureStore(asked.features["own-a"]) as store:
        np.testing.assert_array_equal(of_map.positions, store.keypoints(place.names[0]))
