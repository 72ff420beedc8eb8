"""Figures of descriptors, by hand and on a network."""

import jax
import numpy as np
import pytest

from xdesc_jax.features import l2net
from xdesc_jax.train.descriptors.validation import false_positive_rate, stranger_distances, validator


def test_false_positive_rate_at_a_recall():
    positive = np.arange(1, 21) / 20  # 95 % of 20 are 19: threshold 0.95
    assert false_positive_rate(positive, np.array([0.5, 0.95, 0.96, 2.0])) == 0.5
    assert false_positive_rate(positive, np.array([0.5, 0.95, 0.96, 2.0]), recall=0.5) == 0.25


def test_strangers_are_never_the_own_partner():
    a = np.arange(3.0)[:, None]
    np.testing.assert_array_equal(sorted(stranger_distances(a, a)), [1, 1, 1, 1, 2, 2])


def test_figures_by_source_and_their_means():
    """Pairs that are equal are found at distance zero; pairs of noise by chance."""
    rng = np.random.default_rng(0)
    same, other, third = (rng.integers(0, 256, (6, 32, 32), np.uint8) for _ in range(3))
    sources = {
        "equal": {"patch": same, "pair": same, "point": np.arange(6, dtype=np.int32)},
        "noise": {"patch": other, "pair": third, "point": np.arange(6, dtype=np.int32)},
    }
    figures = validator("sosnet", "hardnet", 1.0, 4)(l2net.init(jax.random.key(0)), sources)
    assert figures["rank1"]["equal"] == 1 and figures["fpr95"]["equal"] == 0
    assert figures["rank1"]["noise"] < 1 and figures["fpr95"]["noise"] > 0
    assert figures["loss"]["equal"] < figures["loss"]["noise"]
    for name in ("rank1", "fpr95", "loss"):
        assert figures[f"mean_{name}"] == pytest.approx(np.mean(list(figures[name].values())))
