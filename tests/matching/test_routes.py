"""Where the rows of two photos meet, at which ratio, and the rows themselves."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from contextlib import closing

import h5py
import numpy as np
import pytest

from tests.support.databases import make_4
from xdesc_jax import cli
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, get_spec, pack_bits, unit_rows
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.matching.nearest import match as match_rows
from xdesc_jax.matching.routes import Router, Rows
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.translator import Translator

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
    with FeatureSet([make(query)]) as first, FeatureSet([make(database)]) as second:
        router = Router("native", ratios=first.ratios | second.ratios)
        held = first.held("1.jpg")
        route = router.route(held, second.held("2.jpg"))
    assert route.ratio == ratio and route.target == held.spec
    assert why in route.why


@pytest.mark.parametrize(("words", "ratio"), [((), 0.55), (("--ratio", "auto"), 0.55), (("--ratio", "0.8"), 0.8)])
def test_match_uses_the_calibrated_ratio_unless_one_is_given(make, tmp_path, words, ratio, capsys):
    out = tmp_path / "m.h5"
    names = [str(make("a-b")), str(out), "--pairs", "exhaustive", "--other", str(make("b"))]
    capsys.readouterr()
    assert cli.main(["match", *names, *words]) == 0
    reason = "given" if ratio == 0.8 else "calibrated for a->b"
    assert reason in capsys.readouterr().out
    (found,) = json.loads((tmp_path / "m.h5.json").read_text())["by_descriptors"]
    assert (found["first"], found["in"], found["ratio"], found["ratio_is"]) == ("b", "b", ratio, reason)
    with FeatureStore(make("a-b")) as first, FeatureStore(make("b")) as second, MatchFile(out) as file:
        x, y = first.read("1.jpg").descriptors, second.read("2.jpg").descriptors
        expected = match_rows(x, y, ratio=ratio).indices
        assert 0 < len(expected) < len(match_rows(x, y).indices)
        assert file.read("1.jpg", "2.jpg")[0].tolist() == expected.tolist()


def test_embeddings_that_do_not_say_their_source_match_at_the_default(make, tmp_path):
    path = make("a-e")
    with h5py.File(path, "r+") as file:
        del file.attrs["translated_from"]
    with FeatureSet([path]) as features:
        held = features.held("1.jpg")
    said = dataclasses.replace(held, translated_from="a")
    for pair in ((held, held), (held, said), (said, held)):
        route = Router("native", ratios={"a|embedding": 0.6, "embedding|a": 0.6}).route(*pair)
        assert (route.ratio, route.why) == (0.9, "the default: a file does not say what it was embedded from")


@pytest.mark.parametrize("text", ['{"a->b": 2}', "[", "[1]"])
def test_a_damaged_attribute_is_refused_by_name(make, text):
    path = make("a-b")
    with h5py.File(path, "r+") as file:
        file.attrs["ratios"] = text
    with pytest.raises(ValueError, match=r"a-b\.h5: attribute 'ratios' is .*, expected ratios"):
        FeatureSet([path])


def test_a_translator_tells_its_ratios(model):
    translator = Translator.load(model)
    assert translator.ratio("a", "b") == 0.55
    assert translator.ratio("a", "b", joint=True) == 0.65
    assert translator.ratio("a", "a") == 0.9
    assert translator.ratio("b", "a") is None and translator.ratio("c", "c", joint=True) is None
    with pytest.raises(ValueError, match="no descriptor 'bb', it has"):
        translator.ratio("a", "bb")


def held(name, translated_from=None):
    return Held(DescriptorSpec(name, WIDTH), translated_from)


@pytest.mark.parametrize(
    ("mode", "options", "first", "second", "target", "ratio"),
    [
        ("embed", {}, "a", "b", "embedding", 0.65),
        ("embed", {}, "b", "a", "embedding", 0.7),
        ("embed", {}, "a", "c", "embedding", 0.9),
        ("directional", {}, "a", "b", "b", 0.55),
        ("directional", {}, "b", "a", "a", 0.9),
        ("directional", {"target": "b"}, "a", "b", "b", 0.55),
        ("directional", {"target": "b"}, "b", "a", "b", 0.55),
        ("directional", {"target": "b"}, "a", "c", "b", 0.9),
        ("directional", {"target": "b"}, "b", "b", "b", 0.9),
        ("progressive", {"order": "acb"}, "a", "b", "b", 0.55),
        ("progressive", {"order": "acb"}, "b", "a", "b", 0.55),
        ("progressive", {"order": "bca"}, "a", "b", "a", 0.9),
        ("progressive", {"order": "acb"}, "a", "a", "a", 0.9),
        ("embed", {"ratio": 0.8}, "a", "b", "embedding", 0.8),
        ("embed", {"ratio": None}, "a", "b", "embedding", None),
    ],
)
def test_modes_choose_where_two_descriptors_meet(model, mode, options, first, second, target, ratio):
    translator = Translator.load(model)
    route = Router(mode, translator, **options).route(held(first), held(second))
    expected = translator.embedding_spec.name if target == "embedding" else target
    assert (route.target.name, route.ratio) == (expected, ratio)


def test_rows_that_were_embedded_before_meet_those_that_are_embedded_now(model):
    translator = Translator.load(model)
    embedded = Held(translator.embedding_spec, "a")
    route = Router("embed", translator).route(embedded, held("b"))
    assert route.target == translator.embedding_spec and route.ratio == 0.65


def test_the_order_of_a_model_is_that_of_its_validation(tmp_path):
    networks = {f"{p}/{n}": [(np.eye(WIDTH, dtype=np.float32), np.zeros(WIDTH, np.float32))]
                for p in ("encoder", "decoder") for n in "abc"}  # fmt: skip
    rank1 = {"a->b": 0.9, "c->b": 0.8, "b->a": 0.3, "c->a": 0.4, "a->c": 0.5, "b->c": 0.6, "a->a": 1.0}
    specs = {n: DescriptorSpec(n, WIDTH) for n in "abc"}
    validated = Translator(
        Bundle("encoder_decoder", specs, WIDTH, networks, provenance={"validation": {"rank1": rank1}})
    )
    assert Router("progressive", validated).order == ("a", "c", "b")
    with pytest.raises(ValueError, match="holds no validation"):
        Router("progressive", Translator(Bundle("encoder_decoder", specs, WIDTH, networks)))


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("sideways", {}, "mode is 'sideways', expected one of native, embed"),
        ("native", {"target": "a"}, "target 'a' is for mode 'directional'"),
        ("embed", {"order": "ab"}, "--order is for --mode progressive"),
        ("progressive", {"order": "aba"}, "names a descriptor twice"),
        ("progressive", {"order": "ax"}, "no descriptor 'x'"),
        ("directional", {"target": "x"}, "no descriptor 'x'"),
        ("embed", {"ratio": 1.5}, "ratio is 1.5"),
    ],
)
def test_settings_that_do_not_fit_are_refused(model, mode, options, message):
    with pytest.raises(ValueError, match=message):
        Router(mode, Translator.load(model), **options)


def test_a_mode_that_translates_needs_a_model():
    with pytest.raises(ValueError, match="so it needs a model"):
        Router("embed")


def test_rows_that_do_not_meet_are_refused(model):
    translator = Translator.load(model)
    with pytest.raises(ValueError, match="rows of 'a' .* and 'b' .* do not compare"):
        Router("native").route(held("a"), held("b"))
    with pytest.raises(ValueError, match="the order a, b does not say where 'c' stands"):
        Router("progressive", translator, order="ab").route(held("a"), held("c"))


# --- Rows ------------------------------------------------------------------------------------------------


def test_rows_are_translated_once_and_what_is_not_usable_is_zero(make, model):
    path = make("a")
    with h5py.File(path, "r+") as file:
        file["1.jpg/valid"][3] = False
        file["1.jpg/descriptors"][0, 5] = np.nan
    translator = Translator.load(model)
    with FeatureSet([path]) as features:
        rows = Rows(features, translator)
        found = rows("1.jpg", translator.spec("b"))
        native = features.read("1.jpg").descriptors
        assert rows("1.jpg", translator.spec("b")) is found and rows.skipped == {"1.jpg": 2}
        plain = rows("2.jpg", translator.spec("a"))
        np.testing.assert_allclose(plain, features.read("2.jpg").descriptors, atol=1e-6)
    usable = np.setdiff1d(np.arange(31), [3, 5])
    np.testing.assert_allclose(found[usable], translator.translate(native[usable], "a", "b"), atol=1e-6)
    assert not found[[3, 5]].any() and rows.findings() == []


def test_few_photos_are_kept_where_memory_is_short(make, model):
    translator = Translator.load(model)
    with FeatureSet([make("a")]) as features:
        rows = Rows(features, translator, kept_bytes=1)
        first = rows("1.jpg", translator.spec("b"))
        rows("2.jpg", translator.spec("b"))
        assert rows("1.jpg", translator.spec("b")) is not first


def test_as_many_photos_are_kept_as_there_is_room_for(make, model):
    """Two of three sets of rows, those used last."""
    translator = Translator.load(model)
    with FeatureSet([make("a")]) as features:
        rows = Rows(features, translator, kept_bytes=2 * 31 * WIDTH * 4)
        b, c = translator.spec("b"), translator.spec("c")
        held = {place: rows(*place) for place in (("1.jpg", b), ("2.jpg", b), ("1.jpg", c))}
        assert rows("2.jpg", b) is held["2.jpg", b] and rows("1.jpg", c) is held["1.jpg", c]
        again = rows("1.jpg", b)
        assert again is not held["1.jpg", b]
        assert rows("1.jpg", b) is again and rows("1.jpg", c) is held["1.jpg", c]
        assert rows("2.jpg", b) is not held["2.jpg", b]


def test_a_photo_without_descriptors_has_rows_that_never_match(tmp_path):
    with closing(sqlite3.connect(make_4(tmp_path / "a.db"))) as database, database:
        database.execute("DELETE FROM descriptors WHERE image_id = (SELECT min(image_id) FROM keypoints WHERE rows)")
    with FeatureSet([tmp_path / "a.db"]) as features:
        [name] = [name for name in features.names if features.held(name) is None and len(features.keypoints(name))]
        rows = Rows(features)
        found, count = rows(name, get_spec("colmap-sift")), len(features.keypoints(name))
    assert found.shape == (count, 128) and not found.any()
    assert rows.skipped == {name: count}


def test_bits_stay_packed(tmp_path):
    spec, rng = binary_spec("bits", 21), np.random.default_rng(0)
    packed = pack_bits(rng.random((4, 21)) < 0.5)
    with StoreWriter(tmp_path / "bits.h5", spec) as writer:
        writer.write("1.jpg", ImageFeatures(np.zeros((4, 2), np.float32), packed, np.arange(4) != 2, (9, 9)))
    with FeatureSet([tmp_path / "bits.h5"]) as features:
        found = Rows(features)("1.jpg", spec)
    assert found.dtype == np.uint8 and not found[2].any()
    np.testing.assert_array_equal(found[[0, 1, 3]], packed[[0, 1, 3]])


def test_what_the_model_cannot_take_is_told_with_file_and_photo(make, model, tmp_path):
    other = tmp_path / "other.h5"
    with StoreWriter(other, DescriptorSpec("other", WIDTH)) as writer:
        rows = unit_rows(np.ones((2, WIDTH)))
        writer.write("x.jpg", ImageFeatures(np.zeros((2, 2), np.float32), rows, np.ones(2, bool), (9, 9)))
    translator = Translator.load(model)
    with FeatureSet([other]) as features:
        with pytest.raises(ValueError, match=r"other\.h5: 'x.jpg': holds 'other', which the model cannot take"):
            Rows(features, translator)("x.jpg", translator.spec("b"))
        with pytest.raises(ValueError, match="there is no model to make 'b' of it"):
            Rows(features)("x.jpg", translator.spec("b"))
