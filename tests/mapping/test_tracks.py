"""Which rows of a map observe a point, and that rows are replaced many at a time."""

import numpy as np

from tests.support.counting import calls
from xdesc_jax.colmap.model import Camera, Model, Pose
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.localization.map import LocalizationMap, MapPhoto
from xdesc_jax.localization.outcome import PoseSettings
from xdesc_jax.mapping.bootstrap import UpdatedMap
from xdesc_jax.mapping.tracks import Tracks
from xdesc_jax.matching.feature_set import Held
from xdesc_jax.matching.routes import Router

SPEC = DescriptorSpec("own", 3)
CAMERA = Camera("SIMPLE_PINHOLE", 64, 48, (50.0, 32.0, 24.0))


def make(point, view, keypoint, residual_px, rows, points):
    """A model of such observations and the map of its photos `a`, `b`, ... with `rows` keypoints each."""
    names, point, view, keypoint = tuple("abcdef"[: len(rows)]), *map(np.array, (point, view, keypoint))
    model = Model(
        names, np.tile(np.eye(3), (len(rows), 1, 1)), np.arange(3.0 * len(rows)).reshape(-1, 3),
        (CAMERA,) * len(rows), np.full(len(rows), 50.0), np.arange(3.0 * points).reshape(-1, 3) + 0.5,
        point, view, keypoint, np.array(residual_px, float),
    )  # fmt: skip
    photos = {}
    for at, (name, count) in enumerate(zip(names, rows, strict=True)):
        of = np.full(count, -1)
        of[keypoint[view == at]] = point[view == at]
        photos[name] = MapPhoto(Held(SPEC), SPEC, np.ones((count, 3), np.float32), of, np.zeros((count, 2)))
    return model, photos


def test_tracks_hold_one_row_a_photo_and_point_the_one_that_lies_nearest():
    # Point 0: rows 1 and 0 of a, row 2 of b; point 1: none; point 2: rows 0 and 1 of b, equally far.
    model, photos = make([0, 0, 0, 2, 2], [0, 0, 1, 1, 1], [0, 1, 2, 0, 1], [3.0, 1.0, 9.0, 2.0, 2.0], [4, 3], 3)
    tracks = Tracks.of(model, photos)
    assert tracks.start.tolist() == [0, 2, 2, 3]
    assert list(zip(tracks.view.tolist(), tracks.keypoint.tolist(), strict=True)) == [(0, 1), (1, 2), (1, 0)]
    which, observation = tracks.observing(np.array([2, 1, 0]))
    assert which.tolist() == [0, 2, 2] and observation.tolist() == [2, 0, 1]


def test_photos_that_the_map_lacks_and_rows_of_other_points_are_in_no_track():
    model, photos = make([0, 0, 1], [0, 1, 2], [0, 0, 0], [1.0, 1.0, 1.0], [1, 1, 1], 2)
    del photos["b"]
    photos["c"].point[0] = 0  # as where a photo's row is of two points
    tracks = Tracks.of(model, photos)
    assert tracks.view.tolist() == [0] and tracks.start.tolist() == [0, 1, 1]


def test_rows_are_replaced_without_a_call_for_each():
    """Three map photos and a new one see 10 or 400 points."""
    counts = []
    for points in (10, 400):
        every = np.arange(points)
        seen, by = np.repeat(every, 3), np.tile([0, 1, 2], points)
        model, photos = make(seen, by, seen, np.zeros(3 * points), [points] * 3, points)
        built = LocalizationMap(
            model.points, photos, Router("native", None), None, index=None, space=None, missing=(), bare_points=0,
            findings=(),
        )  # fmt: skip
        translated = {name: np.zeros(points, bool) for name in model.names}
        rows, pose = np.full((points, 3), 7, np.float32), Pose(np.eye(3), np.array([1.0, 2, 3]))

        def work():
            made = UpdatedMap(built, model, translated, PoseSettings())  # noqa: B023
            assert made._replace(rows, every, pose) == set("abc")  # noqa: B023
            assert (made.rows("b") == 7).all() and made.real["c"].all()

        work()  # numpy's own first calls
        counts.append(calls(work))
    assert counts[0] == counts[1]
