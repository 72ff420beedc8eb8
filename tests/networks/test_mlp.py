"""Networks: norms, widths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec, binary_spec
from xdesc_jax.networks import mlp

SPECS = {
    "bits": binary_spec("bits", 11, hidden=(9, 6)),
    "plain": DescriptorSpec("plain", 5, normalized=False, hidden=(7,)),
    "unit": DescriptorSpec("unit", 8, hidden=(7, 10), output="relu"),
}


def test_norm_and_its_gradient_at_zero_are_zero():
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    value, gradient = jax.value_and_grad(lambda v: jnp.sum(mlp.l2_norm(v)))(x)
    assert value == 5
    np.testing.assert_allclose(gradient, [[0, 0], [0.6, 0.8]], rtol=1e-6)


def test_unit_rows_keep_zero_rows_with_finite_gradient():
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(mlp.unit(x), [[0, 0], [0.6, 0.8]], rtol=1e-6)
    gradient = jax.grad(lambda v: jnp.sum(mlp.unit(v) ** 2 * jnp.array([1.0, 2.0])))(x)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("kind", ["encoder_decoder", "pair"])
def test_widths_follow_the_descriptors(kind):
    config = ModelConfig(kind=kind, embedding_width=6)
    networks = mlp.build_networks(SPECS, config)
    variables = jax.eval_shape(lambda: mlp.init_variables(networks, jax.random.key(0)))  # shapes alone

    def shape(function, source, *target):
        x = jax.ShapeDtypeStruct((3, SPECS[source].width), np.float32)
        return jax.eval_shape(
            lambda variables, x: function(networks, variables, x, source, *target), variables, x
        ).shape

    for source in SPECS:
        for target in SPECS:
            if kind == "encoder_decoder" or source != target:
                assert shape(mlp.translate, source, target) == (3, SPECS[target].width)
    if kind == "encoder_decoder":
        assert shape(mlp.embed, "plain") == (3, 6)


def test_pair_network_has_the_weights_of_encoder_and_decoder():
    sift = DescriptorSpec("sift", 128, hidden=(1024, 1024), output="relu")
    hardnet = DescriptorSpec("hardnet", 128)
    width = mlp.pair_hidden_width(sift, hardnet, ModelConfig())
    encoder = 128 * 1024 + 1024 * 1024 + 1024 * 128
    decoder = 128 * 256 + 256 * 256 + 256 * 128
    assert 128 * width + width * width + width * 128 == pytest.approx(encoder + decoder, rel=2e-3)


def test_bfloat16_matmul_rounds_its_operands_and_nothing_else():
    """Product and gradients against float64 products of rounded operands; without rounding they are off by 1e-2."""

    def rounded(values):
        return np.asarray(values.astype(jnp.bfloat16), np.float64)

    x, kernel, g = (jax.random.normal(jax.random.key(i), s) for i, s in enumerate([(5, 33), (33, 7), (5, 7)]))
    product, back = jax.vjp(mlp.bfloat16_matmul, x, kernel)
    found = (product, *back(g))
    x, kernel, g = rounded(x), rounded(kernel), rounded(g)
    for a, b in zip(found, (x @ kernel, g @ kernel.T, x.T @ g), strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalization", ["batch", "none"])
def test_layer_list_computes_what_the_modules_do(normalization):
    networks = mlp.build_networks(SPECS, ModelConfig(embedding_width=6, normalization=normalization))
    variables = mlp.init_variables(networks, jax.random.key(0))
    rng = np.random.default_rng(0)
    stats = jax.tree.map(lambda x: jnp.asarray(rng.uniform(0.5, 2, x.shape), jnp.float32), variables["batch_stats"])
    variables = variables | {"batch_stats": stats}
    x = jnp.asarray(rng.normal(size=(4, 11)), jnp.float32)
    name, params = "encoder/bits", variables["params"]["encoder/bits"]
    layers = [
        {"bias": 0.0} | params[f"linear{i}"] | params.get(f"norm{i}", {}) | stats[name].get(f"norm{i}", {})
        for i in range(3)
    ]
    np.testing.assert_allclose(mlp.forward(layers, x), mlp.apply(networks, variables, name, x), atol=1e-5)
