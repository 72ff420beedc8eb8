"""Numpy translation against a plain reference, its forms, and what it says of bad input."""

from __future__ import annotations

import dataclasses
import tracemalloc
import warnings

import numpy as np
import pytest

from tests.support.small_translators import SPECS, encoder_decoder, layers
from tests.support.small_translators import rows as make_rows
from xdesc_jax.descriptors import embedding_spec, pack_bits, stored, unit_rows
from xdesc_jax.translation import stream as infer
from xdesc_jax.translation.bundle import Bundle, ParitySample
from xdesc_jax.translation.deviation import RowStatistics
from xdesc_jax.translation.stream import DeviationWarning, ZeroRowsWarning
from xdesc_jax.translation.translator import Translator


def make_bundle(**fields):
    rng = np.random.default_rng(0)
    networks = {f"encoder/{n}": layers(rng, s.width, 17, 13, 8) for n, s in SPECS.items()}
    networks |= {f"decoder/{n}": layers(rng, 8, 11, s.width) for n, s in SPECS.items()}
    return Bundle("encoder_decoder", SPECS, 8, networks, **fields)


def test_it_says_which_translations_it_gives():
    bundle = make_bundle()
    small = dataclasses.replace(bundle, networks={n: x for n, x in bundle.networks.items() if n.startswith("encoder")})
    first, second = list(SPECS)[:2]
    assert Translator(bundle).gives(first, second) and Translator(small).gives(first, "embedding")
    for target in (second, "absent", first):
        assert not Translator(small).gives(first, target)


def raw(network, x):
    """One network, row by row in float64."""
    out = []
    for row in x.astype(np.float64):
        for i, (kernel, bias) in enumerate(network):
            row = row @ kernel + bias
            if i < len(network) - 1:
                row = np.maximum(row, 0)
        out.append(row)
    return np.array(out)


def reference(bundle, x, source, target=None):
    """Embedding, or translation (logits of bits), by the definition."""
    y = raw(bundle.networks[f"encoder/{source}"], x)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    if target is None:
        return y
    y = raw(bundle.networks[f"decoder/{target}"], y)
    if target == "grid":
        y = np.maximum(y, 0)
        y /= np.linalg.norm(y, axis=1, keepdims=True)
    return y


@pytest.fixture
def translator():
    return Translator(make_bundle())


@pytest.mark.parametrize("source", SPECS)
def test_embeddings_equal_the_reference(translator, source):
    x = make_rows(37)[source]
    found = translator.embed(x, source)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference(translator.bundle, x, source), atol=1e-6)


@pytest.mark.parametrize("source", SPECS)
@pytest.mark.parametrize("target", SPECS)
def test_translations_equal_the_reference(translator, source, target):
    x = make_rows(37)[source]
    found, expected = translator.translate(x, source, target), reference(translator.bundle, x, source, target)
    if target == "bits":
        assert found.dtype == bool
        np.testing.assert_array_equal(found, expected > 0)
    else:
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 23])
def test_any_number_of_rows_in_blocks_equals_row_by_row(translator, monkeypatch, n):
    x = make_rows(n)["grid"]
    expected = [translator.translate(x[i : i + 1], "grid", "plain") for i in range(n)]
    monkeypatch.setattr(infer, "BLOCK_ROWS", 7)
    found = translator.translate(x, "grid", "plain")
    assert found.shape == (n, 9) and found.dtype == np.float32
    np.testing.assert_allclose(found, np.concatenate([np.empty((0, 9)), *expected]), atol=1e-6)


