"""Views of photos to train on: what they show, under which homography, and that a stopped run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.support.stopped import Calls, Stopped
from xdesc_jax.data import views as stage
from xdesc_jax.data.views import TooSmall, ViewSettings, draw, views
from xdesc_jax.features.images import read_rgb
from xdesc_jax.features.warp import project

PLAIN = {"exposure": (1, 1), "gamma": 0, "balance": 0, "blur": 0, "noise": 0, "jpeg": (100, 100)}
SIZE = (391, 307)


def write_photo(path: Path, seed: int, size: tuple[int, int] = SIZE) -> None:
    noise = np.random.default_rng(seed).normal(size=(size[1], size[0], 3))
    smooth = cv2.GaussianBlur(noise, (0, 0), 4)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cv2.imencode(".png", cv2.normalize(smooth, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8))[1])


@pytest.fixture
def photos(tmp_path):
    for seed, name in enumerate(("a.png", "place/b é.png", "place/c.png")):
        write_photo(tmp_path / "photos" / name, seed)
    return tmp_path / "photos"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def about(out: Path) -> dict:
    return json.loads((out / "views.json").read_text())


def test_views_show_at_mapped_positions_what_the_photo_shows_and_nothing_beyond_it(photos, tmp_path):
    out = views(photos, tmp_path / "out", settings=ViewSettings(views=3, side=301, **PLAIN, free=0.5, seed=4))
    told = about(out)
    assert sorted(told["files"]) == sorted(
        f"{folder}/{k}.png" for folder in ("a", "place/b é", "place/c") for k in range(4)
    )
    for file, entry in told["files"].items():
        photo, view = read_rgb(photos / entry["photo"]), read_rgb(out / file)
        homography = np.array(entry["homography"])
        width, height = entry["size"]
        assert view.shape == (height, width, 3) and 160 <= min(view.shape[:2]) <= max(view.shape[:2]) <= 301
        xy = np.random.default_rng(0).uniform(3, [width - 4, height - 4], (400, 2))
        there = project(np.linalg.inv(homography), xy).astype(np.float32)
        expected = cv2.remap(photo, there[None], None, cv2.INTER_LINEAR)[0].astype(float)
        found = cv2.remap(view, xy[None].astype(np.float32), None, cv2.INTER_LINEAR)[0].astype(float)
        assert np.abs(found - expected).mean() < 3  # a shift by one px gives about 8
        rim = project(
            np.linalg.inv(homography), np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]])
        )
        assert (rim > -1).all() and (rim < SIZE).all()  # half a px of the photo scaled down


def test_the_first_file_is_the_photo_by_means_over_areas(tmp_path):
    write_photo(tmp_path / "photos" / "a.png", 0, (400, 360))
    out = views(tmp_path / "photos", tmp_path / "out", settings=ViewSettings(views=0, side=200))
    blocks = read_rgb(tmp_path / "photos" / "a.png").reshape(180, 2, 200, 2, 3).astype(float).mean(axis=(1, 3))
    assert np.abs(read_rgb(out / "a" / "0.png") - blocks).max() <= 0.5
    # The first pixel's centre lies between those of the first four.
    np.testing.assert_allclose(
        about(out)["files"]["a/0.png"]["homography"], [[0.5, 0, -0.25], [0, 0.5, -0.25], [0, 0, 1]]
    )


def test_a_photo_s_views_depend_neither_on_other_photos_nor_on_processes_nor_on_their_number(photos, tmp_path):
    one = tree(views(photos, tmp_path / "one", settings=ViewSettings(views=2)))
    two = tree(views(photos, tmp_path / "two", settings=ViewSettings(views=2), processes=2))
    assert one == two
    (photos / "a.png").unlink()
    fewer = tree(views(photos, tmp_path / "fewer", settings=ViewSettings(views=1)))
    del fewer["views.json"]
    assert len(fewer) == 4 and fewer.items() <= one.items()
    other = tree(views(photos, tmp_path / "other", settings=ViewSettings(views=1, seed=1)))
    assert other["place/c/1.png"] != one["place/c/1.png"] and one["place/c/1.png"] != one["place/b é/1.png"]


def test_a_stopped_run_goes_on_and_ends_in_the_same_files(photos, tmp_path, monkeypatch):
    whole = tree(views(photos, tmp_path / "whole", settings=ViewSettings(views=2)))
    written = Calls(monkeypatch, stage, "write_png")
    written.until = 5  # in the middle of the second photo
    with pytest.raises(Stopped):
        views(photos, tmp_path / "out", settings=ViewSettings(views=2))
    assert not (tmp_path / "out").exists()
    (tmp_path / ".out.work/views/a/.0.png.1.partial").touch()  # as of a process that was killed
    written.done, written.until = 0, None
    assert tree(views(photos, tmp_path / "out", settings=ViewSettings(views=2))) == whole
    assert written.done == 6
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "photos", "whole"]


def test_what_another_configuration_left_is_not_taken_over(photos, tmp_path, monkeypatch):
    written = Calls(monkeypatch, stage, "write_png")
    written.until = 7
    with pytest.raises(Stopped):
        views(photos, tmp_path / "out", settings=ViewSettings(views=5))
    written.until = None
    out = views(photos, tmp_path / "out", settings=ViewSettings(views=1))
    assert sorted(tree(out)) == sorted([*about(out)["files"], "views.json"])


def test_finished_views_are_found_and_others_refused(photos, tmp_path, capsys):
    out = views(photos, tmp_path / "out")
    before = (out / "a/1.png").stat().st_mtime_ns
    views(photos, out, processes=2)
    assert "up to date" in capsys.readouterr().out and (out / "a/1.png").stat().st_mtime_ns == before
    write_photo(photos / "a.png", 9)
    with pytest.raises(FileExistsError, match=r"another configuration \(photos: other content\)"):
        views(photos, out)
    views(photos, out, overwrite=True, settings=ViewSettings(views=0))
    assert not (out / "a/1.png").exists()


def test_turn_free_and_zoom_bound_what_is_drawn():
    def drawn(**settings) -> tuple[np.ndarray, np.ndarray]:
        chosen = ViewSettings(tilt=1, perspective=0, **settings)
        linear = [draw(str(i), 1, (900, 700), chosen).homography[:2, :2] for i in range(60)]
        zoom = np.array([np.sqrt(np.linalg.det(a)) for a in linear])
        return np.abs([np.rad2deg(np.arctan2(a[1, 0], a[0, 0])) for a in linear]), zoom

    turn, zoom = drawn(turn=40, free=0, zoom=(0.7, 0.9))
    assert 30 < turn.max() <= 40.001 and 0.699 < zoom.min() < 0.75 < 0.85 < zoom.max() < 0.901
    turn, _ = drawn(turn=5, free=0.5)
    assert 15 <= (turn > 5.001).sum() <= 45 and turn.max() > 120


def test_gray_photos_stay_gray_and_colours_keep_their_order(photos, tmp_path):
    cv2.imwrite(str(photos / "gray.png"), cv2.imread(str(photos / "a.png"), cv2.IMREAD_GRAYSCALE))
    red = np.zeros((320, 330, 3), np.uint8)
    red[...] = 20, 40, 200  # BGR
    cv2.imwrite(str(photos / "red.png"), red)
    out = views(photos, tmp_path / "out", settings=ViewSettings(views=2, balance=0.1))
    for k in range(3):
        assert cv2.imread(str(out / f"gray/{k}.png"), cv2.IMREAD_UNCHANGED).ndim == 2
    one, two = (read_rgb(out / f"red/{k}.png").mean(axis=(0, 1)) for k in (1, 2))
    assert one[0] > 2 * one[1] > 2.5 * one[2] and two[0] > 2 * two[1] > 2.5 * two[2]
    ratio = np.log(one / two)
    assert np.ptp(ratio) > 0.05  # each colour has a gain of its own


def test_photos_that_cannot_be_used_are_left_out_or_end_a_strict_run(photos, tmp_path, caplog):
    (photos / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    write_photo(photos / "tiny.png", 3, (100, 90))
    out = views(photos, tmp_path / "out")
    told = caplog.text
    assert "cut.jpg" in told and "tiny.png: none of 100 views of a photo of 100 x 90 px has 160 px" in told
    assert set(about(out)["skipped"]) == {"cut.jpg", "tiny.png"} and not (out / "tiny").exists()
    with pytest.raises(ValueError, match="cut.jpg"):
        views(photos, tmp_path / "strict", strict=True)
    assert not (tmp_path / "strict").exists()
    for path in photos.rglob("[a-c]*.png"):
        path.unlink()
    with pytest.raises(ValueError, match="no photo can be used, first of 2: .*cut.jpg"):
        views(photos, tmp_path / "none")


def test_no_view_is_smaller_than_160_px():
    settings = ViewSettings(zoom=(0.3, 1.5), free=1)
    assert min(min(draw(str(i), 1, (331, 270), settings).size) for i in range(40)) >= 160
    with pytest.raises(TooSmall, match="150 x 170"):
        draw("a", 1, (150, 170), ViewSettings(zoom=(0.5, 0.9)))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.png", "a.jpg"], "'a.jpg' and 'a.png' would both be"),
        (["a.png", "a/1.png.png"], "a file of 'a.png' and a folder of 'a/1.png.png'"),
        (["a.png", "a/0.png/b.png"], "a file of 'a.png' and a folder of 'a/0.png/b.png'"),
        (["views.json.png"], "a file of 'all photos' and a folder of 'views.json.png'"),
    ],
)
def test_photos_whose_views_would_have_one_name_are_told_apart_first(names, message, tmp_path):
    for name in names:
        write_photo(tmp_path / "photos" / name, 0, (8, 8))
    with pytest.raises(ValueError, match=message):
        views(tmp_path / "photos", tmp_path / "out")


def test_neither_the_photos_nor_another_folder_are_replaced(photos, tmp_path):
    before = tree(photos)
    for out in (photos, tmp_path):
        with pytest.raises(ValueError, match="would replace the photos"):
            views(photos, out, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(FileExistsError, match="thesis|has no views.json"):
        views(photos, tmp_path / "mine", overwrite=True)
    assert tree(photos) == before and (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"views": -1}, {"side": 100}, {"seed": -1}, {"free": 1.1}, {"turn": 181}, {"zoom": (2, 1)}, {"jpeg": (50, 101)},
        {"noise": -1}, {"balance": -0.1},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused_with_their_value(settings):
    ((field, value),) = settings.items()
    with pytest.raises(ValueError, match=f"{field} is ") as refused:
        ViewSettings(**settings)
    assert str(value) in str(refused.value)
