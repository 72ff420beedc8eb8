"""Turned and zoomed queries are localised in views of the photos that they are matched with, one for each pair."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from tests.support.place import rewrite
from tests.support.turned_place import SPECS, turned_place, upright_rows
from xdesc_jax.cli import main
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.lists import read_poses
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.localization import map as map_in_memory
from xdesc_jax.localization.finished import from_entry, to_entry
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.map import LocalizationMap
from xdesc_jax.localization.outcome import Localization
from xdesc_jax.localization.rendered import Sides, best
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.nearest import match
from xdesc_jax.matching.routes import Route, Router
from xdesc_jax.networks.views import AS_IT_LIES, View, parse
from xdesc_jax.translation.translator import Translator

VIEWS = ("--views", "roll=0,90,180,270", "scale=1,0.5,2")
HELD = (np.eye(3), np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]]))  # upright, and with down to the right
EMBED, DIRECTIONAL = ("--mode", "embed"), ("--mode", "directional", "--target", "upright")


@pytest.fixture(scope="module")
def turned(place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("turned")
    (folder / "queries.txt").write_text(place.query_list)
    return turned_place(place, folder)


def run(turned, out, features, queries, *words, pairs=("--pairs", "exhaustive")):
    given = ["localize", turned.place.model, out, "--features", features, "--query-features", queries]
    given += ["--queries", turned.model.parent / "queries.txt", *pairs, *words]
    return main([str(word) for word in given])


def check(turned, out, views):
    """Exact poses, and each of the six photos of the map matched in these views."""
    poses = read_poses(out / "poses.txt")
    assert list(poses) == turned.place.queries
    for name, pose in poses.items():
        np.testing.assert_allclose(pose.center, turned.place.poses[name].center, atol=1e-4)
    found = json.loads((out / "results.json").read_text())
    for entry in found["queries"].values():
        assert entry["views"] == views and entry["inliers"] > 100
    return found


@pytest.mark.parametrize("mode", [EMBED, DIRECTIONAL], ids=["embed", "directional"])
def test_the_map_is_rendered_as_the_query_saw_it(turned, tmp_path, mode):
    asked = (turned.turning, turned.turned["upright"], *mode, "--model", turned.model)
    assert run(turned, tmp_path / "out", *asked, *VIEWS) == 0
    found = check(turned, tmp_path / "out", {"roll090-scale2.0": 6})
    assert found["settings"]["views"][:3] == ["roll000-scale1.0", "roll000-scale0.5", "roll000-scale2.0"]
    assert found["compared"][0].endswith(", 12 views of the map")
    assert run(turned, tmp_path / "plain", *asked) == 0
    plain = json.loads((tmp_path / "plain" / "results.json").read_text())
    assert "views" not in plain["settings"]
    for name, entry in plain["queries"].items():
        assert "views" not in entry and entry["inliers"] < 0.3 * found["queries"][name]["inliers"]
    assert run(turned, tmp_path / "out", *asked, *VIEWS[:2]) == 2  # of other views is another result


@pytest.mark.parametrize("mode", [EMBED, ("--mode", "directional")], ids=["embed", "directional"])
def test_a_query_is_rendered_where_the_map_cannot_be(turned, tmp_path, mode):
    """Seen from the turned query, the map's photos are turned back."""
    asked = (turned.upright, turned.turned["turning"], *mode, "--model", turned.model)
    assert run(turned, tmp_path / "out", *asked, *VIEWS) == 0
    found = check(turned, tmp_path / "out", {"roll270-scale0.5": 6})
    assert found["compared"][0].endswith(", 12 views of the query")


def test_photos_are_retrieved_in_their_best_view_each_once(turned, tmp_path):
    asked = (turned.turning, turned.turned["upright"], *EMBED, "--model", turned.model, *VIEWS)
    assert run(turned, tmp_path / "out", *asked, pairs=("--retrieval", "4")) == 0
    found = check(turned, tmp_path / "out", {"roll090-scale2.0": 4})
    for entry in found["queries"].values():
        assert len(set(entry["candidates"])) == 4


