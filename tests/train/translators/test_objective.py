"""The objective of each variant against its definition in numpy, with weights and margins away from the defaults."""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.objective_reference import network, objective, unit
from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, unit_rows
from xdesc_jax.networks import mlp
from xdesc_jax.train.translators.objective import Triplet, encoder_decoder_loss, pairs_of, random_permutation

SPECS = {
    "bits": binary_spec("bits", 11, hidden=(9,)),
    "plain": DescriptorSpec("plain", 5, normalized=False, hidden=(7,)),
    "unit": DescriptorSpec("unit", 8, hidden=(7,), output="relu"),
}
NAMES = tuple(SPECS)
EVERY = tuple(itertools.product(NAMES, NAMES))
SAME = tuple(zip(NAMES, NAMES, strict=True))


@pytest.fixture(scope="module")
def networks():
    return mlp.build_networks(SPECS, ModelConfig(embedding_width=6))


@pytest.fixture(scope="module")
def variables(networks):
    """Weights with norms that do something."""
    shapes, rng = jax.eval_shape(partial(mlp.init_variables, networks), jax.random.key(0)), np.random.default_rng(5)
    return jax.tree.map(lambda x: np.float32(rng.normal(loc=0.2, scale=x.shape[0] ** -0.5, size=x.shape)), shapes)


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(4)
    return {
        "bits": np.float32(rng.random((13, 11)) > 0.5),
        "plain": np.float32(rng.normal(size=(13, 5))),
        "unit": unit_rows(rng.random((13, 8))),
    }


def cycles():
    """A key for which each permutation of three without a fixed point that differs from its inverse comes about."""
    found, number = {}, 0
    while len(found) < 2:
        key = jax.random.key(number)
        sigma = tuple(np.asarray(random_permutation(NAMES, key, None)).tolist())
        if sigma in ((1, 2, 0), (2, 0, 1)):
            found.setdefault(sigma, key)
        number += 1
    return found


@pytest.mark.parametrize(
    ("variant", "distance"), [("quadratic", "squared"), ("autoencoder", "euclidean"), ("linear", "euclidean")]
)
def test_sums_are_those_of_the_definition(networks, variables, inputs, variant, distance):
    """Margins .7 and .4. Linear: i is translated to and matched with sigma(i), in both cycles of three."""
    triplet = Triplet(0.7, 0.4, distance, True, None)
    compiled = jax.jit(partial(encoder_decoder_loss, networks, variant=variant, triplet=triplet))
    mask = jnp.ones(13, bool)
    for sigma, key in cycles().items() if variant == "linear" else [(None, jax.random.key(0))]:
        sums, _ = compiled(variables["params"], variables["batch_stats"], inputs, mask, key)
        translated, matched = EVERY, EVERY
        if variant == "autoencoder":
            translated = SAME
        if sigma is not None:
            translated = matched = tuple((NAMES[i], NAMES[j]) for i, j in enumerate(sigma))
        expected = objective(
            SPECS, variables["params"], inputs, translated, matched,
            margin=0.7, target_margin=0.4, distance=distance,
        )  # fmt: skip
        assert {name: float(total.mean()) for name, total in sums.items()} == pytest.approx(expected, rel=2e-5)
        assert int(sums["translation"].count) == 13 * len(translated)
        assert int(sums["matching"].count) == 13 * len(matched)
        assert int(sums["target_matching"].count) == 2 * 13 * len(translated)


def fixed(params, x):
    """The layers of a network that computes on x what its norms do with the batch's statistics."""
    layers = [{**params["linear1"]}]
    raw = x @ np.float64(params["linear0"]["kernel"])
    norm = params["norm0"] | {"mean": raw.mean(axis=0), "var": raw.var(axis=0)}
    return [{"kernel": params["linear0"]["kernel"], "bias": np.zeros(raw.shape[1])} | norm, *layers]


