"""Drawings for each kind of screen."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
import pytest
from PIL import Image

from tests.evaluate.test_report import RESULTS
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate import map_drawing
from xdesc_jax.evaluate.covisibility import Covisibility
from xdesc_jax.evaluate.drawing import mma_curves
from xdesc_jax.reports.chart import NARROW_PX, Look, chart, log_x, round_ticks

LOOKS = [Look(dark, narrow) for dark in (False, True) for narrow in (False, True)]
POSES = [Pose(np.eye(3), np.array([float(i), 0, 5])) for i in range(3)]
SHARED = Covisibility(("brief", "sift"), np.array([0.75, 0.25]), np.array([[0.5, 0.25], [0.25, 0.75]]))
DRAWINGS = {
    "accuracy": (mma_curves, RESULTS),
    "model": (map_drawing.model_picture, np.random.default_rng(0).normal(size=(31, 3)), POSES, POSES),
    "errors": (map_drawing.error_curves, {f"sift \u2192 {i}": np.array([0.02, 0.3, np.inf]) for i in range(12)}, "m"),
    "kinds": (map_drawing.covisibility_picture, SHARED),
    "bars": (map_drawing.spread_bars, ["brief", "a long name \u2190 another"], [1.0, 2], [0.1, 0], "inliers"),
    "growth": (map_drawing.growth, [0, 4, 8], {"real rows": [0, 0.2, 0.3], "points": [0, 0.4, 0.6]}, "share"),
}


@pytest.mark.parametrize("drawing", DRAWINGS.values(), ids=DRAWINGS)
@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_text_is_large_enough_and_stays_within_its_drawing(drawing, look):
    draw, *arguments = drawing
    with matplotlib.rc_context(look.style):
        figure = draw(*arguments, look=look)
        figure.canvas.draw()
        texts = [t for t in figure.findobj(matplotlib.text.Text) if t.get_text().strip() and t.get_visible()]
        assert texts
        for text in texts:
            assert text.get_fontsize() * figure.dpi / 72 >= 11
        width = figure.get_figwidth() * figure.dpi
        assert width <= NARROW_PX if look.narrow else width > 500
        for legend in figure.legends:
            assert legend.get_window_extent().x1 <= width + 1


def test_a_chart_has_four_forms_on_a_transparent_ground():
    picture = chart(*DRAWINGS["growth"], title="Growth")
    forms = [picture.data, picture.dark, picture.narrow, picture.narrow_dark]
    images = [np.asarray(Image.open(io.BytesIO(form))) for form in forms]
    assert [image.shape[1] for image in images] == [1080, 1080, 2 * NARROW_PX, 2 * NARROW_PX]
    assert all(image[0, 0, 3] == 0 for image in images)
    light, dark = (image[image[..., 3] > 250][:, :3].max(axis=1).min() for image in images[:2])
    assert light < 40 < dark  # dark ink on light pages alone


@pytest.mark.parametrize(("low", "high"), [(1e-3, 1), (0.034, 0.041), (0.06, 0.09), (1, 30), (1e-9, 1e9), (3, 3.001)])
def test_a_log_axis_has_several_round_labels_within_its_range(low, high):
    ticks = round_ticks(low, high)
    assert 2 <= len(ticks) <= 8 and low * 0.999999 <= ticks[0] and ticks[-1] <= high * 1.000001
    axes = Look().figure(200).subplots()
    log_x(axes, low, high)
    axes.figure.canvas.draw()
    assert len({label.get_text() for label in axes.get_xticklabels()}) == len(ticks)


def test_ticks_of_decades_are_powers_of_ten():
    np.testing.assert_allclose(round_ticks(0.5, 2000), [1, 10, 100, 1000])
    np.testing.assert_allclose(round_ticks(0.9, 25), [1, 3, 10])