def test_rows_of_each_view_are_what_the_model_makes_of_turned_frames(turned, place):
    views = parse(["roll=90,30", "scale=2"])
    localizer = Localizer.open(
        place.model, [turned.turning], translator=turned.model, mode="embed", views=views
    )  # fmt: skip
    name = place.names[2]
    with FeatureStore(turned.turning) as store:
        photo = store.read(name)
    for view, rows in zip(views, localizer.map.photos[name].views, strict=True):
        angle = photo.oris + np.deg2rad(view.roll_deg)
        np.testing.assert_allclose(rows, upright_rows(photo.descriptors, angle, 2 * photo.scales), atol=1e-5)
    with FeatureStore(turned.turned["upright"]) as store:
        query, spec = store.read(place.queries[0]), store.spec
    found = localizer.localize(
        query.keypoints, query.descriptors, place.cameras[place.queries[0]], descriptor=Held(spec)
    )
    assert found.status == "localized" and found.views == {"roll090-scale2.0": 6}
    again = from_entry({**to_entry(found), "seconds": {}})
    assert again.views == found.views and from_entry(to_entry(Localization("failed", "why"))).views == {}


def test_the_maps_photos_are_set_upright_by_their_poses(turned, tmp_path, place):
    model = read_model(place.model)
    model = dataclasses.replace(model, rotations=np.stack([HELD[i % 2] for i in range(len(model.names))]))
    with FeatureSet([turned.turning], model=Translator.load(turned.model)) as features:
        translator = Translator.load(turned.model)
        built = LocalizationMap.build(
            model, features, Router("embed", translator), translator, views=parse(["gravity", "roll=0,30"]),
            retrieval=True,
        )  # fmt: skip
        for i, name in enumerate(model.names):
            photo = features.read(name)
            for roll, rows in zip((0, 30), built.photos[name].views, strict=True):
                angle = photo.oris + np.deg2rad(roll + 90 * (i % 2))
                np.testing.assert_allclose(rows, upright_rows(photo.descriptors, angle, photo.scales), atol=1e-5)
    assert len(built.index.names) == 2 * len(model.names)


def photos_of(turned, folder, orientation):
    """Files of the queries, with this orientation in their EXIF."""
    with FeatureStore(turned.turned["upright"]) as store:
        for name in turned.place.queries:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            exif = Image.Exif()
            exif[0x0112] = orientation
            Image.new("L", store.image_size(name)).save(path, exif=exif)
    return folder


@pytest.mark.parametrize("pairs", [("--pairs", "exhaustive"), ("--retrieval", "6")], ids=["all", "retrieved"])
def test_queries_are_set_upright_by_their_exif(turned, tmp_path, monkeypatch, pairs):
    """The queries lie a quarter clockwise: three quarters clockwise set them upright, which EXIF names 8."""
    # The place's cameras look at it from all sides: its photos pass for upright as they lie.
    monkeypatch.setattr(map_in_memory, "upright_turns", lambda model: dict.fromkeys(model.names, 0.0))
    views = ("--views", "gravity", "scale=2")
    asked = (turned.turning, turned.turned["upright"], *EMBED, "--model", turned.model, *views)
    photos = photos_of(turned, tmp_path / "photos", 8)
    assert run(turned, tmp_path / "out", *asked, "--photos", photos, pairs=pairs) == 0
    found = check(turned, tmp_path / "out", {"upright-roll000-scale2.0": 6})
    assert run(turned, tmp_path / "other", *asked, "--photos", photos_of(turned, tmp_path / "upright", 1)) == 0
    lying = json.loads((tmp_path / "other" / "results.json").read_text())
    assert lying["config_hash"] != found["config_hash"]
    for name, entry in lying["queries"].items():
        assert entry["inliers"] < 0.3 * found["queries"][name]["inliers"]


def test_a_query_of_a_turn_that_the_map_was_not_rendered_for_is_refused(turned, place):
    views = parse(["roll=0,90"])
    localizer = Localizer.open(
        place.model, [turned.turning], translator=turned.model, mode="embed", views=views, query_turns=(0.0, 90.0)
    )
    with FeatureStore(turned.turned["upright"]) as store:
        query, spec = store.read(place.queries[0]), store.spec
    given = query.keypoints, query.descriptors, place.cameras[place.queries[0]]
    with pytest.raises(ValueError, match=r"a query's turn is 180 deg, the map has views for \(0.0, 90.0\)"):
        localizer.localize(*given, descriptor=Held(spec), turn_deg=180.0)


