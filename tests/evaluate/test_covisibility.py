"""Kinds of descriptor in tracks, counted by hand and by a loop over sets."""

import numpy as np
import pytest

from xdesc_jax.colmap.model import Model
from xdesc_jax.evaluate.covisibility import covisibility


def model(names, tracks):
    """A model whose point p is seen by the views `tracks[p]`."""
    pairs = [(p, v) for p, track in enumerate(tracks) for v in track]
    point, view = np.array(pairs, int).reshape(-1, 2).T
    zeros = np.zeros((len(names), 3))
    return Model(
        names, np.tile(np.eye(3), (len(names), 1, 1)), zeros, (), np.ones(len(names)), np.zeros((len(tracks), 3)),
        point, view, np.arange(len(point)), np.zeros(len(point)),
    )  # fmt: skip


def test_three_points_by_hand():
    found = covisibility(model(("p", "q", "r"), [[0, 1], [0, 1, 2], [1, 1]]), {"p": "sift", "q": "brief", "r": "orb"})
    assert found.kinds == ("brief", "orb", "sift")
    np.testing.assert_allclose(found.by_count, [1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(found.together, np.array([[3, 1, 2], [1, 1, 1], [2, 1, 2]]) / 3)


def test_many_points_against_sets():
    rng = np.random.default_rng(0)
    names = tuple(f"{i}.jpg" for i in range(7))
    kinds = {name: "abcd"[i % 4] for i, name in enumerate(names)}
    tracks = [rng.choice(7, rng.integers(2, 6), replace=False) for _ in range(53)]
    found = covisibility(model(names, tracks), kinds, ["d", "a", "b", "c"])
    sets = [{kinds[names[v]] for v in track} for track in tracks]
    assert found.by_count.tolist() == pytest.approx([np.mean([len(s) == k for s in sets]) for k in (1, 2, 3, 4)])
    expected = [[np.mean([a in s and b in s for s in sets]) for b in "dabc"] for a in "dabc"]
    np.testing.assert_allclose(found.together, expected)


def test_a_model_without_points_has_shares_of_zero():
    assert covisibility(model(("p",), []), {"p": "sift"}).by_count.tolist() == [0]


def test_a_photo_without_a_descriptor_is_named():
    with pytest.raises(ValueError, match=r"1 of 2 photos have no descriptor, first \['q'\]"):
        covisibility(model(("p", "q"), [[0, 1]]), {"p": "sift"})
