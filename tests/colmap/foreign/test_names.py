"""What photos are called that another program names by their paths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xdesc_jax.colmap.foreign.scene import Observations, Photo, Scene, fixed_lens, photo_names
from xdesc_jax.colmap.model import Pose


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


def scene_of(name):
    lens, pose = fixed_lens("SIMPLE_PINHOLE", (64, 48), (60, 32, 24)), Pose(np.eye(3), np.zeros(3))
    return Scene(Path("m.nvm"), (Photo(name, pose, lens),), np.zeros((0, 3)), Observations.of([]))


@pytest.mark.parametrize("name", ["at 9.41\u202fPM.png", "写真\u3000一.jpg", "a\xa0b.jpg", "e\u0301.jpg"])
def test_a_name_may_hold_blanks_of_any_kind(name):
    assert scene_of(name).names() == [name]


@pytest.mark.parametrize("name", ["a\x07.jpg", "a\nb.jpg", "\udce9.jpg"])
def test_a_name_with_what_no_list_can_hold_is_refused(name):
    with pytest.raises(ValueError, match="m.nvm: a photo is called .*, expected a name"):
        scene_of(name).names()
