"""Which row of which new photo a map takes: nearest direction, nearest keypoint, and none that lies too far off."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.support.place import WIDTH
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.model import Camera
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, pack_bits, unit_rows
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.localization.map import LocalizationMap
from xdesc_jax.localization.outcome import PoseSettings
from xdesc_jax.mapping.bootstrap import Shares, UpdatedMap
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.routes import Router

SPEC = DescriptorSpec("own-b", WIDTH)


@pytest.fixture(scope="module")
def photos(place):
    """All photos with their rows of `own-b`."""
    with FeatureStore(place.features["own-b"]) as store:
        return dict(store)


@pytest.fixture(scope="module")
def model(place):
    return read_model(place.model)


def make_map(place, model, real=None, **settings):
    """A map of `own-b` of which the rows in `real` are real, none without it."""
    with FeatureSet([place.features["own-b"]]) as features:
        built = LocalizationMap.build(model, features, Router("native", None))
    real = real or {name: np.zeros(len(photo.rows), bool) for name, photo in built.photos.items()}
    return UpdatedMap(built, model, real, PoseSettings(max_error_px=12.0, seed=3), **settings)


def other_rows(photo, seed):
    """The photo with rows that match those of the map and are none of them."""
    noise = np.random.default_rng(seed).normal(size=photo.descriptors.shape)
    return dataclasses.replace(photo, descriptors=unit_rows(photo.descriptors + 0.01 * noise))


def point_of(model, name):
    """Row -> point of a photo of the model."""
    at = model.view == model.names.index(name)
    return dict(zip(model.keypoint[at].tolist(), model.point[at].tolist(), strict=True))


def taken(place, updated, photos):
    """Takes in some photos in one batch; point -> row of each that was added."""
    updated.take_in([(name, photo, Held(SPEC), place.cameras[name]) for name, photo in photos.items()])
    assert [photo.name for photo in updated.added] == list(photos)
    return {added.name: {int(p): row for row, p in enumerate(added.point) if p >= 0} for added in updated.added}


@pytest.mark.parametrize("order", [1, -1])
def test_a_row_comes_from_the_photo_that_looks_from_the_nearest_direction(place, model, photos, order):
    """Whichever of the two comes last."""
    new = {name: other_rows(photos[name], i) for i, name in enumerate(place.queries[::order])}
    updated = make_map(place, model)
    rows = taken(place, updated, new)
    chosen = dict.fromkeys(new, 0)
    for photo in place.names:
        for row, point in point_of(model, photo).items():
            rays = {name: place.poses[name].center - model.points[point] for name in (photo, *new)}
            unit = {name: ray / np.linalg.norm(ray) for name, ray in rays.items()}
            nearest = max(new, key=lambda name: unit[name] @ unit[photo])
            expected = new[nearest].descriptors[rows[nearest][point]]
            np.testing.assert_allclose(updated.rows(photo)[row], expected, atol=1e-6)
            chosen[nearest] += 1
    assert min(chosen.values()) > 100


def test_observations_off_by_more_than_the_limit_are_not_used(place, model, photos):
    """Positions off by 0, 1 and 3.5 px, all of them inliers of 12 px; the limit is 2.5."""
    name = place.queries[0]
    photo = other_rows(photos[name], 0)
    off = np.array([0, 1, 3.5])[np.arange(len(photo)) % 3]
    angle = np.random.default_rng(1).uniform(0, 2 * np.pi, len(photo))
    moved = photo.keypoints + off[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    photo = dataclasses.replace(photo, keypoints=moved.astype(np.float32))
    all_points = set(taken(place, make_map(place, model, max_residual_px=12.0), {name: photo})[name])
    updated = make_map(place, model, max_residual_px=2.5)
    rows = taken(place, updated, {name: photo})[name]
    assert len(all_points) == 120 and 70 < len(rows) < 90
    assert all(off[row] <= 1 for row in rows.values())
    for other in place.names:
        for row, point in point_of(model, other).items():
            assert updated.real[other][row] == (point in rows)


@pytest.mark.parametrize("exact", [0, 1])
def test_of_two_keypoints_of_a_new_photo_at_one_point_the_nearest_is_used(place, model, photos, exact):
    """Each keypoint twice, once 2 px off, so that one photo of the map matches the first and another the second."""
    name = place.queries[0]
    photo, points = photos[name], np.full(len(photos[name]), -1)
    all_rows = taken(place, make_map(place, model), {name: photo})[name]
    points[list(all_rows.values())] = list(all_rows)
    seen = np.flatnonzero(points >= 0)
    rows = []
    for other in place.names[:2]:
        row_of = {point: row for row, point in point_of(model, other).items()}
        rows.append(photos[other].descriptors[[row_of[point] for point in points[seen]]])
    angle = np.random.default_rng(1).uniform(0, 2 * np.pi, len(seen))
    off = 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    xy = [photo.keypoints[seen] + (0 if copy == exact else off) for copy in (0, 1)]
    twice = dataclasses.replace(
        photo, keypoints=np.concatenate(xy), descriptors=np.concatenate(rows), valid=np.ones(2 * len(seen), bool),
        scales=None, oris=None,
    )  # fmt: skip
    updated = make_map(place, model)
    found = taken(place, updated, {name: twice})[name]
    assert found == {int(point): exact * len(seen) + i for i, point in enumerate(points[seen])}
    third = place.names[2]
    for row, point in point_of(model, third).items():
        np.testing.assert_allclose(updated.rows(third)[row], twice.descriptors[found[point]], atol=1e-6)


@pytest.mark.parametrize("nearer", ["the one that the model has first", "the other"])
def test_of_two_keypoints_of_a_map_photo_at_one_point_the_nearest_gets_the_row(place, model, photos, nearer):
    photo, name = place.names[0], place.queries[0]
    view = model.names.index(photo)
    at = int(np.flatnonzero(model.view == view)[0])
    first = int(model.keypoint[at])
    other = int(np.setdiff1d(np.arange(len(photos[photo])), list(point_of(model, photo)))[0])
    near, far = (first, other) if nearer != "the other" else (other, first)
    residual = {near: 0.5, far: 2.0}

    def with_two(values, of_first, of_other):
        values = np.asarray(values, np.result_type(values, type(of_first))).copy()
        values[at] = of_first
        return np.insert(values, at + 1, of_other, axis=0)

    two = dataclasses.replace(
        model, point=with_two(model.point, model.point[at], model.point[at]), view=with_two(model.view, view, view),
        keypoint=with_two(model.keypoint, first, other),
        residual_px=with_two(model.residual_px, residual[first], residual[other]),
        xy=with_two(model.xy, model.xy[at], photos[photo].keypoints[other] + 0.5),
    )  # fmt: skip
    updated = make_map(place, two)
    taken(place, updated, {name: other_rows(photos[name], 0)})
    assert updated.real[photo][near] and not updated.real[photo][far]


def test_shares_count_rows_and_points_that_are_real(place, model, photos):
    """Ten observing rows of one photo are real, and five that observe nothing, which count for nothing."""
    real = {name: np.zeros(len(photos[name]), bool) for name in place.names}
    observing = {name: sorted(point_of(model, name)) for name in place.names}
    first = place.names[1]
    real[first][observing[first][:10]] = True
    real[first][np.setdiff1d(np.arange(len(real[first])), observing[first])[:5]] = True
    updated, total = make_map(place, model, real), sum(map(len, observing.values()))
    assert updated.shares() == Shares(10 / total, 10 / len(model.points))
    name = place.queries[0]
    few = dataclasses.replace(photos[name], valid=np.arange(len(photos[name])) < 60)
    points = set(taken(place, updated, {name: few})[name])
    assert 40 < len(points) <= 60
    kept = {point_of(model, first)[row] for row in observing[first][:10]}
    rows = sum(point in points for photo in place.names for point in point_of(model, photo).values())
    expected = Shares((rows + len(kept - points)) / total, len(points | kept) / len(model.points))
    assert updated.shares() == expected


def test_rows_that_are_real_stay(place, model, photos):
    real = {name: np.arange(len(photos[name])) % 2 == 0 for name in place.names}
    updated, name = make_map(place, model, real), place.queries[0]
    before = {photo: updated.rows(photo).copy() for photo in place.names}
    points = set(taken(place, updated, {name: other_rows(photos[name], 0)})[name])
    for photo in place.names:
        same = (updated.rows(photo) == before[photo]).all(axis=1)
        for row, point in point_of(model, photo).items():
            assert same[row] == (row % 2 == 0 or point not in points)


def test_rows_are_taken_in_the_form_in_which_they_are_matched(place, photos, model, tmp_path):
    """Rows kept at 512 times their length, with a zero value; one of them is not finite, and never used."""
    spec = DescriptorSpec("own-b", WIDTH, storage_scale=512.0)
    with StoreWriter(tmp_path / "map.h5", spec) as writer:
        for name in place.names:
            writer.write(name, dataclasses.replace(photos[name], descriptors=512 * photos[name].descriptors))
    with FeatureSet([tmp_path / "map.h5"]) as features:
        built = LocalizationMap.build(model, features, Router("native", None))
    real = {name: np.zeros(len(photo.rows), bool) for name, photo in built.photos.items()}
    updated, name = UpdatedMap(built, model, real, PoseSettings(seed=3)), place.queries[0]
    canonical = other_rows(photos[name], 0).descriptors.copy()
    canonical[:, 5] = 0
    canonical = unit_rows(canonical)
    kept = 512 * canonical
    lost = int(np.flatnonzero(canonical.any(axis=1))[3])
    kept[lost, 1] = np.nan
    updated.take_in([(name, dataclasses.replace(photos[name], descriptors=kept), Held(spec), place.cameras[name])])
    (added,) = updated.added
    rows = {int(p): row for row, p in enumerate(added.point) if p >= 0}
    assert len(rows) > 100 and lost not in rows.values()
    np.testing.assert_allclose(added.xy, photos[name].keypoints + 0.5, atol=1e-4)
    for photo in place.names:
        for row, point in point_of(model, photo).items():
            if point in rows:
                np.testing.assert_allclose(updated.rows(photo)[row], canonical[rows[point]], atol=1e-6)


def test_a_photo_joins_with_the_focal_length_that_was_estimated(place, model, photos):
    """The true one is 1280 px, with a distortion that the guess has none of."""
    name = place.queries[0]
    guess = Camera("PINHOLE", 1024, 768, (1000, 1000, 512, 384), known=False)
    updated = make_map(place, model)
    result = updated.take_in([(name, photos[name], Held(SPEC), guess)])[name]
    (added,) = updated.added
    assert abs(result.focal_px - 1280) < 15
    assert added.camera == dataclasses.replace(guess, params=(result.focal_px, result.focal_px, 512, 384))


def test_bits_are_taken_as_they_are_packed(place, photos, model, tmp_path):
    spec, turn = binary_spec("bits", 500), np.random.default_rng(1).normal(size=(WIDTH, 500))
    bits = {name: pack_bits(photo.descriptors @ turn > 0) for name, photo in photos.items()}
    with StoreWriter(tmp_path / "map.h5", spec) as writer:
        for name in place.names:
            writer.write(name, dataclasses.replace(photos[name], descriptors=bits[name]))
    with FeatureSet([tmp_path / "map.h5"]) as features:
        built = LocalizationMap.build(model, features, Router("native", None))
    real = {name: np.zeros(len(photo.rows), bool) for name, photo in built.photos.items()}
    updated, name = UpdatedMap(built, model, real, PoseSettings(seed=3)), place.queries[0]
    updated.take_in(
        [(name, dataclasses.replace(photos[name], descriptors=bits[name]), Held(spec), place.cameras[name])]
    )
    (added,) = updated.added
    rows = {int(p): row for row, p in enumerate(added.point) if p >= 0}
    assert len(rows) > 100
    for photo in place.names:
        for row, point in point_of(model, photo).items():
            np.testing.assert_array_equal(
                updated.rows(photo)[row], bits[name][rows[point]] if point in rows else bits[photo][row]
            )
