"""Numbers of the points that keypoints show, from views with known homographies and from models, and their records."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support import foreign_scenes
from tests.support.exact_scene import make_scene
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.data import open_source
from xdesc_jax.data.pairs.across import NO_POINT, points_across
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.keypoints import Keypoints, positions
from xdesc_jax.features.store import ImageFeatures, StoreWriter

# A turn by 30 deg with a zoom of 1.5, and one to the other side with some perspective.
TURNED = np.array([[1.3, -0.75, 40.0], [0.75, 1.3, 10.0], [0.0, 0.0, 1.0]])
TILTED = np.array([[0.8, 0.3, 5.0], [-0.3, 0.9, 90.0], [1e-4, 2e-4, 1.0]])


def seen(homography, xy, scales, oris):
    """Positions, sigmas and orientations in a view, by finite differences."""

    def at(points):
        mapped = np.column_stack([points, np.ones(len(points))]) @ homography.T
        return mapped[:, :2] / mapped[:, 2:]

    step = 1e-4
    along = (at(xy + step * np.column_stack([np.cos(oris), np.sin(oris)])) - at(xy)) / step
    x, y = ((at(xy + step * np.eye(2)[axis]) - at(xy)) / step for axis in (0, 1))
    area = np.abs(x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0])
    return at(xy), scales * np.sqrt(area), np.arctan2(along[:, 1], along[:, 0])


@pytest.fixture
def viewed(tmp_path):
    """Two photos, each with a view or two, of which `views.json` tells; and where what it shows lies in each."""
    rng, files, shown = np.random.default_rng(0), {}, {}
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(7.0)), axis=-1).reshape(-1, 2)
    for photo, homographies in {"a.jpg": (np.eye(3), TURNED, TILTED), "sub/b.png": (2 * np.eye(3), TILTED)}.items():
        xy = 30 * grid + rng.uniform(-5, 5, grid.shape)
        scales, oris = rng.uniform(1, 6, len(xy)), rng.uniform(-3, 3, len(xy))
        for k, homography in enumerate(homographies):
            name = f"{photo.split('.')[0]}/{k}.png"
            files[name] = {"photo": photo, "size": [300, 300], "homography": (homography * 3).tolist()}
            shown[name] = seen(homography, xy, scales, oris)
    path = tmp_path / "views" / "views.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"files": files}))
    return path, shown


@pytest.mark.parametrize("framed", [True, False])
def test_keypoints_of_views_have_the_numbers_of_what_they_show(viewed, framed):
    """Of some, a pixel off and in another order; beside them others, at the same places but turned by 90 deg, or far
    from all."""
    path, shown = viewed
    keypoints, expected, rng = {}, {}, np.random.default_rng(1)
    for name, (xy, scales, oris) in shown.items():
        rows = rng.permutation(len(xy))[:40]
        expected[name, "own"] = np.concatenate([rows, np.full(5, -1)])
        beside = xy[rows[:5]] if framed else xy[rows[:5]] + [0, 1000]
        at = np.concatenate([xy[rows] + rng.uniform(-0.7, 0.7, (40, 2)), beside])
        frames = np.concatenate([scales[rows], scales[rows[:5]]]), np.concatenate([oris[rows], oris[rows[:5]] + 1.57])
        keypoints[name, "own"] = Keypoints(at, *frames) if framed else positions(at)
    photos = sorted(keypoints)
    keypoints["else.png", "own"] = positions(np.zeros((3, 2)))
    numbers = points_across(path, [*photos, ("else.png", "own")], keypoints.__getitem__)
    assert (numbers["else.png", "own"] == NO_POINT).all() and numbers["else.png", "own"].dtype == np.int32
    for group in (photos[:3], photos[3:]):
        first = group[0]
        known = dict(zip(numbers[first].tolist(), expected[first].tolist(), strict=True))
        for photo in group[1:]:
            found = [known.get(number, -1) for number in numbers[photo].tolist()]
            both = np.isin(expected[photo], expected[first])  # and what the first does not show has no number
            np.testing.assert_array_equal(found, np.where(both, expected[photo], -1))
    assert not set(numbers[photos[0]]) & set(numbers[photos[3]])
    again = points_across(path.parent, photos, keypoints.__getitem__)  # by its folder
    assert all((again[photo] == numbers[photo]).all() for photo in photos)


def test_keypoints_of_a_models_photos_have_the_numbers_of_its_points(tmp_path):
    """Row by row where the model was made of them, also where several lie at one place; else by their positions."""
    scene = make_scene(points=60)
    model = scene.write_model(tmp_path / "model")
    ids = np.unique(np.concatenate([point[point >= 0] for point in scene.point.values()]))
    own = {(name, ""): positions(scene.xy[name] - 0.5) for name in scene.names}
    numbers = points_across(model, sorted(own), own.__getitem__)
    for name in scene.names:
        point = scene.point[name]
        np.testing.assert_array_equal(numbers[name, ""], np.where(point >= 0, np.searchsorted(ids, point), NO_POINT))
    rng, others, rows = np.random.default_rng(2), {}, {}
    for name in scene.names:
        apart = [np.sort(np.hypot(*(scene.xy[name] - xy).T))[1] > 8 for xy in scene.xy[name]]
        rows[name] = rng.permutation(np.flatnonzero(apart))[:30]
        others[name, "net"] = positions(scene.xy[name][rows[name]] - 0.5 + rng.uniform(-1.2, 1.2, (len(rows[name]), 2)))
    found = points_across(model, sorted(others), others.__getitem__)
    for name in scene.names:
        np.testing.assert_array_equal(found[name, "net"], numbers[name, ""][rows[name]])


def test_no_two_keypoints_of_a_photo_are_of_one_point_of_a_model(tmp_path):
    """Where a photo observes a point twice, the keypoint nearest to where it projects is; sets have points of their
    own."""
    scene = make_scene(points=60)
    name = scene.names[0]
    seen = np.flatnonzero(scene.point[name] >= 0)[0]
    free = np.flatnonzero(scene.point[name] < 0)[0]
    image = next(image for image in scene.model.images.values() if image.name == name)
    scene.model.add_observation(scene.point[name][seen], pycolmap.TrackElement(image.image_id, free))
    model = scene.write_model(tmp_path / "model")
    own = {(name, label): positions(scene.xy[name] - 0.5) for name in scene.names for label in ("a", "b")}
    numbers = points_across(model, sorted(own), own.__getitem__)
    assert numbers[name, "a"][free] == NO_POINT != numbers[name, "a"][seen]
    for values in numbers.values():
        assert len(np.unique(values[values >= 0])) == (values >= 0).sum() == 60
    assert set(numbers[name, "a"]) & set(numbers[scene.names[1], "a"]) - {NO_POINT}
    assert set(numbers[name, "a"]) & set(numbers[scene.names[1], "b"]) == {NO_POINT}
    alone = [(name, "a"), (name, "b")]
    with pytest.raises(ValueError, match="no point is shown by keypoints of two photos"):
        points_across(model, alone, own.__getitem__)


def test_what_says_nothing_of_the_photos_is_refused(viewed, tmp_path):
    path, shown = viewed
    read = {(name, ""): Keypoints(*values) for name, values in shown.items()}.__getitem__
    with pytest.raises(FileNotFoundError, match=r"none: no such views.json or model"):
        points_across(tmp_path / "none", [("a/0.png", "")], read)
    with pytest.raises(ValueError, match=r"views.json: says nothing of 'x.png', nor of any other of 2 photos"):
        points_across(path, [("x.png", ""), ("y.png", "")], read)
    with pytest.raises(ValueError, match=r"views.json: no point is shown by keypoints of two photos, of 2 that"):
        points_across(path, [("a/0.png", ""), ("sub/b/1.png", "")], read)
    damaged = tmp_path / "damaged.json"
    flat, nan = ({"photo": "b", "homography": np.diag([1, x, 1]).tolist()} for x in (0, np.nan))
    for files in ([], {"a": {"photo": "a.jpg"}}, {"a": {"homography": [1]}}, {"a": flat}, {"a": nan}):
        damaged.write_text(json.dumps({"files": files}))
        with pytest.raises(ValueError, match=r"damaged.json: not what `xdesc views` writes"):
            points_across(damaged, [("a/0.png", "")], read)
    with pytest.raises(FileNotFoundError, match="holds no COLMAP model"):
        points_across(tmp_path, [("a/0.png", "")], read)


@pytest.fixture
def stores(viewed, tmp_path):
    """Feature files of both photos and their views, of which every fourth row is not valid."""
    _, shown = viewed
    paths = tuple(tmp_path / f"{name}.h5" for name in ("brief", "sift"))
    for seed, path in enumerate(paths):
        spec, rng = get_spec(path.stem), np.random.default_rng(seed)
        with StoreWriter(path, spec) as writer:
            for name, (xy, scales, oris) in shown.items():
                rows = rng.integers(1, 255, (len(xy), spec.stored_width)).astype(spec.stored_dtype)
                rows = rows if spec.binary else rows / np.linalg.norm(rows, axis=1, keepdims=True).astype(np.float32)
                valid = np.arange(len(xy)) % 4 != 3
                rows[~valid] = 0
                writer.write(name, ImageFeatures(np.float32(xy), rows, valid, (300, 300), scales, oris))
    return paths


@pytest.mark.parametrize("way", [{"format": "npy"}, {"format": "tfds"}, {"format": "tfds", "beam": True}])
def test_records_say_which_rows_are_of_one_point(viewed, stores, tmp_path, way):
    """Of 56 points of each photo, 42 have a row in each of its views."""
    made = records(tmp_path / "out", paired=stores, across=viewed[0], validation_share=0, seed=4, **way)
    assert made.has_points and not made.has_pairs and "point" in made.columns
    (rows,) = open_source(made.path, "train", 210, columns=["sift", "point"], shuffle=False).epoch(0)
    photos = np.array(made.photos)[rows["photo"]]
    points, counts = np.unique(rows["point"], return_counts=True)
    assert sorted(counts.tolist()) == [2] * 42 + [3] * 42
    for point in points:
        of = photos[rows["point"] == point]
        assert len(set(of)) == len(of) and len({name.rsplit("/", 1)[0] for name in of}) == 1
    without = records(tmp_path / "without", paired=stores, validation_share=0, seed=4, **way)
    assert not without.has_points and "point" not in without.columns and without.config_hash != made.config_hash


@pytest.mark.parametrize(("program", "lens"), [("nvm", "plain"), ("openmvg", "pinhole"), ("opensfm", "perspective")])
def test_a_model_of_another_program_is_read_with_the_photos_sizes_of_the_features(tmp_path, program, lens):
    true = foreign_scenes.true_scene()
    model, seen = foreign_scenes.WRITERS[program](tmp_path, true, lens)
    names, count = foreign_scenes.NAMES, len(true.points)
    xy = np.array([[seen[view, i] for i in range(count)] for view in range(len(names))]) - 0.5
    paths = tuple(tmp_path / f"{name}.h5" for name in ("brief", "orb"))
    for path in paths:
        with StoreWriter(path, spec := get_spec(path.stem)) as writer:
            rows = np.random.default_rng(0).integers(1, 255, (count, spec.stored_width)).astype(np.uint8)
            for view, name in enumerate(names):
                writer.write(name, ImageFeatures(np.float32(xy[view]), rows, np.ones(count, bool), foreign_scenes.SIZE))
    made = records(tmp_path / "out", paired=paths, across=model, validation_share=0, format="npy")
    (rows,) = open_source(made.path, "train", 4 * count, columns=["orb", "point"], shuffle=False).epoch(0)
    points, counts = np.unique(rows["point"], return_counts=True)
    assert points.tolist() == list(range(count)) and (counts == 4).all()


def test_a_copy_of_what_says_so_is_the_same_and_another_is_told(viewed, stores, tmp_path):
    asked = {"paired": stores, "format": "npy"}
    with pytest.raises(FileNotFoundError, match=r"none.json: no such views.json or model"):
        records(tmp_path / "out", across=tmp_path / "none.json", **asked)
    made = records(tmp_path / "out", across=viewed[0], **asked)
    copy = tmp_path / "copy.json"
    copy.write_text(viewed[0].read_text())
    assert records(tmp_path / "out", across=copy, **asked).config_hash == made.config_hash
    copy.write_text(viewed[0].read_text() + " ")
    with pytest.raises(FileExistsError, match=r"another configuration \(across: other content\)"):
        records(tmp_path / "out", across=copy, **asked)


def test_photos_of_a_point_in_different_splits_are_warned_of(viewed, stores, tmp_path, caplog):
    for number, settings in enumerate(({"split_by": "folder"}, {"validation_share": 0}, {})):
        assert "--split-by folder" not in caplog.text
        records(tmp_path / str(number), paired=stores, across=viewed[0], format="npy", **settings)
    assert "--split-by folder" in caplog.text


def test_across_is_for_feature_files(tmp_path):
    with pytest.raises(ValueError, match="--across is for --paired feature files"):
        records(tmp_path / "out", photos=tmp_path, across=tmp_path / "views.json")
