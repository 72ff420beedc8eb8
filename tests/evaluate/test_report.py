"""The HTML report and its pictures."""

import html.parser
import io
import re

import numpy as np
import pytest
from PIL import Image

from xdesc_jax.evaluate.drawing import counts, matches_grid, matches_picture, mma_curves, side_by_side
from xdesc_jax.evaluate.homography import Comparison, MatchedPair, Result
from xdesc_jax.evaluate.measures import Measures
from xdesc_jax.evaluate.report import COLUMNS, Picture, Section, matrix, table_rows, write_report


def measures(ap, ratio=0.9):
    mma = tuple(np.linspace(0, ap, 10).tolist())
    return Measures(ap, mma, float(np.mean(mma[:5])), 120, 0.5, 110, 1300, 240, 1000, 500, ratio, 150, 0.375)


def result(mode, source, target, ap, ratio=0.9):
    found = measures(ap, ratio)
    pairs = {"door": {"2.png": found}, "wall": {"2.png": found, "3.png": found}}
    return Result(Comparison(mode, source, target), pairs)


RESULTS = [
    result("native", "sift", "sift", 0.5),
    result("native", "brief", "brief", 0.4),
    result("translated", "sift", "brief", 0.25),
    result("translated", "brief", "sift", 0.125),
    result("joint", "sift", "brief", 0.375),
]


@pytest.fixture
def matched():
    xy = np.array([[1.0, 2.0], [30, 20], [10, 5]])
    return MatchedPair(xy, xy + 3, np.array([True, False, True]))


@pytest.fixture
def photos():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (31, 47), np.uint8), rng.integers(0, 256, (40, 52), np.uint8)


class Page(html.parser.HTMLParser):
    """Collects what a page refers to, its text, and whether its tags close."""

    VOID = {"meta", "img", "source", "br", "link"}

    def __init__(self, text):
        super().__init__()
        self.open, self.references, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.references += [value for key, value in attributes if key in ("src", "srcset", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    pictures = [Picture(b"\x89PNG<not drawn>", "sift | <brief>", "3 of 4")]
    section = Section("Warped & stereo", "Some <words>.", RESULTS, "a and b", pictures)
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(
        path,
        "A report",
        [section],
        settings={"seed": 3, "views": {"noise": 5.5}, "weights": None},
        model={"space": "abc"},
    )
    return path.read_text()


def test_page_is_well_formed_and_refers_to_nothing_outside(page):
    parsed = Page(page)
    assert parsed.open == []
    assert len(parsed.references) == 3
    assert all(reference.startswith("data:image/") for reference in parsed.references)
    assert not re.search(r"https?://|@import|url\(", page)


def test_page_shows_figures_settings_and_model_with_their_text_escaped(page):
    texts = Page(page).texts
    figures = ["0.125", "0.375", "sift \u2192 brief"]
    for text in [*figures, "Some <words>.", "sift | <brief>", "seed", "3", "noise", "5.5", "none", "space", "abc"]:
        assert text in texts, text


def test_page_is_made_for_light_and_dark_screens(page):
    assert "color-scheme: light dark" in page
    assert 'media="(prefers-color-scheme: dark)"' in page


def test_matrix_holds_native_figures_on_its_diagonal_and_none_where_not_compared():
    assert matrix(RESULTS, "translated") == (["sift", "brief"], [[0.5, 0.25], [0.125, 0.4]])
    assert matrix(RESULTS, "joint") == (["sift", "brief"], [[None, 0.375], [None, None]])


def test_table_rows_hold_mode_label_and_every_column():
    rows = table_rows(RESULTS)
    assert rows[2] == ["sift -> brief", "0.250", "0.056", "120.0", "110.0", "0.500", "1,300.0"]
    assert all(len(row) == 1 + len(COLUMNS) for row in rows)


def test_figures_at_calibrated_ratios_are_listed_where_there_are_any():
    rows = table_rows([*RESULTS, result("translated", "sift", "brief", 0.25, ratio=0.95)])
    assert rows[-1] == [
        "sift -> brief",
        "0.250",
        "0.056",
        "120.0",
        "110.0",
        "0.500",
        "1,300.0",
        "0.950",
        "150.0",
        "0.375",
    ]
    assert rows[0][-3] == "0.900"


def test_photos_of_two_sizes_share_a_canvas(photos):
    canvas, offset = side_by_side(*photos)
    np.testing.assert_array_equal(canvas[:31, :47], photos[0])
    np.testing.assert_array_equal(canvas[:, offset:], photos[1])


def test_counts_say_how_many_matches_are_correct(matched):
    assert counts(matched) == "2 of 3 matches correct"


def test_correct_matches_are_green_and_wrong_ones_red(photos, matched):
    def strongest(correct):
        only = MatchedPair(matched.query_xy[:1], matched.database_xy[:1], np.array([correct]))
        pixels = np.asarray(Image.open(io.BytesIO(matches_picture(*photos, only, 400))).convert("RGB"), int)
        return (pixels[..., 1] - pixels[..., 0]).max(), (pixels[..., 0] - pixels[..., 1]).max()

    green, red = strongest(True)
    assert green > 60 > red
    green, red = strongest(False)
    assert red > 60 > green


def test_a_pair_without_matches_is_drawn(photos):
    empty = MatchedPair(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, bool))
    assert Image.open(io.BytesIO(matches_picture(*photos, empty, 300))).size[0] == 300


def test_grid_draws_an_odd_number_of_panels(photos, matched):
    picture = Image.open(io.BytesIO(matches_grid(*photos, [("a", matched)] * 3, 600)))
    assert picture.size[0] == 600


@pytest.mark.parametrize("dark", [False, True])
def test_curves_are_drawn_on_a_transparent_ground(dark):
    picture = np.asarray(Image.open(io.BytesIO(mma_curves(RESULTS, dark=dark))))
    assert picture[0, 0, 3] == 0
