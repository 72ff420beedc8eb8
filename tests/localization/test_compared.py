"""What is refused before any query is read: rows that cannot become each other, files of another descriptor."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from tests.support.framed_translators import framed_translator
from tests.support.place import rewrite
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.localization.compared import check_rows, kinds, routes_told
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.routes import Router
from xdesc_jax.translation.translator import Translator


def told(mode, framed, target=None):
    translator = Translator(framed_translator())
    query, photo = Held(translator.spec("upright")), Held(translator.spec("turned"))
    router = Router(mode, translator, target=target)
    return routes_told(router, translator, {query: framed}, [photo], None, (), None)


def test_queries_without_angles_cannot_become_rows_that_turn_with_keypoints():
    remedy = r"compare both in the joint space \(--mode embed\), or translate the map \(--target upright\)"
    with pytest.raises(ValueError, match=f"queries of 'upright' cannot become 'turned', .*: {remedy}"):
        told("directional", framed=False)
    (text,) = told("directional", framed=True)
    assert text.startswith("upright with turned, as turned")
    for mode, target, name in (("embed", None, "embedding"), ("directional", "upright", "upright")):
        assert f"as {name}" in told(mode, framed=False, target=target)[0]


def test_a_model_without_a_mode_is_told_what_to_say():
    with pytest.raises(ValueError, match="do not compare: .* say how the model is to compare them: --mode embed or"):
        told("native", framed=True)


def test_files_whose_every_photo_is_damaged_are_refused_and_one_that_is_fine_is_enough(place, tmp_path):
    features = rewrite(place.features["own-a"], tmp_path / "q.h5", lambda name, photo: photo)
    with FeatureStore(features) as store:
        (held,) = {Held(store.spec)}
    names = place.names
    for wrong in (names[:-1], names):
        with h5py.File(features, "a") as file:
            for name in wrong:
                rows = file[name]["descriptors"].shape
                del file[name]["descriptors"]
                file[name]["descriptors"] = np.zeros(rows, np.uint8)
        with FeatureSet([features]) as asked:
            assert kinds(asked, names) == {held: names[0]}
            if len(wrong) < len(names):
                check_rows(asked, names[-2:])
                continue
            with pytest.raises(ValueError, match=rf"q.h5: {names[0]!r}: .*descriptors have dtype uint8"):
                check_rows(asked, names)
