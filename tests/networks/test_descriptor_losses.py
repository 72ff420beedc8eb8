"""Losses of learned descriptors against loops over rows in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.networks.descriptor_losses import Views, hardnet_loss, no_negatives, patch_codes, sosnet_loss

LOSSES = {"hardnet": hardnet_loss, "sosnet": sosnet_loss}
COMPARISONS = {"hardnet": [(0, 1), (1, 0)], "sosnet": [(0, 1), (1, 0), (0, 0), (1, 1)]}
ROWS, WIDTH = 29, 7


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def views():
    """29 rows: three of one point, a patch seen twice, a descriptor met twice, five of padding."""
    rng = np.random.default_rng(3)
    centre = rng.normal(size=(ROWS, WIDTH))
    rows = unit(centre + 0.5 * rng.normal(size=(2, ROWS, WIDTH)))
    codes = unit(rng.normal(size=(2, ROWS, 64)))
    points = 100 + np.arange(ROWS)
    points[[4, 9, 11]] = 7
    rows[:, 9] = unit(rows[:, 4] + 0.02)  # nearest to it, and no negative
    codes[1, 6] = unit(codes[0, 2] + 0.01 * rng.normal(size=64))
    rows[:, 6] = unit(rows[:, 2] + 0.02)
    rows[1, 13] = unit(rows[0, 12] + 1e-4)
    rows[:, -3] = rows[:, 0]  # padding that would be the hardest negative
    mask = np.arange(ROWS) < ROWS - 5
    f = np.float32
    return Views(jnp.asarray(f(rows)), jnp.asarray(f(codes)), jnp.asarray(np.int32(points)), jnp.asarray(mask))


def oracle(kind, rows, codes, points, mask):
    """The triplet and the second-order mean, and the loss; all by loops."""
    rows = np.asarray(rows, np.float64)
    distance = lambda a, b: np.sqrt(((a - b) ** 2).sum())  # noqa: E731
    valid = np.flatnonzero(mask)
    hinges, second = [], []
    for i in valid:
        others = [j for j in valid if points[j] != points[i]]
        negatives = []
        for j in others:
            if max(codes[v, i] @ codes[w, j] for v in (0, 1) for w in (0, 1)) > 0.95:
                continue
            found = [distance(rows[v, i], rows[w, j]) for v, w in COMPARISONS[kind]]
            negatives += [d for d in found if d >= 0.008]
        if negatives:
            hinge = max(0, 1 + distance(rows[0, i], rows[1, i]) - min(negatives))
            hinges.append(hinge**2 if kind == "sosnet" else hinge)
        near = [set(sorted(others, key=lambda j, v=v, i=i: distance(rows[v, i], rows[v, j]))[:8]) for v in (0, 1)]
        if union := near[0] | near[1]:
            squares = [(distance(rows[0, i], rows[0, j]) - distance(rows[1, i], rows[1, j])) ** 2 for j in union]
            second.append(np.sqrt(sum(squares)))
    means = {"triplet": np.mean(hinges)} | ({"second_order": np.mean(second)} if kind == "sosnet" else {})
    return means, sum(means.values()), len(hinges)


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_are_those_of_loops_over_rows(kind, views):
    sums = jax.jit(LOSSES[kind])(views)
    means, _, count = oracle(kind, *map(np.asarray, views))
    assert sums.keys() == means.keys()
    for name, expected in means.items():
        assert float(sums[name].mean()) == pytest.approx(expected, rel=1e-5)
    assert sums["triplet"].count == count


@pytest.mark.parametrize("kind", LOSSES)
def test_gradients_are_those_of_finite_differences(kind, views):
    def loss(rows):
        return sum(s.mean() for s in LOSSES[kind](views._replace(descriptors=rows)).values())

    gradient = np.asarray(jax.jit(jax.grad(loss))(views.descriptors), np.float64)
    direction = np.random.default_rng(1).normal(size=gradient.shape)
    rows, rest = np.asarray(views.descriptors, np.float64), [np.asarray(x) for x in views[1:]]
    ends = [oracle(kind, rows + step * direction, *rest)[1] for step in (-1e-6, 1e-6)]
    assert (gradient * direction).sum() == pytest.approx((ends[1] - ends[0]) / 2e-6, rel=1e-3)


@pytest.mark.parametrize("kind", LOSSES)
def test_four_devices_equal_one(kind, views):
    """28 rows on four devices, one of which holds mostly padding; losses and gradients."""
    views = jax.tree.map(lambda x: x[:, :28] if x.ndim == 3 else x[:28], views)
    spread = Views(*(x.reshape(2, 4, 7, -1).swapaxes(0, 1) for x in views[:2]), *(x.reshape(4, 7) for x in views[2:]))

    def whole(rows):
        sums = LOSSES[kind](views._replace(descriptors=rows))
        return sum(s.total for s in sums.values()), sums

    def parts(rows):
        share = jax.vmap(lambda v: LOSSES[kind](v, axis_name="devices"), axis_name="devices")
        sums = jax.tree.map(lambda x: x.sum(0), share(spread._replace(descriptors=rows)))
        return sum(s.total for s in sums.values()), sums

    (_, expected), gradient = jax.jit(jax.value_and_grad(whole, has_aux=True))(views.descriptors)
    (_, found), spread_gradient = jax.jit(jax.value_and_grad(parts, has_aux=True))(spread.descriptors)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
    spread_gradient = np.asarray(spread_gradient).swapaxes(0, 1).reshape(gradient.shape)
    np.testing.assert_allclose(spread_gradient, gradient, atol=1e-5)


def test_what_is_no_negative(views):
    everyone = np.asarray(no_negatives(views, views))
    assert everyone[4, 9] and everyone[9, 11]  # one point
    assert everyone[2, 6] and everyone[6, 2]  # one looks like the other's pair
    assert everyone[:, -5:].all() and everyone[-5:].all()  # padding
    assert everyone.diagonal().all() and not everyone[0, 1:4].any()


@pytest.mark.parametrize("kind", LOSSES)
def test_a_batch_without_negatives_and_equal_views_has_finite_gradients(kind, views):
    """All rows of one point, or all descriptors equal: distances are zero, and nothing is learned from them."""
    alone = views._replace(points=jnp.zeros(ROWS, jnp.int32))
    equal = views._replace(descriptors=jnp.ones_like(views.descriptors) / np.sqrt(WIDTH))
    for case in (alone, equal):
        loss = lambda rows, case=case: sum(  # noqa: E731
            s.total for s in LOSSES[kind](case._replace(descriptors=rows)).values()
        )
        assert np.isfinite(jax.grad(loss)(case.descriptors)).all()
    assert float(LOSSES[kind](alone)["triplet"].count) == 0


def test_codes_correlate_as_the_shrunk_patches():
    patches = np.random.default_rng(5).random((2, 3, 32, 32)).astype(np.float32)
    codes = np.asarray(patch_codes(jnp.asarray(patches)))
    means = patches.reshape(2, 3, 8, 4, 8, 4).mean((3, 5)).reshape(6, 64)
    flat = codes.reshape(6, 64)
    np.testing.assert_allclose(flat @ flat.T, np.corrcoef(means), atol=1e-5)
    assert not np.asarray(patch_codes(jnp.full((1, 32, 32), 0.5))).any()
