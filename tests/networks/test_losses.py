"""Losses against a plain numpy loop, and on the inputs that break careless ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.networks import losses
from xdesc_jax.networks.losses import Rows


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def make_rows(rng, count=3, size=7, width=5, **changes):
    rows = {
        "embeddings": unit(rng.normal(size=(count, size, width))),
        "ids": np.arange(count * size).reshape(count, size).astype(np.uint32),
        "mask": np.ones(size, bool),
        "points": np.arange(size, dtype=np.int32),
    }
    return Rows(**{k: jnp.asarray(v) for k, v in (rows | changes).items()})


def loop_matching(rows, pairs, margin, distance, both=False):
    """Directed pairs (i, j), one anchor and one candidate at a time."""
    z, ids, mask, points = (np.asarray(x) for x in rows)
    total, count = 0.0, 0
    for i, j in pairs:
        for p in range(len(mask)):
            candidates = [
                q
                for q in range(len(mask))
                if mask[q] and ids[i, p] != ids[i, q] and ids[j, p] != ids[j, q] and points[p] != points[q]
            ]
            if not mask[p] or not candidates:
                continue

            def length(v):
                return np.sum(v**2) if distance == "squared" else np.sqrt(np.sum(v**2))

            negative = min(length(z[i, p] - z[j, q]) for q in candidates)
            if both:
                negative = min(negative, *(length(z[j, p] - z[i, q]) for q in candidates))
            total += max(margin + length(z[i, p] - z[j, p]) - negative, 0)
            count += 1
    return total, count


ORDERED = [(i, j) for i in range(3) for j in range(3)]


@pytest.mark.parametrize("distance", ["euclidean", "squared"])
def test_matching_loss_equals_the_loop_over_all_ordered_pairs(distance):
    rows = make_rows(np.random.default_rng(0))
    found = losses.matching_loss(rows, jnp.asarray(losses.all_pairs(3)), 1.0, distance)
    np.testing.assert_allclose(found, loop_matching(rows, ORDERED, 1.0, distance), rtol=1e-5)


@pytest.mark.parametrize("columns", [1, 5, 7])
def test_blocks_of_columns_and_groups_of_pairs_change_nothing(monkeypatch, columns):
    """Of 17 columns with a padded one, equal rows and an equal point; 6 pairs in groups of 4."""
    rows = make_rows(np.random.default_rng(9), size=17, mask=np.arange(17) < 16)
    ids = np.asarray(rows.ids).copy()
    ids[0, 3], ids[1, 8] = ids[0, 12], ids[1, 9]
    points = np.asarray(rows.points).copy()
    points[5] = points[6]
    rows = rows._replace(ids=jnp.asarray(ids), points=jnp.asarray(points))
    pairs = jnp.asarray(losses.all_pairs(3))
    gradient = jax.value_and_grad(lambda z: losses.matching_loss(rows._replace(embeddings=z), pairs, 1.0, "squared")[0])
    whole = gradient(rows.embeddings)
    monkeypatch.setattr(losses, "COLUMNS", columns)
    monkeypatch.setattr(losses, "ELEMENTS", 4 * 17 * columns)
    for found, expected in zip(gradient(rows.embeddings), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for i, j in losses.all_pairs(3):
        found = losses.hardest_negatives(rows, rows, i, j, None)
        monkeypatch.setattr(losses, "COLUMNS", 1000)
        expected = losses.hardest_negatives(rows, rows, i, j, None)
        monkeypatch.setattr(losses, "COLUMNS", columns)
        for a, b, there in zip(found[:2], expected[:2], expected[2:], strict=True):
            np.testing.assert_array_equal(np.where(there, a, -1), np.where(there, b, -1))


def test_directed_pairs_count_one_way():
    rows = make_rows(np.random.default_rng(1))
    pairs = [(0, 2), (1, 0), (2, 1)]
    found = losses.matching_loss(rows, jnp.asarray(pairs), 0.7, "euclidean", symmetric=False)
    np.testing.assert_allclose(found, loop_matching(rows, pairs, 0.7, "euclidean"), rtol=1e-5)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("distance", ["euclidean", "squared"])
def test_symmetric_negatives_are_the_nearer_of_both_sides(distance, symmetric):
    rows = make_rows(np.random.default_rng(4))
    pairs = losses.all_pairs(3) if symmetric else np.array([(0, 2), (1, 0), (2, 1)])
    found = losses.matching_loss(
        rows, jnp.asarray(pairs), 0.7, distance, symmetric=symmetric, negatives_of="symmetric"
    )  # fmt: skip
    ordered = ORDERED if symmetric else pairs
    np.testing.assert_allclose(found, loop_matching(rows, ordered, 0.7, distance, both=True), rtol=1e-5)


def test_padding_is_neither_anchor_nor_negative():
    rng = np.random.default_rng(2)
    rows = make_rows(rng, mask=np.array([True] * 5 + [False] * 2))
    found = losses.matching_loss(rows, jnp.asarray(losses.all_pairs(3)), 1.0, "euclidean")
    np.testing.assert_allclose(found, loop_matching(rows, ORDERED, 1.0, "euclidean"), rtol=1e-5)
    zeros = rows.embeddings.at[:, 5:].set(0.0)
    again = losses.matching_loss(rows._replace(embeddings=zeros), jnp.asarray(losses.all_pairs(3)), 1.0, "euclidean")
    np.testing.assert_array_equal(found, again)


def test_duplicates_of_the_positive_are_no_negatives():
    rng = np.random.default_rng(3)
    rows = make_rows(rng)
    embeddings = rows.embeddings.at[:, 4].set(rows.embeddings[:, 1])
    ids = rows.ids.at[:, 4].set(rows.ids[:, 1])
    by_code = rows._replace(embeddings=embeddings, ids=ids)
    by_point = rows._replace(embeddings=embeddings, points=rows.points.at[4].set(1))
    for case in (by_code, by_point):
        found = losses.matching_loss(case, jnp.asarray(losses.all_pairs(3)), 1.0, "euclidean")
        np.testing.assert_allclose(found, loop_matching(case, ORDERED, 1.0, "euclidean"), rtol=1e-5)


def test_batch_of_equal_rows_gives_zero_loss_and_finite_gradients():
    row = unit(np.ones((3, 1, 5)))
    rows = make_rows(np.random.default_rng(4), embeddings=np.repeat(row, 7, axis=1), ids=np.zeros((3, 7), np.uint32))

    def loss(z):
        return losses.matching_loss(
            rows._replace(embeddings=z), jnp.asarray(losses.all_pairs(3)), 1.0, "euclidean"
        ).total

    value, gradient = jax.value_and_grad(loss)(rows.embeddings)
    assert value == 0
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("distance", ["euclidean", "squared"])
def test_gradient_flows_to_anchor_positive_and_chosen_negative(distance):
    rows = make_rows(np.random.default_rng(5), count=2, size=6)
    pairs = jnp.asarray(losses.all_pairs(2))

    def loss(z):
        return losses.matching_loss(rows._replace(embeddings=z), pairs, 1.0, distance).total

    gradient = np.asarray(jax.grad(loss)(rows.embeddings))
    step, direction = 1e-3, np.random.default_rng(6).normal(size=gradient.shape).astype(np.float32)
    slope = (loss(rows.embeddings + step * direction) - loss(rows.embeddings - step * direction)) / (2 * step)
    assert slope == pytest.approx(float(np.sum(gradient * direction)), rel=2e-2)


def test_translation_error_of_real_and_binary_targets():
    prediction = jnp.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(losses.translation_error(prediction, jnp.zeros((2, 2)), False), [5, 0])
    logits = jnp.array([[0.0, 100.0], [-100.0, 100.0]])
    bits = jnp.array([[1.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(losses.translation_error(logits, bits, True), [np.log(2) / 2, 50], rtol=1e-6)


def test_perfect_translation_has_finite_gradient():
    target = jnp.ones((3, 4))
    gradient = jax.grad(lambda p: jnp.sum(losses.translation_error(p, target, False)))(target)
    np.testing.assert_array_equal(gradient, 0)


def test_row_ids_are_equal_for_equal_rows_alone():
    x = np.random.default_rng(7).normal(size=(50, 9)).astype(np.float32)
    x[20] = x[3]
    x[21] = x[3][::-1]
    x[30], x[31] = 0.0, -0.0
    ids = np.asarray(losses.row_ids(jnp.asarray(x)))
    assert ids[20] == ids[3] and ids[30] == ids[31]
    assert len(np.unique(ids)) == 48


def test_first_maximum_is_argmax():
    x = jnp.asarray(np.random.default_rng(8).integers(0, 4, (6, 9)).astype(np.float32))
    for axis in (0, 1):
        value, index = losses.first_maximum(x, axis)
        np.testing.assert_array_equal(value, x.max(axis))
        np.testing.assert_array_equal(index, x.argmax(axis))


def make_target(rng, kind, sources=2, size=9, width=6, real=9):
    """Translations, native rows, ids of both, mask and points, with `real` rows that are no padding."""
    if kind == "bits":
        made, natives = rng.random((sources, size, width)), rng.random((size, width)) > 0.5
    else:
        made, natives = 2 * rng.normal(size=(sources, size, width)), 3 * rng.normal(size=(size, width))
    if kind == "unit":
        made, natives = unit(made), unit(natives)
    natives = jnp.asarray(natives, jnp.float32)
    return {
        "translations": jnp.asarray(made, jnp.float32),
        "natives": natives,
        "source_ids": jnp.arange(sources * size, dtype=jnp.uint32).reshape(sources, size),
        "target_ids": losses.row_ids(natives),
        "mask": jnp.arange(size) < real,
        "points": jnp.arange(size, dtype=jnp.int32),
    }


def loop_target_matching(target, kind, margin, distance):
    """Translation against natives and native against translations, one source after another."""
    together = np.concatenate([target["translations"], target["natives"][None]]).astype(np.float64)
    if kind == "bits":
        together = (2 * together - 1) / np.sqrt(together.shape[-1])
    ids = np.concatenate([target["source_ids"], target["target_ids"][None]])
    rows = Rows(together, ids, target["mask"], target["points"])
    count = len(target["translations"])
    pairs = [pair for s in range(count) for pair in ((s, count), (count, s))]
    return loop_matching(rows, pairs, margin, distance)


@pytest.mark.parametrize("distance", ["euclidean", "squared"])
@pytest.mark.parametrize("kind", ["unit", "plain", "bits"])
def test_target_matching_equals_the_loop(kind, distance):
    """With padding, equal native rows, equal source rows and two patches of one point."""
    target = make_target(np.random.default_rng(9), kind, real=7)
    target["natives"] = target["natives"].at[3].set(target["natives"][1])
    target["target_ids"] = losses.row_ids(target["natives"])
    target["source_ids"] = target["source_ids"].at[0, 4].set(target["source_ids"][0, 2])
    target["points"] = target["points"].at[5].set(0)
    found = losses.target_matching_loss(
        **target, margin=0.7, distance=distance, binary=kind == "bits", unit_length=kind == "unit"
    )
    np.testing.assert_allclose(found, loop_target_matching(target, kind, 0.7, distance), rtol=1e-5)


def test_the_target_margin_of_bits_is_four_times_a_share_of_bits():
    """Translations equal to their rows, which are 2 of 8 bits apart: the negative lies at 4 * 2 / 8."""
    natives = jnp.array([[0, 0, 0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1, 1, 1]], jnp.float32)
    target = make_target(np.random.default_rng(0), "bits", sources=1, size=2, width=8)
    target |= {"translations": natives[None], "natives": natives, "target_ids": losses.row_ids(natives)}
    found = losses.target_matching_loss(**target, margin=1.25, distance="squared", binary=True)
    np.testing.assert_allclose(found, (4 * 0.25, 4), rtol=1e-6)


@pytest.mark.parametrize("kind", ["unit", "plain", "bits"])
def test_target_matching_of_equal_rows_is_zero_with_finite_gradient(kind):
    target = make_target(np.random.default_rng(10), kind)
    natives = jnp.repeat(target["natives"][:1], 9, axis=0)
    target |= {"natives": natives, "target_ids": losses.row_ids(natives)}
    target["translations"] = jnp.broadcast_to(natives, (2, 9, 6))  # distance 0 as well

    def loss(made):
        settings = {"margin": 1.0, "distance": "euclidean", "binary": kind == "bits", "unit_length": kind == "unit"}
        return losses.target_matching_loss(**target | {"translations": made}, **settings).total

    value, gradient = jax.value_and_grad(loss)(target["translations"])
    assert value == 0
    assert np.isfinite(gradient).all()


def test_target_matching_draws_a_translation_from_the_nearest_other_native_row():
    """One anchor by hand: the gradient of |t - x|^2 - |t - n|^2 is 2 (n - x)."""
    natives = jnp.array([[0.0, 0.0], [1.0, 0.0], [9.0, 9.0]])
    target = make_target(np.random.default_rng(0), "plain", sources=1, size=3, width=2)
    target |= {"natives": natives, "target_ids": losses.row_ids(natives), "mask": jnp.array([True, True, False])}

    def loss(t):
        made = natives.at[0].set(t)[None]
        return losses.target_matching_loss(**target | {"translations": made}, margin=1.0, distance="squared").total

    # Row 0 as anchor 2 (1 - 0, 0); as the positive of native 0: 2 t; as the negative of native 1: -2 (t - 1).
    np.testing.assert_allclose(jax.grad(loss)(jnp.array([0.25, 0.5])), [2 + 0.5 + 1.5, 1 - 1], rtol=1e-6)


def test_the_error_of_bits_is_a_mean_over_bits_of_each_row():
    rng = np.random.default_rng(0)
    logits, bits = rng.normal(size=(2, 3, 5)), np.float64(rng.random((3, 5)) < 0.5)
    expected = -np.log(np.where(bits == 1, 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits)))).mean(axis=2)
    found = losses.translation_error(jnp.asarray(logits, jnp.float32), jnp.asarray(bits, jnp.float32), True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
