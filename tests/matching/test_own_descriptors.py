"""A descriptor that is known by its model alone: what files hold is looked up there first."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from tests.support.small_translators import encoder_decoder, rows
from xdesc_jax import cli
from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.translation.names import named_spec
from xdesc_jax.translation.translator import Translator


@pytest.fixture
def model(tmp_path):
    return encoder_decoder().save(tmp_path / "model.safetensors")


@pytest.fixture
def features(tmp_path):
    """Two photos of the same rows, in hloc's layout: nothing says what they are."""
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as file:
        for name in ("a.jpg", "b.jpg"):
            file[f"{name}/keypoints"] = np.arange(40, dtype=np.float32).reshape(20, 2)
            file[f"{name}/descriptors"] = rows(20)["plain"].T
    return path


@pytest.mark.parametrize("words", [("--mode", "embed"), ("--mode", "directional", "--target", "grid"), ()])
def test_rows_of_ones_own_descriptor_match(tmp_path, model, features, words):
    out = tmp_path / "matches.h5"
    given = ["match", features, out, "--pairs", "exhaustive", "--descriptor", "plain", "--model", model, *words]
    assert cli.main([*map(str, given)]) == 0
    with MatchFile(out, ["a.jpg", "b.jpg"]) as found:
        assert len(found.pairs()) == 1
    with h5py.File(out) as file:
        np.testing.assert_array_equal(file["a.jpg/b.jpg/matches0"][()], np.arange(20))


def test_photos_of_ones_own_descriptor_are_retrieved(tmp_path, model, features):
    out = tmp_path / "pairs.txt"
    words = ["retrieve", features, out, "--descriptor", "plain", "--model", model, "--top", "1", "--clusters", "2"]
    assert cli.main([*map(str, words)]) == 0
    assert out.read_text().split()[:2] == ["a.jpg", "b.jpg"]


def test_without_its_model_it_is_unknown_and_told_what_is_missing(tmp_path, features, capsys):
    words = ["match", features, tmp_path / "m.h5", "--pairs", "exhaustive", "--descriptor", "plain"]
    assert cli.main([*map(str, words)]) == 2
    assert "unknown descriptor 'plain'" in (error := capsys.readouterr().err)
    assert "one of your own needs its --model" in error


def test_names_are_those_of_the_model_first_and_then_of_the_registry():
    bundle = encoder_decoder()
    assert named_spec("plain", Translator(bundle)) == bundle.specs["plain"]
    assert named_spec("embedding", Translator(bundle)) == bundle.embedding_spec
    assert named_spec("sift", Translator(bundle)) == get_spec("sift") == named_spec("sift")
    with pytest.raises(ValueError, match="unknown descriptor 'plian'.*the model has bits .*, grid .*, plain"):
        named_spec("plian", Translator(bundle))


def test_a_file_may_say_the_bare_name_of_ones_own_descriptor(features):
    with h5py.File(features, "r+") as file:
        file.attrs["spec"] = "plain"
    spec = DescriptorSpec("plain", 9, normalized=False)
    with FeatureStore(features, fallback=spec) as store:
        assert store.spec == spec
    with FeatureSet([features], "plain", model=Translator(encoder_decoder())) as known:
        assert known.held("a.jpg").spec.width == 9


def test_a_query_may_hold_ones_own_descriptor(exact_map_of_own):
    localizer, spec = exact_map_of_own
    assert localizer._held("plain").spec == spec


@pytest.fixture
def exact_map_of_own():
    class Map:
        photos: dict = {}
        translator = Translator(encoder_decoder())
        index = None
        views = ()

    return Localizer(Map()), encoder_decoder().specs["plain"]
