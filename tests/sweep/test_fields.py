"""Swept fields as axes."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.sweep.fields import axis, shortened, text, varies


def test_values_that_span_a_decade_are_logarithmic():
    found = axis("model.embedding_width", [16, 256, 64])
    assert found.scale == "log" and found.numeric
    np.testing.assert_allclose(found.positions, np.log10([16, 256, 64]))
    assert found.labels == ("16", "64", "256") and found.ticks == tuple(np.log10([16, 64, 256]))


def test_a_learning_rate_is_logarithmic_over_any_span():
    assert axis("optimizer.learning_rate", [1e-3, 2e-3]).scale == "log"
    assert axis("loss.margin", [1.0, 2.0]).scale == "linear"


def test_many_values_of_a_logarithmic_axis_have_round_ticks():
    values = np.geomspace(2e-4, 5e-1, 40).tolist()
    assert axis("loss.alpha", values).labels == ("0.001", "0.01", "0.1")
    assert axis("loss.alpha", np.geomspace(0.06, 0.9, 40).tolist()).labels == ("0.1", "0.2", "0.5")
    assert axis("loss.alpha", np.geomspace(0.05, 1.5, 40).tolist()).labels == ("0.1", "0.3", "1")


def test_a_zero_among_decades_makes_ordered_categories():
    found = axis("loss.alpha", [1.0, 0.0, 0.1])
    assert (found.scale, found.labels) == ("category", ("0", "0.1", "1"))
    assert found.positions.tolist() == [2, 0, 1]
    assert axis("loss.alpha", [0.0, *np.geomspace(0.01, 1, 30)]).scale == "linear"


def test_ticks_stand_apart():
    assert axis("seed", [0, 1, 100, 5]).labels == ("0", "1", "5", "100")  # a zero: categories
    assert axis("seed", [50, 51, 100, 60]).labels == ("50", "60", "100")


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["b", "a", "b"], ("a", "b")),
        ([True, False], ("false", "true")),
        ([[512, 512], [64], [64, 8]], ("64", "64, 8", "512, 512")),
        ([["sift", "brief"], []], ("(empty)", "sift, brief")),
        ([None, "a", 10, 9, True, [1], {"k": 1}], ("none", "true", "9", "10", "a", "1", '{"k": 1}')),
        (["1", 1], ("1", "1")),
        ([True, "true"], ("true", "true")),
        ([1, True], ("true", "1")),
    ],
)
def test_other_values_are_categories_in_order(values, labels):
    found = axis("x", values)
    assert found.scale == "category" and found.labels == labels
    assert [labels[int(p)] for p in found.positions] == [text(v) for v in values]


def test_a_field_varies_where_it_has_two_values():
    assert not varies([1, 1.0]) and not varies([[1, 2], [1, 2]]) and not varies([None])
    assert varies([1, True]) and varies(["1", 1]) and varies([[1, 2], [2, 1]]) and varies([None, 0])


def test_groups_are_one_a_value_where_there_are_few():
    assert axis("seed", [30, 10, 30, 20]).groups().tolist() == [2, 0, 2, 1]
    assert axis("x", list("abcdefghijklmnopq")).groups().tolist() == list(range(17))


def test_many_values_are_grouped_with_neighbours():
    rng = np.random.default_rng(0)
    values = rng.permutation(np.linspace(1, 2, 45))
    groups = axis("loss.margin", values.tolist()).groups(5)
    assert np.bincount(groups).tolist() == [9] * 5
    assert all(values[groups == g].max() < values[groups == g + 1].min() for g in range(4))


def test_equal_values_stay_in_one_group():
    values = [1.0] * 30 + np.linspace(2, 3, 20).tolist()
    groups = axis("loss.margin", values).groups(4)
    assert len(set(groups[:30])) == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "none"),
        (True, "true"),
        (0.1, "0.1"),
        (1 / 3, "0.333333"),
        (3, "3"),
        ((1, 2.5), "1, 2.5"),
        ([], "(empty)"),
    ],
)
def test_a_value_as_text(value, shown):
    assert text(value) == shown


def test_long_labels_lose_their_middle():
    assert shortened("abcdefghij", 7) == "abc\u2026hij"
    assert shortened("abcdefghij", 10) == "abcdefghij"