def test_translations_count_where_the_sources_encoder_learns_or_the_targets_decoder(networks, variables, inputs):
    """Of 'unit' both learn, of 'plain' the decoder, of 'bits' neither; matches are of pairs with 'unit'."""
    params = variables["params"]
    embedded = unit(network(params["encoder/unit"], np.float64(inputs["unit"])))
    held = {f"encoder/{name}": fixed(params[f"encoder/{name}"], np.float64(inputs[name])) for name in ("bits", "plain")}
    held["decoder/bits"] = fixed(params["decoder/bits"], embedded)
    partly, left = mlp.freeze(networks, held), {name: x for name, x in params.items() if name not in held}
    triplet = Triplet(0.7, 0.4, "squared", True, None)
    sums, _ = jax.jit(partial(encoder_decoder_loss, partly, variant="quadratic", triplet=triplet))(
        left, variables["batch_stats"], inputs, jnp.ones(13, bool), jax.random.key(0)
    )
    translated = tuple((a, b) for a, b in EVERY if b != "bits" or a == "unit")
    expected = objective(
        SPECS, params, inputs, translated, tuple(pair for pair in EVERY if "unit" in pair),
        margin=0.7, target_margin=0.4, distance="squared",
    )  # fmt: skip
    assert {name: float(total.mean()) for name, total in sums.items()} == pytest.approx(expected, rel=2e-5)


def test_padding_and_descriptors_left_out_count_in_nothing(networks, variables, inputs):
    """Whatever they hold: the sums are those of the other rows of the other descriptors."""
    triplet, mask, active = Triplet(0.7, 0.4, "squared", True, None), jnp.arange(13) < 9, jnp.array([True, False, True])
    sums, _ = jax.jit(partial(encoder_decoder_loss, networks, variant="quadratic", triplet=triplet))(
        variables["params"], variables["batch_stats"], inputs, mask, jax.random.key(0), active=active
    )
    names = ("bits", "unit")
    pairs = tuple(itertools.product(names, names))
    expected = objective(
        {name: SPECS[name] for name in names}, variables["params"], {name: inputs[name][:9] for name in names}, pairs,
        pairs, margin=0.7, target_margin=0.4, distance="squared",
    )  # fmt: skip
    assert {name: float(total.mean()) for name, total in sums.items()} == pytest.approx(expected, rel=2e-5)
    assert [int(sums[name].count) for name in ("translation", "matching", "target_matching")] == [36, 36, 72]


@pytest.mark.parametrize("variant", ["quadratic", "autoencoder"])
def test_rows_that_a_descriptor_does_not_have_count_in_none_of_its_pairs(networks, variables, inputs, variant):
    """Each pair is as if there were no other rows than those that both have, and batch norm likewise."""
    held = {name: np.ones(13, bool) for name in NAMES}
    held["plain"][[0, 3, 4, 11]] = held["unit"][[4, 5]] = False
    inputs = {name: np.where(held[name][:, None], x, 0) for name, x in inputs.items()}
    triplet, mask = Triplet(0.7, 0.4, "squared", True, None), jnp.ones(13, bool)
    compiled = jax.jit(partial(encoder_decoder_loss, networks, variant=variant, triplet=triplet))
    sums, _ = compiled(variables["params"], variables["batch_stats"], inputs, mask, jax.random.key(0))
    translated = EVERY if variant == "quadratic" else SAME
    expected = objective(
        SPECS, variables["params"], inputs, translated, EVERY, margin=0.7, target_margin=0.4, distance="squared",
        held=held,
    )  # fmt: skip
    assert {name: float(total.mean()) for name, total in sums.items()} == pytest.approx(expected, rel=2e-5)
    both = {(a, b): int((held[a] & held[b]).sum()) for a, b in EVERY}
    assert int(sums["translation"].count) == sum(both[pair] for pair in translated)
    assert int(sums["matching"].count) == sum(both.values())


