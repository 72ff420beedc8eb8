"""Which ratio two feature files match at, by what they say about the origin of their rows."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from xdesc_jax import cli
from xdesc_jax.bundle import Bundle
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.infer import Translator
from xdesc_jax.match_file import MatchFile
from xdesc_jax.matching import match as match_rows
from xdesc_jax.ratios import choose
from xdesc_jax.store import FeatureStore, ImageFeatures, StoreWriter

WIDTH = 6
TURNS = {n: np.linalg.qr(np.random.default_rng(i).normal(size=(WIDTH, WIDTH)))[0] for i, n in enumerate("abc")}
RATIOS = {"a": 0.9, "a->b": 0.55, "a|b": 0.65, "b|a": 0.7, "a|a": 0.75}


@pytest.fixture
def model(tmp_path):
    """Translates `a`, `b` and `c` by rotations; nothing is calibrated for `c`."""
    networks = {
        f"{part}/{n}": [((q if part == "encoder" else q.T).astype(np.float32), np.zeros(WIDTH, np.float32))]
        for part in ("encoder", "decoder")
        for n, q in TURNS.items()
    }
    specs = {n: DescriptorSpec(n, WIDTH) for n in TURNS}
    return Bundle("encoder_decoder", specs, WIDTH, networks, ratios=RATIOS).save(tmp_path / "model.safetensors")


@pytest.fixture
def make(tmp_path, model):
    """Feature files by name: 'a' native, 'a-b' translated to `b`, 'a-e' embedded, 'a-e-b' one after the other."""

    def make(name):
        path = tmp_path / f"{name}.h5"
        *before, last = name.split("-")
        if path.exists():
            return path
        if before:
            target = {"e": "embedding"}.get(last, last)
            words = ["translate", make("-".join(before)), path, "--target", target, "--model", model]
            assert cli.main(list(map(str, words))) == 0
            return path
        with StoreWriter(path, DescriptorSpec(last, WIDTH)) as writer:
            for seed, photo in enumerate(("1.jpg", "2.jpg")):
                base = np.random.default_rng(7).normal(size=(31, WIDTH))
                noise = np.random.default_rng(seed).normal(size=base.shape)
                rows = unit_rows(base + 0.3 * noise) @ TURNS[last].T
                writer.write(photo, ImageFeatures(np.zeros((31, 2), np.float32), rows, np.ones(31, bool), (9, 9)))
        return path

    return make


@pytest.mark.parametrize(
    ("query", "database", "ratio", "why"),
    [
        ("a-b", "b", 0.55, "calibrated for a->b"),
        ("b", "a-b", 0.55, "calibrated for a->b"),
        ("a-e-b", "b", 0.55, "calibrated for a->b"),
        ("a-e", "b-e", 0.65, "calibrated for a|b"),
        ("b-e", "a-e", 0.7, "calibrated for b|a"),
        ("a-e", "a-e", 0.75, "calibrated for a|a"),
        ("a-e", "c-e", 0.9, "the model has no calibrated ratio of a|c"),
        ("a-c", "c", 0.9, "the model has no calibrated ratio of a->c"),
        ("a-c-b", "b", 0.9, "the model has no calibrated ratio of a->c->b"),
        ("a-b", "a-b", 0.9, "both sides are translated"),
        ("a", "a", 0.9, "native rows"),
    ],
)
def test_two_files_match_at_the_ratio_of_where_their_rows_come_from(make, query, database, ratio, why):
    with FeatureStore(make(query)) as first, FeatureStore(make(database)) as second:
        found, reason = choose(first, second)
    assert found == ratio
    assert why in reason


@pytest.mark.parametrize(("words", "ratio"), [((), 0.55), (("--ratio", "auto"), 0.55), (("--ratio", "0.8"), 0.8)])
def test_match_uses_the_calibrated_ratio_unless_one_is_given(make, tmp_path, words, ratio, capsys):
    out = tmp_path / "m.h5"
    names = [str(make("a-b")), str(out), "--pairs", "exhaustive", "--other", str(make("b"))]
    capsys.readouterr()
    assert cli.main(["match", *names, *words]) == 0
    reason = "given" if ratio == 0.8 else "calibrated for a->b"
    assert f"ratio: {ratio} ({reason})" in capsys.readouterr().out
    summary = json.loads((tmp_path / "m.h5.json").read_text())
    assert (summary["config"]["ratio"], summary["ratio_is"]) == (ratio, reason)
    with FeatureStore(make("a-b")) as first, FeatureStore(make("b")) as second, MatchFile(out) as file:
        x, y = first.read("1.jpg").descriptors, second.read("2.jpg").descriptors
        expected = match_rows(x, y, ratio=ratio).indices
        assert 0 < len(expected) < len(match_rows(x, y).indices)
        assert file.read("1.jpg", "2.jpg")[0].tolist() == expected.tolist()


def test_embeddings_that_do_not_say_their_source_match_at_the_default(make, tmp_path):
    path = make("a-e")
    with h5py.File(path, "r+") as file:
        del file.attrs["translated_from"]
    with FeatureStore(path) as store:
        assert choose(store, store) == (0.9, "the default: a file does not say what it was embedded from")


@pytest.mark.parametrize("text", ['{"a->b": 2}', "[", "[1]"])
def test_a_damaged_attribute_is_refused_by_name(make, text):
    path = make("a-b")
    with h5py.File(path, "r+") as file:
        file.attrs["ratios"] = text
    with FeatureStore(path) as store, FeatureStore(make("b")) as native:
        with pytest.raises(ValueError, match=r"a-b\.h5: attribute 'ratios' is .*, expected ratios"):
            choose(store, native)


def test_a_translator_tells_its_ratios(model):
    translator = Translator.load(model)
    assert translator.ratio("a", "b") == 0.55
    assert translator.ratio("a", "b", joint=True) == 0.65
    assert translator.ratio("a", "a") == 0.9
    assert translator.ratio("b", "a") is None and translator.ratio("c", "c", joint=True) is None
    with pytest.raises(ValueError, match="no descriptor 'bb', it has"):
        translator.ratio("a", "bb")
