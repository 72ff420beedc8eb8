"""Models in the frame of a reference: the similarity is recovered, or the reason is told."""

import contextlib
import dataclasses

import numpy as np
import pytest

from tests.evaluate.test_poses import at, turned
from tests.support.pose_models import write_model
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.alignment import NotAlignable, Similarity, align, check

MOVED = Similarity(2.5, turned([1, -2, 0.5], 130), np.array([10.0, -3, 7]))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folder and arrays of a model of 11 photos."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_cameras_per_rig, options.num_rigs, options.num_frames_per_rig, options.num_points3D = 1, 1, 11, 60
    pycolmap.set_random_seed(3)
    folder = tmp_path_factory.mktemp("model")
    pycolmap.synthesize_dataset(options).write(folder)
    return folder, read_model(folder)


def test_similarity_is_recovered_in_spite_of_outliers(place):
    folder, model = place
    reference = {name: MOVED.pose(pose) for name, pose in model.poses.items()}
    for name in model.names[2:5]:
        reference[name] = dataclasses.replace(reference[name], translation=reference[name].translation + 50)
    found = align(folder, model, reference, max_error=0.1)
    assert found.scale == pytest.approx(2.5, rel=1e-6)
    np.testing.assert_allclose(found.rotation, MOVED.rotation, atol=1e-6)
    np.testing.assert_allclose(found.translation, MOVED.translation, atol=1e-5)


def off_by(model, distances):
    """The moved reference, its first photos off by some distances."""
    reference = {name: MOVED.pose(pose) for name, pose in model.poses.items()}
    for name, distance in zip(model.names, distances, strict=False):
        center = reference[name].center + distance * np.array([0.6, -0.48, 0.64])
        reference[name] = Pose(reference[name].rotation, -reference[name].rotation @ center)
    return reference


def test_photos_further_off_than_allowed_do_not_pull(place):
    """COLMAP's own threshold would take 1 and 3.5 for near."""
    folder, model = place
    reference = off_by(model, [1.0, 1.0, 3.5])
    found = [align(folder, model, reference, max_error=error, seed=7).points(model.points) for error in (0.1, 5.0)]
    np.testing.assert_allclose(found[0], MOVED.points(model.points), atol=1e-5)
    assert np.abs(found[1] - MOVED.points(model.points)).max() > 0.05


def test_the_seed_decides_the_alignment(place):
    """Positions off by about what is allowed, so samples disagree."""
    folder, model = place
    reference = off_by(model, np.random.default_rng(0).normal(scale=0.2, size=11))

    def found(seed):
        return tuple(align(folder, model, reference, max_error=0.1, seed=seed).translation)

    first = [found(seed) for seed in range(1, 7)]
    pycolmap.set_random_seed(99)
    assert [found(seed) for seed in range(1, 7)] == first
    assert len(set(first)) > 1


def test_a_camera_sees_the_same_after_the_move(place):
    _, model = place
    pose, x = next(iter(model.poses.values())), model.points[:5]
    seen = pose.rotation @ x.T + pose.translation[:, None]
    moved = MOVED.pose(pose)
    again = moved.rotation @ MOVED.points(x).T + moved.translation[:, None]
    np.testing.assert_allclose(again, 2.5 * seen, atol=1e-9)


@pytest.mark.parametrize("height", [0.0, 1.0])
def test_cameras_on_a_plane_are_aligned_wherever_it_lies(tmp_path, height):
    """COLMAP's own alignment fails for a plane through the origin."""
    rng = np.random.default_rng(0)
    flat = {str(i): at(rng.normal(size=3) * [3, 3, 0] + [0, 0, height]) for i in range(5)}
    folder = write_model(tmp_path / "model", flat)
    found = align(folder, read_model(folder), {name: MOVED.pose(pose) for name, pose in flat.items()}, 0.1)
    np.testing.assert_allclose(found.points(np.eye(3)), MOVED.points(np.eye(3)), atol=1e-6)


def test_reference_of_other_photos_is_not_alignable(place):
    folder, model = place
    others = {f"other {name}": pose for name, pose in model.poses.items()}
    with pytest.raises(NotAlignable, match="0 registered photos are in the reference"):
        align(folder, model, others, 0.1)


def test_reference_without_any_likeness_is_not_alignable(place):
    folder, model = place
    rng = np.random.default_rng(0)
    scattered = {name: Pose(np.eye(3), rng.uniform(-100, 100, 3)) for name in model.names}
    with pytest.raises(NotAlignable, match="no similarity|lie within"):
        align(folder, model, scattered, 1e-6)


RANDOM = np.random.default_rng(1).normal(size=(6, 3))
LINE = np.outer(np.arange(6.0), [1, 2, 3]) + 4
BAD = RANDOM.copy()
BAD[2, 1] = np.nan


@pytest.mark.parametrize(
    ("centers", "reference", "reason"),
    [
        (RANDOM[:2], RANDOM[:2], "2 registered photos .* at least 3"),
        (np.ones((6, 3)), RANDOM, "positions of registered photos are equal"),
        (RANDOM, np.ones((6, 3)), "positions of the reference's photos are equal"),
        (LINE, RANDOM, "registered photos lie on one line"),
        (RANDOM, LINE, "reference's photos lie on one line"),
        (BAD, RANDOM, "registered photos are not finite"),
    ],
)
def test_positions_that_determine_nothing_are_told(centers, reference, reason):
    with pytest.raises(NotAlignable, match=reason):
        check(centers, reference)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_positions_lie_on_a_line_by_their_shape_whatever_their_size(size):
    """Off it by a thousandth of the length, times 0.5 or 2."""
    off = np.array([1, -2, 2, -1, 1.0]) / 1e3
    for factor, fits in ((0.5, False), (2.0, True)):
        x = np.stack([np.arange(-2.0, 3), factor * off, np.zeros(5)], axis=1)
        with contextlib.nullcontext() if fits else pytest.raises(NotAlignable, match="lie on one line"):
            check(size * x, RANDOM[:5])


def test_positions_on_a_plane_do(place):
    check(RANDOM * [1, 1, 0], RANDOM * [0, 1, 1])