@pytest.mark.parametrize("left_out", [None, "bits", "plain"])
def test_the_decoder_of_a_permutations_target_takes_the_embedding_of_its_source(networks, left_out):
    active = None if left_out is None else jnp.array([name != left_out for name in NAMES])
    seen = set()
    for number in range(20):
        chosen, pairs = pairs_of(networks, "linear", jax.random.key(number), active)
        sigma = dict(np.asarray(pairs).tolist())
        assert sorted(sigma) == sorted(sigma.values()) == [0, 1, 2]
        assert {name: np.asarray(of).tolist() for name, of in chosen.items()} == {
            NAMES[target]: [source] for source, target in sigma.items()
        }
        if left_out is not None:
            assert sigma[NAMES.index(left_out)] == NAMES.index(left_out)
        seen.add(tuple(sigma.values()))
    assert len(seen) == (6 if left_out is None else 2)


def test_the_contrastive_form_is_of_both_matching_losses(networks, variables, inputs):
    """Weights of embeddings and of translations reach them; the translation loss stays as it was."""
    mask = jnp.arange(13) < 11
    sums = {}
    for temperature in (None, 0.07, 0.2):
        triplet = Triplet(0.7, 0.4, "squared", True, None, temperature=temperature)
        compiled = jax.jit(partial(encoder_decoder_loss, networks, variant="quadratic", triplet=triplet))
        found, _ = compiled(variables["params"], variables["batch_stats"], inputs, mask, jax.random.key(0))
        sums[temperature] = {name: float(s.total) / float(s.count) for name, s in found.items()}
    assert sums[None]["translation"] == pytest.approx(sums[0.07]["translation"], rel=1e-6)
    for name in ("matching", "target_matching"):
        assert len({round(of[name], 4) for of in sums.values()}) == 3
        assert 0 < sums[0.07][name] < 60  # no farther than the worst cosine over the temperature, and log of the rows


@pytest.mark.parametrize(("variant", "distance"), [("quadratic", "euclidean"), ("linear", "squared")])
def test_across_views_a_rows_positive_is_of_the_other_photo(networks, variables, inputs, variant, distance):
    """Rows of a point are no negatives of each other; two of the twos are of one point. A descriptor's match with
    itself is of two different rows then, and counts in both directions."""
    points = np.array([7, 7, 3, 3, 8, 8, 3, 3, 1, 1, 0, 0], np.int32)
    inputs = {name: x[:12] for name, x in inputs.items()}
    triplet, (sigma, key) = Triplet(0.7, 0.4, distance, True, None), next(iter(cycles().items()))
    sums, _ = jax.jit(partial(encoder_decoder_loss, networks, variant=variant, triplet=triplet))(
        variables["params"], variables["batch_stats"], inputs, jnp.ones(12, bool), key, points=jnp.asarray(points)
    )
    translated, matched = EVERY, EVERY + SAME
    if variant == "linear":
        translated = matched = tuple((NAMES[i], NAMES[j]) for i, j in enumerate(sigma))
    expected = objective(
        SPECS, variables["params"], inputs, translated, matched,
        margin=0.7, target_margin=0.4, distance=distance, points=points,
    )  # fmt: skip
    assert {name: float(total.mean()) for name, total in sums.items()} == pytest.approx(expected, rel=2e-5)
    assert int(sums["matching"].count) == 12 * len(matched)


def test_across_views_the_contrastive_form_is_that_of_the_definition(networks, variables, inputs):
    """-log of the share of the positive among itself and the rows of other points."""
    points, inputs = np.arange(12) // 2 % 5, {name: x[:12] for name, x in inputs.items()}
    sums, _ = jax.jit(partial(encoder_decoder_loss, networks, variant="quadratic", triplet=Triplet(
        1.0, 1.0, "squared", False, None, temperature=0.3
    )))(
        variables["params"], variables["batch_stats"], inputs, jnp.ones(12, bool), jax.random.key(0),
        points=jnp.asarray(points, jnp.int32),
    )  # fmt: skip
    z = {n: unit(network(variables["params"][f"encoder/{n}"], np.float64(x))) for n, x in inputs.items()}
    lost = []
    for a, b in EVERY + SAME:
        for row in range(12):
            alike = np.exp(z[b] @ z[a][row] / 0.3)
            own = alike[row ^ 1]
            lost.append(-np.log(own / (own + alike[points != points[row]].sum())))
    assert float(sums["matching"].mean()) == pytest.approx(np.mean(lost), rel=2e-5)
