"""How photos were held, found from the poses of cameras of known roll, yaw and pitch in a world of any orientation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image, ImageOps

from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.localization.upright import down, turns_of_queries, upright_turns


def about(axis, deg):
    """Rotation about x, y or z, right-handed."""
    c, s = np.cos(np.deg2rad(deg)), np.sin(np.deg2rad(deg))
    i, j = [(1, 2), (2, 0), (0, 1)][axis]
    found = np.eye(3)
    found[[i, i, j, j], [i, j, i, j]] = c, -s, s, c
    return found


def cameras(yaws, pitches, rolls, world):
    """World to camera: the level camera (x right, y down, z ahead) turned by yaw, pitch, and its photo by `rolls`."""
    return np.stack(
        [about(2, r) @ about(0, p) @ about(1, y) @ world.T for y, p, r in zip(yaws, pitches, rolls, strict=True)]
    )


@pytest.fixture(scope="module")
def world():
    q, _ = np.linalg.qr(np.random.default_rng(8).normal(size=(3, 3)))
    return q * np.sign(np.linalg.det(q))


def turned(model, rotations):
    """A model of these cameras, its photos being named by number."""
    names = tuple(f"{i:03d}.png" for i in range(len(rotations)))
    return dataclasses.replace(model, names=names, rotations=rotations)


@pytest.mark.parametrize("yaw_deg", [360, 5], ids=["all round", "one way"])
def test_photos_are_set_upright_by_their_poses(place, world, yaw_deg):
    rng, n = np.random.default_rng(1), 40
    held = np.where(rng.random(n) < 0.6, 0, rng.choice([90, 180, -90], n))  # 60 % as they lie
    rolls = held + rng.uniform(-6, 6, n)
    rotations = cameras(rng.uniform(0, yaw_deg, n), rng.uniform(-15, 15, n), rolls, world)
    assert np.rad2deg(np.arccos(down(rotations) @ world[:, 1])) < 4
    turns = upright_turns(turned(read_model(place.model), rotations))
    assert list(turns) == [f"{i:03d}.png" for i in range(n)]
    apart = (np.array(list(turns.values())) + rolls + 180) % 360 - 180
    assert np.abs(apart).max() < 5
    assert all(-180 <= turn < 180 for turn in turns.values())


def test_a_turn_is_clockwise_as_one_sees_it(place):
    """A photo in which down is to the right: a quarter turn clockwise brings it down."""
    rotations = np.stack([np.eye(3)] * 5 + [about(2, -90)])
    assert (rotations[5] @ [0, 1, 0]).round().tolist() == [1, 0, 0]
    assert list(upright_turns(turned(read_model(place.model), rotations)).values()) == pytest.approx([0] * 5 + [90])


def test_one_photo_lies_as_it_lies_and_one_that_looks_down_has_no_roll(place, world):
    model = read_model(place.model)
    assert upright_turns(turned(model, world[None])) == {"000.png": pytest.approx(0, abs=1e-6)}
    rotations = cameras([0, 90, 180, 20], [0, 0, 0, -85], [0, 0, 0, 50], world)
    assert upright_turns(turned(model, rotations))["003.png"] == 0


def test_photos_held_in_all_ways_are_refused(place):
    rng = np.random.default_rng(3)
    q = np.stack([np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(60)])
    rotations = q * np.sign(np.linalg.det(q))[:, None, None]
    with pytest.raises(ValueError, match="the 60 photos were held in too many ways to tell where down is: their sides"):
        upright_turns(turned(read_model(place.model), rotations))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_query_is_set_upright_as_readers_of_exif_do(tmp_path, orientation):
    """What Pillow does to a photo whose orientation has no mirror is the turn that is said; mirrored ones stay."""
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    turn = turns_of_queries(tmp_path, {"a.png": (3, 2)})["a.png"]
    if orientation in (2, 4, 5, 7):
        assert turn == 0
        return
    shown = np.asarray(ImageOps.exif_transpose(Image.open(tmp_path / "a.png")))
    assert np.array_equal(np.rot90(pixels, -turn / 90), shown)


def test_a_photo_that_was_turned_before_stays_as_do_files_that_say_nothing(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (8, 6)).save(tmp_path / "a.jpg", exif=exif)
    (tmp_path / "b.jpg").write_text("no photo")
    sizes = {"a.jpg": (4, 3), "b.jpg": (4, 3), "c.jpg": (4, 3)}  # features may be of a smaller photo
    assert turns_of_queries(tmp_path, sizes) == {"a.jpg": 90, "b.jpg": 0, "c.jpg": 0}
    assert turns_of_queries(tmp_path, {"a.jpg": (3, 4)}) == {"a.jpg": 0}
    assert turns_of_queries(tmp_path, {"a.jpg": (0, 0)}) == {"a.jpg": 90}
