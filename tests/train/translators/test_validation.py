"""The figures of validation against the same written out in numpy."""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.objective_reference import errors, unit
from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, unit_rows
from xdesc_jax.networks import mlp
from xdesc_jax.train.translators import validation
from xdesc_jax.train.translators.validation import measured as measured_by
from xdesc_jax.train.translators.validation import population_validator, validator

SPECS = {"bits": binary_spec("bits", 9, hidden=(12,)), "unit": DescriptorSpec("unit", 8, hidden=(12,))}
ROWS = 40


def inferred(variables, name, x):
    """One network of one hidden layer with its running statistics, float64."""
    params, norm = variables["params"][name], variables["batch_stats"][name]["norm0"]
    x = x @ params["linear0"]["kernel"]
    x = (x - norm["mean"]) / np.sqrt(norm["var"] + 1e-5) * params["norm0"]["scale"] + params["norm0"]["offset"]
    return np.maximum(x, 0) @ params["linear1"]["kernel"] + params["linear1"]["bias"]


def found_first(query, database):
    """Share of rows whose nearest row is their own; of k rows as near each counts 1 / k."""
    apart = ((query[:, None] - database) ** 2).sum(axis=2)
    nearest = apart <= apart.min(axis=1, keepdims=True) + 1e-9
    return float(np.mean(np.diagonal(nearest) / nearest.sum(axis=1)))


@pytest.fixture(scope="module")
def measured():
    """Networks that were not trained, of rows that say something of each other, and their figures."""
    networks, rng = mlp.build_networks(SPECS, ModelConfig(embedding_width=5)), np.random.default_rng(2)
    shapes = jax.eval_shape(partial(mlp.init_variables, networks), jax.random.key(0))
    variables = jax.tree.map(lambda x: np.float32(rng.uniform(0.2, 1, x.shape)), shapes)
    variables["params"] = jax.tree.map(lambda x: np.float32(rng.normal(size=x.shape)), shapes["params"])
    variables["params"]["decoder/bits"]["linear1"]["kernel"] *= np.float32(0.2)  # many logits between 0 and 1 / 2
    rows = {"bits": np.float32(rng.random((ROWS, 9)) < 0.7)}
    rows["unit"] = unit_rows(rows["bits"] @ rng.normal(size=(9, 8)) + 0.3 * rng.normal(size=(ROWS, 8)))
    figures = validator(networks)(variables, {name: jnp.asarray(x) for name, x in rows.items()})
    return jax.tree.map(np.float64, variables), {name: np.float64(x) for name, x in rows.items()}, figures


def test_every_source_is_compared_with_every_target(measured):
    """Error, share of bits cut at probability one half, and rank-1 of the translations (of bits: of their cut)."""
    variables, rows, figures = measured
    for source in SPECS:
        z = unit(inferred(variables, f"encoder/{source}", rows[source]))
        for target, spec in SPECS.items():
            pair = f"{source}->{target}"
            raw = inferred(variables, f"decoder/{target}", z)
            error, translated = errors(raw, rows[target], spec)
            assert figures["translation_error"][pair] == pytest.approx(error.mean(), rel=1e-5)
            if spec.binary:
                translated = np.float64(translated > 0.5)
                share = np.mean(translated == rows[target])
                assert figures["bit_accuracy"][pair] == pytest.approx(share, rel=1e-6)
                assert abs(np.mean((raw > 0.5) == rows[target]) - share) > 0.02  # cut at another place, another share
            assert figures["rank1"][pair] == pytest.approx(found_first(translated, rows[target]))
    assert set(figures["bit_accuracy"]) == {"bits->bits", "unit->bits"}
    assert set(figures["translation_error"]) == set(figures["rank1"]) == {f"{s}->{t}" for s in SPECS for t in SPECS}


def test_a_pair_is_compared_on_the_rows_that_both_have(measured):
    variables, rows, _ = measured
    networks, held = mlp.build_networks(SPECS, ModelConfig(embedding_width=5)), np.arange(ROWS) % 3 > 0
    lacking = {"bits": rows["bits"], "unit": np.where(held[:, None], rows["unit"], 0)}
    shared = {name: x[held] for name, x in rows.items()}
    own = jax.tree.map(np.float32, variables)
    found, expected = (
        validator(networks)(own, {name: jnp.asarray(x, jnp.float32) for name, x in given.items()})
        for given in (lacking, shared)
    )
    for measure, pair in itertools.product(("translation_error", "rank1"), ("bits->unit", "unit->bits", "unit->unit")):
        assert found[measure][pair] == pytest.approx(expected[measure][pair], rel=1e-5), (measure, pair)
    assert found["joint_rank1"] == pytest.approx(expected["joint_rank1"], rel=1e-5)
    assert found["bit_accuracy"]["unit->bits"] == pytest.approx(expected["bit_accuracy"]["unit->bits"], rel=1e-5)


