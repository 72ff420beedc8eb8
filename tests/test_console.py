"""What stages print, word for word."""

import pytest

from xdesc_jax import console

LIKE_MARKUP = "photos [/x] [bold]b"


@pytest.fixture
def printed():
    """Runs a function and gives what it prints."""

    def run(function, *args):
        with console.out.capture() as capture:
            function(*args)
        return capture.get()

    return run


def test_settings_that_look_like_markup_are_printed_as_they_are(printed):
    assert printed(console.settings, LIKE_MARKUP, {"path": LIKE_MARKUP}) == f"{LIKE_MARKUP}\n  path: {LIKE_MARKUP}\n"


def test_tables_that_look_like_markup_are_printed_as_they_are(printed):
    text = printed(console.table, LIKE_MARKUP, [LIKE_MARKUP, "[/y]"], [[LIKE_MARKUP, 0.5]])
    assert text.count(LIKE_MARKUP) == 3
    assert "[/y]" in text and "0.500" in text