def test_memory_does_not_grow_with_the_rows(translator):
    x = make_rows(200_000)["plain"]
    out = np.empty((len(x), 12), np.float32)
    translate = translator.stream("plain", "grid")
    tracemalloc.start()
    translate(x, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes / 4


def test_permuted_rows_permute_the_output(translator, rng):
    x, order = make_rows(29)["plain"], rng.permutation(29)
    np.testing.assert_allclose(translator.embed(x[order], "plain"), translator.embed(x, "plain")[order], atol=1e-6)


def test_stored_and_canonical_forms_give_the_same(translator):
    rows = make_rows(31)
    as_stored = stored(rows["grid"], SPECS["grid"])
    expected = translator.embed(unit_rows(as_stored), "grid")
    np.testing.assert_allclose(translator.embed(as_stored, "grid"), expected, atol=1e-6)
    np.testing.assert_allclose(translator.embed(as_stored.astype(np.float32), "grid"), expected, atol=1e-6)
    np.testing.assert_array_equal(
        translator.embed(pack_bits(rows["bits"]), "bits", packed=True), translator.embed(rows["bits"], "bits")
    )


@pytest.mark.parametrize("target", SPECS)
def test_storage_gives_the_stored_form(translator, target):
    x = make_rows(31)["plain"]
    found = translator.translate(x, "plain", target, storage=True)
    assert found.dtype == SPECS[target].stored_dtype and found.shape == (31, SPECS[target].stored_width)
    np.testing.assert_array_equal(found, stored(translator.translate(x, "plain", target), SPECS[target]))


def test_an_embedding_decodes_as_its_descriptor_translates(translator):
    x = make_rows(31)["grid"]
    embedding = translator.embed(x, "grid")
    expected = translator.translate(x, "grid", "plain")
    for name in ("embedding", translator.embedding_spec.name):
        np.testing.assert_allclose(translator.translate(embedding, name, "plain"), expected, atol=1e-5)


def test_an_embedding_of_another_space_is_refused(translator):
    with pytest.raises(ValueError, match=f"its joint space is 'embedding:{translator.space_id}', not 'embedding:0123"):
        translator.translate(np.ones((1, 8), np.float32), "embedding:0123456789ab", "plain")


def test_blocks_stream_as_one_array(translator):
    x = make_rows(31)["grid"]
    parts = list(translator.translate_blocks([x[:10], x[10:10], x[10:]], "grid", "bits", storage=True))
    assert [len(p) for p in parts] == [10, 0, 21]
    np.testing.assert_array_equal(np.concatenate(parts), translator.translate(x, "grid", "bits", storage=True))


def test_rows_that_are_only_observed_count_as_translated_ones(translator, monkeypatch):
    monkeypatch.setattr(infer, "BLOCK_ROWS", 4)
    rows = make_rows(9)["grid"]
    rows[5] = 0
    translated, observed = (translator.stream("grid", "plain") for _ in range(2))
    translated(rows)
    observed.observe(rows)
    assert (observed.rows, observed.zero_rows) == (translated.rows, translated.zero_rows) == (9, 1)
    assert observed.findings() == translated.findings()


def test_an_output_is_not_overwritten_by_the_next_call(translator):
    rows = make_rows(5)["grid"]
    first = translator.translate(rows, "grid", "plain")
    kept = first.copy()
    translator.translate(rows[::-1], "grid", "plain")
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("source", SPECS)
@pytest.mark.parametrize("target", [*SPECS, "embedding"])
def test_zero_rows_give_zero_rows_and_are_counted(translator, source, target):
    x = make_rows(9)[source].copy()
    x[[2, 5]] = 0
    with pytest.warns(ZeroRowsWarning, match=f"2 of 9 rows of '{source}' are zero"):
        found = translator.translate(x, source, target)
    assert not found[[2, 5]].any() and found[[0, 1, 3, 4, 6, 7, 8]].any(axis=1).all()


def test_zero_rows_do_not_count_as_rows_that_deviate():
    """As many zero rows as others halve the mean and the norms: another scale, were they rows."""
    rows = make_rows(100)["plain"]
    model = Translator(make_bundle(statistics={"plain": RowStatistics.of(rows)}))
    with_zeros = np.concatenate([rows, np.zeros((900, 9), np.float32)])
    for take in ("__call__", "observe"):
        stream = model.stream("plain", "grid")
        getattr(stream, take)(with_zeros[np.random.default_rng(0).permutation(1000)])
        assert [category for category, _ in stream.findings()] == [ZeroRowsWarning]


def test_constant_rows_translate(translator):
    x = np.full((70, 12), 12**-0.5, np.float32)
    found = translator.translate(x, "grid", "plain")
    assert np.isfinite(found).all() and np.ptp(found, axis=0).max() < 1e-5


def test_a_dead_relu_output_stays_finite():
    bundle = make_bundle()
    kernel, bias = bundle.networks["decoder/grid"][-1]
    bundle.networks["decoder/grid"][-1] = (kernel, bias - 100)
    assert not Translator(bundle).translate(make_rows(3)["plain"], "plain", "grid").any()


def test_a_value_that_is_not_finite_is_refused_with_its_row(translator, monkeypatch):
    monkeypatch.setattr(infer, "BLOCK_ROWS", 4)
    x = make_rows(11)["plain"]
    x[9, 3] = np.nan
    with pytest.raises(ValueError, match="row 9 of 'plain' holds a value that is not finite"):
        translator.embed(x, "plain")


def test_a_norm_that_does_not_fit_is_refused_with_its_row(translator, monkeypatch):
    monkeypatch.setattr(infer, "BLOCK_ROWS", 4)
    x = make_rows(11)["grid"]
    x[6] *= 3
    with pytest.raises(ValueError, match="row 6 has norm 3"):
        translator.embed(x, "grid")


@pytest.mark.parametrize(
    "x, source, message",
    [
        (np.ones((2, 13), np.float32), "grid", r"shape \(2, 13\), but 'grid' expects \[N, 12\]"),
        (np.ones(12, np.float32), "grid", r"shape \(12,\)"),
        (np.ones((0, 13), np.float32), "grid", r"shape \(0, 13\)"),
        (np.ones((2, 19), np.uint8), "bits", "uint8, but 'bits' expects bool"),
        (np.ones((2, 9), np.int64), "plain", "int64, but 'plain' expects floats"),
    ],
)
def test_rows_that_do_not_fit_are_refused(translator, x, source, message):
    with pytest.raises(ValueError, match=message):
        translator.embed(x, source)


def test_an_unknown_name_lists_what_the_model_has(translator):
    with pytest.raises(
        ValueError, match=r"no descriptor 'bit', it has bits \(19 bits\), grid \(12 values\).*mean bits"
    ):
        translator.embed(make_rows(1)["bits"], "bit")
    with pytest.raises(ValueError, match="no descriptor 'sift'"):
        translator.translate(make_rows(1)["bits"], "bits", "sift")


def test_pair_networks_translate_and_do_not_embed(rng):
    network = layers(rng, 9, 14, 12)
    model = Translator(Bundle("pair", SPECS, 0, {"pair/plain/grid": network}))
    x = make_rows(21)["plain"]
    expected = np.maximum(raw(network, x), 0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.translate(x, "plain", "grid"), expected, atol=1e-6)
    with pytest.raises(ValueError, match="no joint space"):
        model.embed(x, "plain")
    with pytest.raises(ValueError, match="makes no 'plain' of 'grid': of 'grid' it makes nothing"):
        model.translate(make_rows(2)["grid"], "grid", "plain")


def test_a_model_without_a_decoder_says_so():
    bundle = make_bundle()
    encoders = {k: v for k, v in bundle.networks.items() if k.startswith("encoder/")}
    model = Translator(dataclasses.replace(bundle, networks=encoders))
    told = "makes no 'bits' of 'grid': of 'grid' it makes embedding, and 'bits' of nothing"
    with pytest.raises(ValueError, match=told):
        model.translate(make_rows(1)["grid"], "grid", "bits")


def with_sample(shift=0.0):
    bundle, rows = make_bundle(), {name: x for name, x in make_rows(5).items() if name in SPECS}
    exact = {n: stored(x, SPECS[n]) for n, x in rows.items()}
    rows["grid"] = unit_rows(exact["grid"])
    return dataclasses.replace(
        bundle,
        sample=ParitySample(
            inputs=exact,
            embeddings={n: reference(bundle, x, n).astype(np.float32) + shift for n, x in rows.items()},
            translations={("grid", "bits"): 1 / (1 + np.exp(-reference(bundle, rows["grid"], "grid", "bits")))},
        ),
    )


def test_the_self_check_passes_on_the_kept_results(tmp_path):
    model = Translator.load(with_sample().save(tmp_path / "model.safetensors"))
    assert model.self_check() < 1e-6


def test_the_self_check_fails_on_other_results(tmp_path):
    model = Translator.load(with_sample(1e-3).save(tmp_path / "model.safetensors"))
    with pytest.raises(ValueError, match="model.safetensors: .* -> embedding is off by 0.001"):
        model.self_check()


def test_a_model_without_sample_cannot_check_itself(translator):
    with pytest.raises(ValueError, match="holds no sample"):
        translator.self_check()


def test_rows_unlike_the_training_rows_are_warned_of_once():
    rng = np.random.default_rng(3)
    profile = np.linspace(0.2, 1, 12)
    rows = unit_rows(rng.random((400, 12)) * profile)
    model = Translator(make_bundle(statistics={"grid": RowStatistics.of(rows)}))
    fresh = unit_rows(rng.random((300, 12)) * profile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.embed(fresh, "grid")
    with pytest.warns(DeviationWarning, match="do not look like the 'grid' of the training.*order") as caught:
        list(model.translate_blocks([fresh[:100, ::-1], fresh[100:, ::-1]], "grid", "plain"))
    assert len(caught) == 1


def test_the_embedding_spec_names_the_space(translator):
    assert translator.embedding_spec == embedding_spec(translator.space_id, 8)
    assert translator.names == ["bits", "grid", "plain"]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("rank1", [None, 7, ["grid->plain"], {"grid->plain": "0.5"}, {"grid->plain": {}}])
def test_figures_of_a_validation_that_are_none_give_no_order(rank1):
    made = dataclasses.replace(encoder_decoder(), provenance={"validation": {"rank1": rank1}})
    with pytest.raises(ValueError, match="holds no validation"):
        Translator(made).order()
