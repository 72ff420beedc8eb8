"""Choice of pairs from tracks: their geometry against pictures of known cameras, the rules, and the draw."""

import dataclasses

import numpy as np
import pytest

from xdesc_jax.colmap.model import Model
from xdesc_jax.data.pairs.tracks import PairRules, choose_pairs, point_numbers

LOOSE = PairRules(
    min_track_length=2, min_angle_deg=0, max_angle_deg=180, max_scale_factor=1e6, max_turn_deg=180, pairs_per_track=1
)
SEED = [0, 0]


def turned(axis: int, degrees: float) -> np.ndarray:
    a, b = [k for k in range(3) if k != axis]
    rotation = np.eye(3)
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    rotation[[a, a, b, b], [a, b, a, b]] = c, -s, s, c
    return rotation


def scene(rotations, translations, points, focals=None, tracks=None) -> Model:
    """Every photo sees every point, or the (point, view) of `tracks`."""
    pairs = tracks or [(p, v) for p in range(len(points)) for v in range(len(rotations))]
    point, view = (np.array(column) for column in zip(*pairs, strict=True))
    return Model(
        names=tuple(map(str, range(len(rotations)))),
        rotations=np.array(rotations, float),
        translations=np.array(translations, float),
        cameras=(),
        focals_px=np.array(focals or [100.0] * len(rotations)),
        points=np.array(points, float),
        point=point,
        view=view,
        keypoint=np.arange(len(point)),
        residual_px=np.zeros(len(point)),
    )


def around(angles_deg, points=((0, 0, 0),), distance=4.0, **options) -> Model:
    """Cameras on a circle around the origin that look at it."""
    rotations = [turned(1, angle) for angle in angles_deg]
    return scene(rotations, [(0, 0, distance)] * len(rotations), points, **options)


def choose(model, rules=LOOSE, scales=None, oris=None, usable=None, seed=SEED):
    n = len(model.point)
    scales = np.ones(n) if scales is None else np.array(scales)
    oris = np.zeros(n) if oris is None else np.array(oris)
    return choose_pairs(model, scales, oris, np.ones(n, bool) if usable is None else np.array(usable), rules, seed)


def test_angle_is_that_between_the_rays():
    pairs, _ = choose(around([-10, 27]))
    np.testing.assert_allclose(pairs.angle_deg, 37)


def test_zoom_is_the_ratio_of_focal_length_over_depth():
    model = scene([np.eye(3)] * 2, [(0, 0, 2), (0, 0, 6)], [(0, 0, 0)], focals=[100.0, 150.0])
    pairs, _ = choose(model, scales=[8.0, 2.0])
    sign = 1 if pairs.first[0] == 0 else -1
    np.testing.assert_allclose(pairs.zoom * sign, 1)  # 50 against 25
    np.testing.assert_allclose(pairs.scale_error * sign, 1)  # a ratio of 4 where 2 is expected


def test_turn_is_what_is_left_beside_the_roll_of_the_cameras():
    model = scene([np.eye(3), turned(2, 30)], [(0, 0, 4)] * 2, [(0.1, 0.2, 0)])
    pairs, _ = choose(model, oris=np.deg2rad([350, 30]))  # 350 + 30 = 20, 10 less than 30
    np.testing.assert_allclose(np.abs(pairs.turn_deg), 10, atol=0.2)


@pytest.mark.parametrize("orientation_deg", [0, 77, 200])
def test_turn_is_nothing_for_a_direction_on_a_plane_that_faces_both_cameras(orientation_deg):
    """The oracle displaces a point of the plane z = 0 and projects it into both photos."""
    rotations = [turned(2, 20) @ turned(1, -25), turned(0, 10) @ turned(2, -60) @ turned(1, 25)]
    # Translations put both cameras 5 from the point in directions that are mirrored by the plane's normal.
    point = np.array([0.4, -0.3, 0.0])
    to_camera = [np.array([-np.sin(a), 0, -np.cos(a)]) for a in np.deg2rad([-25, 25])]
    translations = [-r @ (point + 5 * d) for r, d in zip(rotations, to_camera, strict=True)]
    along = np.array([np.cos(np.deg2rad(orientation_deg)), np.sin(np.deg2rad(orientation_deg)), 0])
    oris = []
    for r, t in zip(rotations, translations, strict=True):
        (x0, y0, z0), (x1, y1, z1) = r @ point + t, r @ (point + 1e-6 * along) + t
        oris.append(np.arctan2(y1 / z1 - y0 / z0, x1 / z1 - x0 / z0))
    pairs, _ = choose(scene(rotations, translations, [point]), oris=oris)
    np.testing.assert_allclose(pairs.turn_deg, 0, atol=1e-3)


