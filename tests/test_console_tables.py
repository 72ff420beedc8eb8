"""Tables, figures and texts that stages print: whole at any width."""

import pytest

from xdesc_jax import console
from xdesc_jax.console.tables import fold, lay_out

LIKE_MARKUP = "photos [/x] [bold]b"
DESCRIPTORS = ["brief", "sift", "opencv-sift", "hardnet-xdesc", "sosnet-xdesc", "tfeat", "beblid-512"]
WIDTHS = [40, 80, 200, None]


@pytest.fixture
def printed():
    """Runs a function and gives what it prints."""

    def run(function, *args, **kwargs):
        with console.out.capture() as capture:
            function(*args, **kwargs)
        return capture.get()

    return run


def wide_rows():
    """Names and figures as the stages have them."""
    heads = ["query, database", "native\nat 0.9", "pair\nat 0.9", "ratio", "by", "reprojection error"]
    rows = [
        [f"{a} -> {b}", 0.123456, 1234567, 0.887, "precision", f"{0.5:.4f} px"]
        for a in DESCRIPTORS
        for b in DESCRIPTORS
    ]
    return heads, rows


def words_of(heads, rows):
    values = [value for row in rows for value in row]
    texts = [f"{v:,.3f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v for v in values]
    return {word.rstrip(",") for text in (*heads, *texts) for word in text.split()}


def at_width(monkeypatch, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))


@pytest.mark.parametrize("width", WIDTHS)
def test_names_and_numbers_of_a_table_are_whole(printed, monkeypatch, width):
    at_width(monkeypatch, width)
    heads, rows = wide_rows()
    text = printed(console.table, "Ratios", heads, rows)
    found = {word.rstrip(",:") for word in text.replace("=", " ").split()}
    labels = {"query", "database"} if width == 40 else set()  # of the first column, which needs no name there
    assert words_of(heads, rows) - found == labels
    assert "…" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_table_is_wider_than_the_screen(printed, monkeypatch, width):
    at_width(monkeypatch, width)
    text = printed(console.table, "Ratios of all pairs of descriptors, pooled over photos", *wide_rows())
    assert max(map(len, text.splitlines())) <= (width or 100)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_matrix_keeps_its_names_and_figures_at_any_width(printed, monkeypatch, width):
    at_width(monkeypatch, width)
    cells = {(i, j): 0.001 * (10 * i + j + 100) for i in range(7) for j in range(7)}
    rows = [[name, *(cells[i, j] for j in range(7))] for i, name in enumerate(DESCRIPTORS)]
    text = printed(console.table, "AP", ["", *DESCRIPTORS], rows, matrix=True)
    assert set(DESCRIPTORS) | {f"{v:.3f}" for v in cells.values()} <= set(text.split())
    assert max(map(len, text.splitlines())) <= (width or 200)


def test_a_matrix_in_blocks_repeats_its_first_column():
    lines, _ = lay_out(["", "one", "two"], [["first", "0.1", "0.2"], ["second", "0.3", "0.4"]], 15, matrix=True)
    assert lines == [
        "         one",
        " ───────────",
        " first   0.1",
        " second  0.3",
        "",
        "         two",
        " ───────────",
        " first   0.2",
        " second  0.4",
    ]


def test_a_table_too_wide_to_fold_has_an_entry_a_row():
    lines, _ = lay_out(["pair", "mean\nerror", "why"], [["a, b", "0.125", "none known"], ["c, d", "", "-"]], 18)
    assert lines == [" a, b: mean", "   error=0.125,", "   why=none known", " c, d: why=-"]


def test_text_folds_between_words_and_numbers_stand_flush_right():
    lines, head = lay_out(["first, second", "n"], [["brief, sift", "7"], ["a", "1,204"]], 14)
    assert (lines, head) == (
        [" first,", " second      n", " ─────────────", " brief,      7", " sift", " a       1,204"],
        3,
    )


def test_a_table_in_a_pipe_is_as_wide_as_it_needs(printed, monkeypatch):
    at_width(monkeypatch, None)
    text = printed(console.table, "t", ["name", "why"], [["a " * 60, "b " * 60]])
    assert len(text.splitlines()) == 5  # title, head, rule, row, blank


def test_columns_of_wide_letters_line_up():
    lines, _ = lay_out(["name", "n"], [["写真", "1"], ["abcd", "2"]])
    assert lines[2:] == [" 写真  1", " abcd  2"]


def test_folding_keeps_a_word_that_is_wider_than_the_screen():
    assert fold("a " + "x" * 20 + " b", 10) == ["a", "x" * 20, "b"]


def test_tables_that_look_like_markup_are_printed_as_they_are(printed):
    text = printed(console.table, LIKE_MARKUP, [LIKE_MARKUP, "[/y]"], [[LIKE_MARKUP, 0.5]])
    assert text.count(LIKE_MARKUP) == 3
    assert "[/y]" in text and "0.500" in text


def test_figures_stand_beside_their_names(printed):
    assert printed(console.figures, "matches", {"pairs_given": 12345, "kept": "yes"}) == (
        "matches\n  pairs given  12,345\n  kept         yes\n\n"
    )