@pytest.mark.parametrize("mode", [EMBED, ("--mode", "directional")], ids=["embed", "directional"])
def test_a_query_whose_pose_is_sought_is_not_set_upright(turned, tmp_path, capsys, mode):
    asked = (turned.upright, turned.turned["turning"], *mode, "--model", turned.model)
    assert run(turned, tmp_path / "out", *asked, "--views", "gravity", "roll=0,90") == 2
    assert "--views gravity: is for maps whose rows turn with their keypoints" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_of_equal_views_the_first_is_taken_and_of_doubtful_ones_the_photo_as_it_lies():
    rows, route = np.eye(40, dtype=np.float32), Route(SPECS["turning"], 0.9, "")
    few, all_but_some = rows * (np.arange(40) < 10)[:, None], rows * (np.arange(40) < 35)[:, None]
    named = [Sides(View(10), few, rows), Sides(View(20), rows, rows[::-1]), Sides(View(30), rows, rows)]
    view, found = best(named, route)
    assert view == View(20) and found.tolist() == [[i, 39 - i] for i in range(40)]
    for at, expected in (
        (AS_IT_LIES, AS_IT_LIES),
        (View(40), View(20)),
    ):  # 40 instead of 35 may be chance
        view, found = best([*named, Sides(at, all_but_some, rows)], route)
        assert view == expected and len(found) == (35 if at == AS_IT_LIES else 40)


def test_sure_matches_count_more_than_many():
    """Of forty close rows, ratios are .88, 0.02 below the limit each; of twenty others they are 0."""
    rows = np.eye(40, dtype=np.float32)
    close = unit_rows(rows + 0.9 * np.roll(rows, 1, axis=0))
    named = [Sides(View(10), rows, close), Sides(View(20), rows, rows * (np.arange(40) < 20)[:, None])]
    ratio = np.sqrt((1 - 1 / np.sqrt(1.81)) / (1 - 0.9 / np.sqrt(1.81)))
    for limit in (0.9, None):
        route = Route(SPECS["turning"], limit, "")
        np.testing.assert_allclose(match(rows, close, ratio=limit).ratios, 40 * [ratio], rtol=1e-5)
        assert best(named[:1], route)[0] == View(10)
        view, found = best(named, route)
        assert view == View(20) and found.tolist() == [[i, i] for i in range(20)]


@pytest.mark.parametrize(
    ("features", "queries", "words", "told"),
    [
        ("turning", "turned-turning", (), "--views: nothing can be rendered: it takes rows of frame 'keypoint'"),
        ("upright", "turned-upright", EMBED, "compared here: upright with upright, as embedding:"),
        ("upright", "turned-upright", ("--mode", "directional"), "compared here: upright with upright, as upright"),
    ],
)
def test_views_of_what_is_the_same_in_all_are_refused(turned, tmp_path, capsys, features, queries, words, told):
    folder = turned.model.parent
    files = (folder / f"lies-{features}.h5", folder / f"{queries}.h5")
    model = ("--model", turned.model) if words else ()
    assert run(turned, tmp_path / "out", *files, *words, *model, *VIEWS) == 2
    assert told in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_rows_without_frames_and_words_that_name_no_views_are_refused(turned, tmp_path, capsys):
    asked = (turned.turning, turned.turned["upright"], *EMBED, "--model", turned.model)
    assert run(turned, tmp_path / "out", *asked, "--views", "roll=0,ninety") == 2
    assert "--views roll=0,ninety: 'ninety' is no number" in capsys.readouterr().err
    plain = rewrite(turned.turning, tmp_path / "plain.h5", lambda _, photo: dataclasses.replace(photo, oris=None))
    assert run(turned, tmp_path / "out", plain, *asked[1:], *VIEWS) == 2
    assert "rows of 'turning' come without the scales and orientations" in capsys.readouterr().err
