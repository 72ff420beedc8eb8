"""Models that look at a photo's other rows: matching gives them frames and positions of all of a photo's keypoints."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.context_place import context_place
from tests.support.context_translators import context_translator, embedded_by_definition, positions
from tests.support.framed_translators import SPECS, frames, rows
from tests.support.place import make_place
from xdesc_jax import cli
from xdesc_jax.descriptors import stored, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.matching.routes import Rows
from xdesc_jax.translation.translator import Translator


def write(path, size):
    """A photo of 11 keypoints, of which one is not valid."""
    seen, at, valid = frames(11), positions(11), np.arange(11) != 3
    x = np.where(valid[:, None], stored(rows(11)["turned"], SPECS["turned"]), 0)
    with StoreWriter(path, SPECS["turned"]) as writer:
        writer.write("a.jpg", ImageFeatures(at, x, valid, size, scales=seen[:, 0], oris=seen[:, 1]))
    return unit_rows(x.astype(np.float32)), seen, at


def test_rows_are_embedded_among_those_of_their_photo(tmp_path):
    x, seen, at = write(tmp_path / "a.h5", (0, 0))
    bundle = context_translator()
    with FeatureSet([tmp_path / "a.h5"]) as features:
        np.testing.assert_array_equal(features.positions("a.jpg"), at)
        found = Rows(features, Translator(bundle))("a.jpg", bundle.embedding_spec)
    expected = embedded_by_definition(bundle.networks, bundle.contexts, x, "turned", seen, at)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not found[3].any()


def test_positions_outside_the_photo_are_refused_by_name(tmp_path):
    write(tmp_path / "a.h5", (90, 150))
    bundle = context_translator()
    with (
        FeatureSet([tmp_path / "a.h5"]) as features,
        pytest.raises(ValueError, match=r"a.h5: 'a.jpg': keypoint .* outside the photo of 90x150 px"),
    ):
        Rows(features, Translator(bundle))("a.jpg", bundle.embedding_spec)


@pytest.mark.parametrize("mode", [["embed"], ["directional", "--target", "own-b"]])
def test_photos_match_by_a_model_that_asks_for_both(tmp_path, mode):
    """As rows of one descriptor do, since the model is exact."""
    place = context_place(make_place(tmp_path, points=40), tmp_path)
    words = ["match", place.features["own-a"], tmp_path / "native.h5", "--pairs", "exhaustive"]
    assert cli.main([str(word) for word in words]) == 0
    words = ["match", place.features["own-a"], tmp_path / "m.h5", "--pairs", "exhaustive", "--model", place.translator]
    assert cli.main([str(word) for word in [*words, "--mode", *mode]]) == 0
    with MatchFile(tmp_path / "native.h5") as native, MatchFile(tmp_path / "m.h5") as found:
        assert sorted(found.pairs()) == sorted(native.pairs())
        for pair in native.pairs():
            np.testing.assert_array_equal(found.read(*pair)[0], native.read(*pair)[0])