def test_pair_networks_are_compared_with_their_targets(measured):
    _, rows, _ = measured
    networks, rng = mlp.build_networks(SPECS, ModelConfig(kind="pair")), np.random.default_rng(3)
    shapes = jax.eval_shape(partial(mlp.init_variables, networks), jax.random.key(0))
    variables = jax.tree.map(lambda x: np.float32(rng.uniform(0.2, 1, x.shape)), shapes)
    variables["params"] = jax.tree.map(lambda x: np.float32(0.2 * rng.normal(size=x.shape)), shapes["params"])
    figures = validator(networks)(variables, {name: jnp.asarray(x, jnp.float32) for name, x in rows.items()})
    expected = {}
    for source, target in (("bits", "unit"), ("unit", "bits")):
        raw = mlp.apply(networks, variables, f"pair/{source}/{target}", jnp.asarray(rows[source], jnp.float32))
        error, _ = errors(np.float64(raw), rows[target], SPECS[target])
        expected[f"{source}->{target}"] = pytest.approx(error.mean(), rel=1e-5)
    assert figures["translation_error"] == expected
    assert set(figures["rank1"]) == set(expected) and set(figures["bit_accuracy"]) == {"unit->bits"}
    assert figures["joint_rank1"] == {}


@pytest.mark.parametrize("kind", ["encoder_decoder", "pair"])
def test_a_pair_without_a_row_in_common_has_no_figure(measured, kind):
    """Of three descriptors, two are never of the same row; the mean is that of what was measured."""
    _, rows, _ = measured
    specs = SPECS | {"other": DescriptorSpec("other", 8, hidden=(12,))}
    networks, first = mlp.build_networks(specs, ModelConfig(embedding_width=5, kind=kind)), np.arange(ROWS) < 25
    given = {"bits": rows["bits"], "unit": rows["unit"] * first[:, None], "other": rows["unit"] * ~first[:, None]}
    variables = mlp.init_variables(networks, jax.random.key(0))
    figures = validator(networks)(variables, {name: jnp.asarray(x, jnp.float32) for name, x in given.items()})
    apart = {"unit->other", "other->unit", "unit|other"}
    found = {pair for name in ("translation_error", "rank1", "joint_rank1") for pair in figures[name]}
    every = {f"{s}->{t}" for s in specs for t in specs if s != t or kind == "encoder_decoder"}
    every |= {"bits|unit", "bits|other"} if kind == "encoder_decoder" else set()
    assert found == every - apart
    ranks = [*figures["rank1"].values(), *figures["joint_rank1"].values()]
    assert figures["mean_rank1"] == pytest.approx(np.mean(ranks))


def test_without_any_row_in_common_there_is_no_mean():
    found = {"rank1": {("a", "b"): 0.0, ("b", "a"): 0.0}, validation.ROWS: np.diag([3, 2])}
    figures = validation._figures(("a", "b"), ("a", "b"), found)
    assert np.isnan(figures.pop("mean_rank1")) and not any(figures.values())


def test_embeddings_of_a_pair_are_compared_with_each_other(measured):
    variables, rows, figures = measured
    z = {name: unit(inferred(variables, f"encoder/{name}", rows[name])) for name in SPECS}
    expected = found_first(z["bits"], z["unit"])
    assert expected < 0.5  # of one with itself: 1
    assert figures["joint_rank1"] == {"bits|unit": pytest.approx(expected)}
    ranks = [*figures["rank1"].values(), expected]
    assert figures["mean_rank1"] == pytest.approx(np.mean(ranks))


def test_members_of_a_population_are_measured_as_each_alone_and_of_their_descriptors_alone(measured):
    """The second has other weights, and one of the descriptors."""
    variables, rows, expected = measured
    networks = mlp.build_networks(SPECS, ModelConfig(embedding_width=5))
    first = jax.tree.map(np.float32, variables)
    second = jax.tree.map(lambda x: x[..., ::-1], first)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), first, second)
    held = {name: jnp.asarray(x, jnp.float32) for name, x in rows.items()}
    one, other = population_validator(networks, [tuple(SPECS), ("unit",)])(stacked, held)
    for measure, figures in expected.items():
        assert one[measure] == pytest.approx(figures, rel=1e-5)
    assert list(other["translation_error"]) == list(other["rank1"]) == ["unit->unit"]
    assert other["bit_accuracy"] == other["joint_rank1"] == {}
    alone = validator(networks)(second, held)
    assert other["translation_error"]["unit->unit"] == pytest.approx(alone["translation_error"]["unit->unit"], rel=1e-5)
    assert other["mean_rank1"] == other["rank1"]["unit->unit"] == pytest.approx(alone["rank1"]["unit->unit"])


def test_the_program_grows_with_the_descriptors_and_not_with_their_pairs():
    def products(count):
        specs = {f"unit-{i}": DescriptorSpec(f"unit-{i}", 8, hidden=(12,)) for i in range(count)}
        networks = mlp.build_networks(specs, ModelConfig(embedding_width=5))
        variables = jax.eval_shape(partial(mlp.init_variables, networks), jax.random.key(0))
        rows = dict.fromkeys(specs, jax.ShapeDtypeStruct((ROWS, 8), jnp.float32))
        return str(jax.make_jaxpr(partial(measured_by, networks))(variables, rows)).count("dot_general")

    two, four, eight = products(2), products(4), products(8)
    assert eight - four == 2 * (four - two)
