"""Plots of a sweep: what stands in them; that plotly takes them."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects
import pytest

from tests.support.sweep_records import diverged, record
from xdesc_jax.sweep.drawing import ablation, importance, learning_curves, parallel_coordinates, shares, shown_range
from xdesc_jax.sweep.fields import axis


def grid():
    records = [
        record({"loss.alpha": alpha, "loss.variant": variant}, 0.5 + 0.1 * i + 0.01 * j)
        for i, alpha in enumerate((0.01, 0.1, 1.0))
        for j, variant in enumerate(("linear", "quadratic", "autoencoder"))
    ]
    return [*records, diverged({"loss.alpha": 1.0, "loss.variant": "<script>"})]


def axes_of(records):
    names = list(records[0]["fields"])
    return [axis(name, [r["fields"].get(name) for r in records]) for name in names]


def assert_plotly_takes(plot):
    plotly.graph_objects.Figure(data=plot.data, layout=plot.layout)
    json.dumps({"data": plot.data, "layout": plot.layout}, allow_nan=False)


def test_parallel_coordinates_have_an_axis_a_field_and_one_of_the_figure():
    records = grid()
    plot = parallel_coordinates(records, axes_of(records))
    assert_plotly_takes(plot)
    alpha, variant, rank = plot.data[0]["dimensions"]
    assert (alpha["label"], alpha["ticktext"]) == ("loss.alpha", ["0.01", "0.1", "1"])
    assert variant["ticktext"] == ["&lt;script&gt;", "autoencoder", "linear", "quadratic"]
    assert rank["values"] == [r["mean_rank1"] for r in records if r["status"] == "finished"]
    np.testing.assert_allclose(alpha["values"], np.repeat([-2, -1, 0], 3), atol=0.04)  # a little apart


def test_an_ablation_has_every_member_and_the_median_of_each_value():
    records = grid()
    alpha, _ = axes_of(records)
    plot = ablation(records, alpha, ["loss.alpha"])
    assert_plotly_takes(plot)
    finished, lost, median = plot.data
    assert (finished["name"], len(finished["x"]), lost["name"], len(lost["x"])) == ("finished", 9, "diverged", 1)
    assert lost["y"][0] < min(finished["y"]) and plot.layout["yaxis"]["range"][0] < lost["y"][0]
    np.testing.assert_allclose(median["x"], [-2, -1, 0])
    np.testing.assert_allclose(median["y"], [0.51, 0.61, 0.71])
    assert lost["customdata"] == [records[-1]["member"]]
    assert "loss is nan at step 17" in lost["text"][0]


def test_categories_of_an_ablation_stand_in_columns():
    records = grid()
    plot = ablation(records, axes_of(records)[1], [])
    assert_plotly_takes(plot)
    assert plot.data[-1]["mode"] == "markers" and plot.data[-1]["x"] == [1, 2, 3]
    assert np.abs(np.array(plot.data[0]["x"]) - np.tile([2, 3, 1], 3)).max() < 0.5


def test_a_member_far_below_all_others_does_not_flatten_the_plot():
    records = [record({"seed": i}, 0.6 + 0.01 * i) for i in range(12)] + [record({"seed": 99}, 0.02)]
    assert shown_range(records) == pytest.approx((0.6, 0.71))
    plot = ablation(records, axes_of(records)[0], [])
    low = next(trace for trace in plot.data if trace["name"] == "below the plot")
    assert plot.layout["yaxis"]["range"][0] < low["y"][0] < 0.6 and "0.0200" in low["text"][0]
    assert min(parallel_coordinates(records, axes_of(records)).data[0]["dimensions"][-1]["values"]) == 0.6


def test_learning_curves_tell_best_others_and_diverged():
    records = [record({"seed": i}, 0.5, epoch=5) for i in range(4)]
    records.append(record({"seed": 9}, 0.4, "diverged", reason="loss is inf at step 900"))
    plot = learning_curves(records, records[:1], ["seed"])
    assert_plotly_takes(plot)
    others, lost, best = plot.data
    assert others["x"] == [1, 5, None] * 3 and others["y"][:3] == [0.1, 0.5, None]
    assert (lost["name"], best["name"]) == ("diverged", f"1: {records[0]['member']}")
    assert "seed: 0" in best["text"][0] and best["text"][0].startswith("epoch 1: 0.1000")


def test_the_field_that_matters_explains_most():
    records = grid()
    found = shares(records, axes_of(records))
    assert list(found) == ["loss.alpha", "loss.variant"]
    assert found["loss.alpha"] > 0.95 and found["loss.variant"] == 0
    plot = importance(records, axes_of(records))
    assert_plotly_takes(plot)
    assert plot.data[0]["x"] == list(found.values())[::-1]


def test_few_members_explain_nothing():
    records = grid()[:5]
    assert shares(records, axes_of(records)) == {} and importance(records, axes_of(records)) is None


@pytest.mark.parametrize("records", [[diverged({"seed": i}) for i in range(3)], [record({"seed": 1})]])
def test_odd_sweeps_are_drawn_too(records):
    (found,) = axes_of(records)
    assert_plotly_takes(ablation(records, found, ["seed"]))
    assert_plotly_takes(learning_curves(records, [], ["seed"]))
    assert_plotly_takes(parallel_coordinates(records, [found]))
