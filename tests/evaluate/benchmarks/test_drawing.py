"""Plots of benchmarks, each in one form."""

import numpy as np
import pytest

from xdesc_jax.evaluate.benchmarks import drawing
from xdesc_jax.evaluate.benchmarks.results import Row
from xdesc_jax.reports.chart import Look

PATCHES = {
    "verification": {n: {"intra": {"imbalanced": 40.0}, "inter": {"imbalanced": 60.0}} for n in "eht"},
    "matching": {n: {"illumination": 30.0, "viewpoint": 50.0} for n in "eht"},
    "retrieval": {"e": 70.0, "h": 60.0, "t": 50.0},
}


def test_bars_of_patches_are_ordered_and_marked():
    values = {"verification": 50.0, "matching": 40.0, "retrieval": 60.0}
    rows = [Row("low", values, detail=PATCHES), Row("high", {k: v + 9 for k, v in values.items()}, detail=PATCHES)]
    figure = drawing.patch_bars(rows, look=Look())
    assert [panel.get_title() for panel in figure.axes] == ["verification", "matching", "retrieval"]
    for panel, marks in zip(figure.axes, (6, 6, 3), strict=True):
        assert [label.get_text() for label in panel.get_yticklabels()] == ["low", "high"]
        assert [bar.get_width() for bar in panel.patches] == sorted(bar.get_width() for bar in panel.patches)
        assert len(panel.lines) == marks and all(len(line.get_xdata()) == 2 for line in panel.lines)


@pytest.mark.parametrize("narrow", [False, True])
def test_curves_of_accuracy_have_a_panel_a_kind(narrow):
    mma = {"overall": np.linspace(0, 1, 10), "viewpoint": np.linspace(0, 0.5, 10)}
    figure = drawing.accuracy_curves([Row("a", {}, detail={"mma": mma})] * 2, look=Look(narrow=narrow))
    assert [panel.get_title() for panel in figure.axes] == ["overall", "viewpoint"]
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), 100 * mma["viewpoint"])


def test_differences_are_ordered_from_the_largest():
    best = Row("best", {}, detail={"area": {"i_a": 0.5, "i_b": 0.75, "v_c": 0.25}})
    other = Row("other", {}, detail={"area": {"i_a": 0.25, "i_b": 0.75, "v_c": 0.5}})
    (panel,) = drawing.scene_differences(best, [other], look=Look()).axes
    assert panel.get_title() == "best less other"
    assert [bar.get_height() for bar in panel.patches] == [25, 0, -25]


def test_shares_rise_with_the_error_and_end_below_one_where_some_failed():
    (panel,) = drawing.shares_within({"a": [1.0, 30, np.inf, 4]}, 20, "error", look=Look()).axes
    np.testing.assert_allclose(panel.lines[0].get_ydata(), [0, 25, 50, 50])


def test_planes_have_a_panel_a_model_and_a_colour_a_descriptor():
    plane = {"a": [[0.0, 1.0], [2.0, 3.0]], "b": [[0.5, 1.0], [2.0, 4.0]]}
    figure = drawing.planes([Row(name, {}, detail={"plane": plane}) for name in ("with", "without")], look=Look())
    assert [panel.get_title() for panel in figure.axes] == ["with", "without"]
    assert [line.get_label() for line in figure.axes[1].lines] == ["a", "b"]
    np.testing.assert_allclose(figure.axes[0].lines[1].get_xydata(), plane["b"])
    assert len({line.get_color() for line in figure.axes[0].lines}) == 2
