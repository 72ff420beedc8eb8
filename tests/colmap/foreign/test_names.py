"""What photos are called that another program names by their paths."""

from __future__ import annotations

import pytest

from xdesc_jax.colmap.foreign.scene import photo_names


@pytest.mark.parametrize(
    ("paths", "known", "names"),
    [
        (["./images/a.jpg", "images/b.jpg"], [], ["a.jpg", "b.jpg"]),
        (["/home/x/1/a.jpg", "/home/x/2/a.jpg"], [], ["1/a.jpg", "2/a.jpg"]),
        (["C:\\photos\\a.jpg", "C:\\photos\\b c.jpg"], [], ["a.jpg", "b c.jpg"]),
        (["a.jpg"], [], ["a.jpg"]),
        (["images/1/a.jpg", "images/1/b.jpg"], ["1/a.jpg", "2/a.jpg"], ["1/a.jpg", "b.jpg"]),
        (["a.jpg", "b.jpg"], ["left/a.jpg", "right/b.jpg"], ["left/a.jpg", "right/b.jpg"]),
        (["a.jpg"], ["left/a.jpg", "right/a.jpg"], ["a.jpg"]),  # which one, nothing says
        (["x/left/a.jpg"], ["a.jpg", "left/a.jpg"], ["left/a.jpg"]),
        ([], [], []),
    ],
)
def test_names(paths, known, names):
    assert photo_names(paths, known) == names