def test_pairs_of_a_track_share_no_observation_and_are_limited():
    model = around(np.linspace(-20, 20, 7), points=[(0, 0, 0), (0.1, 0, 0)])
    for limit, expected in [(1, 1), (2, 2), (5, 3)]:
        pairs, _ = choose(model, dataclasses.replace(LOOSE, pairs_per_track=limit))
        used = np.concatenate([pairs.first, pairs.second])
        assert len(np.unique(used)) == len(used)
        assert np.bincount(model.point[pairs.first]).tolist() == [expected] * 2
        assert (model.point[pairs.first] == model.point[pairs.second]).all()
        assert (model.view[pairs.first] != model.view[pairs.second]).all()


def test_two_observations_in_one_photo_are_no_pair():
    model = around([0, 20], tracks=[(0, 0), (0, 0)])
    assert len(choose(model)[0]) == 0


def test_unusable_and_far_off_observations_do_not_count():
    model = around([-10, 0, 10, 20])
    model.residual_px[0] = 2.0
    rules = dataclasses.replace(LOOSE, min_track_length=3)
    pairs, _ = choose(model, rules)
    assert 0 not in [*pairs.first, *pairs.second] and len(pairs) == 1
    assert len(choose(model, rules, usable=[True, False, True, True])[0]) == 0


def test_narrow_tracks_and_wide_pairs_are_left_out():
    rules = dataclasses.replace(LOOSE, min_angle_deg=2, max_angle_deg=60)
    assert len(choose(around([0, 1.9]), rules)[0]) == 0
    assert len(choose(around([0, 2.1]), rules)[0]) == 1
    assert len(choose(around([0, 61]), rules)[0]) == 0
    # A pair of a small angle is taken where the track as a whole is wide: it may differ in scale.
    assert len(choose(around([0, 0.5, 61]), rules)[0]) == 1


def test_pairs_whose_scale_or_turn_disagrees_are_dropped_and_counted():
    rules = dataclasses.replace(LOOSE, max_scale_factor=1.6, max_turn_deg=30)
    points = [(0, 0, 0)] * 4
    pairs, candidates = choose(
        around([-5, 5], points=points),
        rules,
        scales=[1, 1.55, 1, 1.65, 1, 1, 1, 1],
        oris=np.deg2rad([0, 0, 0, 0, 0, 29, 0, -31]),
    )
    assert sorted(pairs.first // 2) == [0, 2]
    assert len(candidates) == 4


def test_hard_pairs_are_drawn_more_often():
    model = around([0, 1, 50], points=np.zeros((4000, 3)))
    pairs, _ = choose(model)
    views = np.sort([model.view[pairs.first], model.view[pairs.second]], axis=0)
    shares = [np.mean((views == [[a], [b]]).all(axis=0)) for a, b in [(0, 1), (1, 2), (0, 2)]]
    weights = 0.05 + np.array([1, 49, 50]) / 60
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.03)


def test_draw_depends_on_the_seed_alone_and_either_view_comes_first():
    model = around([-20, 0, 20, 35], points=np.zeros((200, 3)))
    pairs, again, other = (choose(model, seed=seed)[0] for seed in ([1, 2], [1, 2], [1, 3]))
    np.testing.assert_array_equal(pairs.first, again.first)
    assert not np.array_equal(pairs.first, other.first)
    assert 0.3 < np.mean(pairs.first < pairs.second) < 0.7


def test_no_track_gives_no_pair():
    pairs, candidates = choose(around([0, 20]), usable=[False, False])
    assert len(pairs) == len(candidates) == 0


def test_tracks_at_one_place_of_a_photo_have_one_number():
    point = np.array([0, 1, 2, 3, 4, 0, 4])
    photo = np.array([0, 0, 0, 0, 1, 2, 2])
    xy = np.array([[5.9, 5.9], [6.1, 6.1], [9, 9], [5.9, 20], [5.9, 5.9], [1, 1], [1.2, 1.1]])
    assert point_numbers(6, point, photo, xy).tolist() == [0, 0, 2, 3, 0, 5]


def test_numbers_join_along_chains():
    point = np.array([4, 3, 3, 2, 2, 1])
    photo = np.array([0, 0, 1, 1, 2, 2])
    assert point_numbers(5, point, photo, np.zeros((6, 2))).tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(("field", "value"), [("min_track_length", 1), ("pairs_per_track", 0), ("max_turn_deg", -1)])
def test_rules_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}, expected at least"):
        PairRules(**{field: value})
