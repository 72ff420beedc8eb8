"""How exactly TPU and GPU multiply: mining as its setting says, networks as theirs."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax.lax import Precision

from tests.train.descriptors import test_step as pairs
from tests.train.translators import test_step as cases
from xdesc_jax.config import LossConfig, ModelConfig
from xdesc_jax.features import l2net
from xdesc_jax.networks import mlp
from xdesc_jax.train.descriptors.config import DescriptorConfig
from xdesc_jax.train.descriptors.step import train_step as descriptor_step
from xdesc_jax.train.translators.step import read_inputs, train_step

ROWS = 24


def products(jaxpr):
    """Every matrix product and convolution of a program: (shape of the result, precision)."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            precision = equation.params["precision"]
            pair = precision if isinstance(precision, tuple) else (precision, precision)
            assert pair[0] == pair[1]
            found.append((equation.outvars[0].aval.shape, pair[0] or Precision.DEFAULT))
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            found += products(inner) if hasattr(inner, "eqns") else []
    return found


def split(found, is_mining):
    """Precisions of mining and of the rest."""
    assert any(is_mining(shape) for shape, _ in found)
    return tuple({precision for shape, precision in found if is_mining(shape) == mining} for mining in (True, False))


@pytest.mark.parametrize(
    ("network", "mining", "expected"),
    [
        (None, None, (Precision.HIGHEST, Precision.DEFAULT)),
        ("high", "highest", (Precision.HIGHEST, Precision.HIGH)),
        ("highest", "default", (Precision.DEFAULT, Precision.HIGHEST)),
    ],
)
@pytest.mark.parametrize("target_matching", [False, True])
def test_a_translators_products(network, mining, expected, target_matching):
    """By default, mining is exact; gradients carry the networks' precision, too."""
    config = ModelConfig(embedding_width=6, **({"precision": network} if network else {}))
    networks = mlp.build_networks(cases.SPECS, config)
    step = partial(
        train_step, networks=networks, inputs_of=lambda b, _: read_inputs(b, cases.SPECS, cases.SCALES),
        variant="quadratic", distance="squared", target_matching=target_matching,
        mining_precision=mining or LossConfig().mining_precision,
    )  # fmt: skip
    traced = jax.make_jaxpr(step)(cases.fresh(networks), cases.make_batch(ROWS), cases.KEYS, cases.HYPER)
    found = split(products(traced.jaxpr), lambda shape: shape[-2:] == (ROWS, ROWS))
    assert found == ({expected[0]}, {expected[1]})


@pytest.mark.parametrize("loss", ["hardnet", "sosnet"])
@pytest.mark.parametrize(("network", "mining"), [("default", "highest"), ("highest", "high")])
def test_a_descriptors_products(loss, network, mining):
    step = partial(
        descriptor_step, kind="hardnet", loss=loss, convolution=l2net.training_convolution("gpu", network),
        mining_precision=mining,
    )  # fmt: skip
    traced = jax.make_jaxpr(step)(pairs.fresh(), pairs.make_batch(), pairs.KEYS, pairs.HYPER)
    found = split(products(traced.jaxpr), lambda shape: set(shape) <= {2, 12, 24} and len(shape) < 4)
    assert found == ({Precision[mining.upper()]}, {Precision[network.upper()]})


def test_a_descriptor_mines_exactly_unless_told_otherwise():
    config = DescriptorConfig()
    assert (config.precision, config.mining_precision) == ("default", "highest")


def test_precisions_are_those_that_jax_knows():
    x = jnp.ones((2, 2))
    for precision in ("default", "high", "highest"):
        jnp.matmul(x, x, precision=precision)
