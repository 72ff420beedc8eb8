"""What rows of a photo tell each other: the buffered form is that of `networks.context`, in numpy and in jax."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.context_translators import positions
from tests.support.framed_translators import frames
from tests.support.small_translators import layers
from xdesc_jax.config import ContextConfig
from xdesc_jax.networks import context, neighbours
from xdesc_jax.translation import surroundings
from xdesc_jax.translation.surroundings import Surroundings, check_positions

CONFIG = ContextConfig("keypoint", nearest=5, larger=3, width=10, heads=3)
WIDE = 11


def photo(n, seed=0):
    """Layers, rows, frames and positions of a photo of n keypoints."""
    rng = np.random.default_rng(seed)
    of = [layer for shape in context.shapes(WIDE, 10, 3) for layer in layers(rng, *shape)]
    return of, rng.normal(size=(n, WIDE)).astype(np.float32), frames(n, seed), positions(n, seed)


def pooled(of, x, seen, at, xp):
    """`context.pool` of the whole photo at once."""
    near = neighbours.find(at, seen, CONFIG.nearest, CONFIG.larger)
    of, x, seen, at = ([tuple(map(xp.asarray, layer)) for layer in of], *map(xp.asarray, (x, seen, at)))
    around = context.geometry(seen, seen[near], at[near] - at[:, None], xp)
    return context.pool(of, x, context.project(of, x)[near], around, xp.asarray(near != neighbours.NONE), xp)


@pytest.mark.parametrize(("n", "xp"), [(1, np), (2, np), (4, np), (29, np), (29, jnp)])
def test_blocks_of_rows_are_told_what_pool_gives_for_the_photo(n, xp, monkeypatch):
    monkeypatch.setattr(surroundings, "POOL_ROWS", 8)
    of, x, seen, at = photo(n)
    told = Surroundings(of, CONFIG, x, seen, at, np.ones(n, bool))
    expected = np.asarray(pooled(of, x, seen, at, xp))
    assert expected.shape == (n, 4 * 10) and expected.dtype == np.float32
    np.testing.assert_allclose(told(0, n), expected, atol=1e-5)
    np.testing.assert_allclose(told(n // 3, n), expected[n // 3 :], atol=1e-5)
    into = np.full((n, 40), np.nan, np.float32)
    assert told(0, n, into) is into
    np.testing.assert_allclose(into, expected, atol=1e-5)
    assert (np.abs(expected).max(axis=1) > 0.01).all() == (n > 1)


def test_rows_that_are_not_usable_tell_nothing_and_are_told_nothing(monkeypatch):
    monkeypatch.setattr(surroundings, "POOL_ROWS", 4)
    of, x, seen, at = photo(23)
    usable = np.random.default_rng(4).random(23) < 0.6
    found = Surroundings(of, CONFIG, x, seen, at, usable)(0, 23)
    alone = Surroundings(of, CONFIG, x[usable], seen[usable], at[usable], np.ones(int(usable.sum()), bool))
    np.testing.assert_allclose(found[usable], alone(0, int(usable.sum())), atol=1e-6)
    assert not found[~usable].any()


def test_rows_in_float64_are_told_in_float64():
    of, x, seen, at = photo(29)
    exact = Surroundings(
        [(k.astype(float), b.astype(float)) for k, b in of], CONFIG, x.astype(float), seen, at, np.ones(29, bool)
    )
    found = exact(0, 29)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, pooled(of, x, seen, at, np), atol=1e-5)


@pytest.mark.parametrize(
    ("at", "size", "message"),
    [
        ([[1, 2]], (0, 0), r"a.h5: 'b': positions have shape \(1, 2\), expected \(2, 2\)"),
        ([1, 2], (0, 0), r"shape \(2,\), expected \(2, 2\)"),
        ([[1, 2, 3], [4, 5, 6]], (0, 0), r"shape \(2, 3\)"),
        ([[1, 2], [np.nan, 3]], (0, 0), r"a.h5: 'b': keypoint 1 is at \[nan, 3.0\], expected px within 1e\+06"),
        ([[-np.inf, 2], [1, 3]], (0, 0), r"keypoint 0 is at \[-inf, 2.0\]"),
        ([[1, 2], [3, 2e6]], (0, 0), "keypoint 1 is at"),
        ([[1, 2], [103, 50]], (100, 60), r"keypoint 1 is at \[103.0, 50.0\], outside the photo of 100x60 px"),
        ([[1, 63], [1, 2]], (100, 60), r"a.h5: 'b': keypoint 0 is at \[1.0, 63.0\], outside"),
        ([[1, 2], [-3, 2]], (100, 60), r"keypoint 1 .* at another size\?"),
    ],
)
def test_positions_that_do_not_fit_are_refused(at, size, message):
    with pytest.raises(ValueError, match=message):
        check_positions(at, 2, "a.h5: 'b'", size)


def test_positions_at_and_a_little_over_the_edge_pass():
    at = np.array([[-2, -0.5], [101.9, 61.9]])
    for size in ((100, 60), (0, 0), (0, 60)):
        found = check_positions(at, 2, "", size)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, at.astype(np.float32))
