"""Figures of the HPatches benchmark of patches: by hand, against plain loops, and of rows that are all equal."""

import numpy as np
import pytest

from tests.support import patch_loops
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.evaluate.benchmarks import patch_metrics, patch_tasks
from xdesc_jax.evaluate.benchmarks.patch_scores import measured

SEQUENCES, COUNTS = ["i_a", "i_b", "v_c"], [11, 5, 13]
STARTS = patch_tasks.offsets(COUNTS)
TASKS = patch_tasks.draw(COUNTS, [np.ones(n, bool) for n in COUNTS], pairs=60, queries=7, distractors=20, seed=3)


def noisy(kind):
    """Descriptors [16, 29, D] that are alike in all strips, the more jitter the less."""
    rng = np.random.default_rng(1)
    noise = np.array([0.0] + [0.4] * 5 + [0.8] * 5 + [1.4] * 5)[:, None, None]
    if kind == "bits":
        truth = rng.random((sum(COUNTS), 24)) < 0.5
        return truth ^ (rng.random((16, *truth.shape)) < 0.2 * noise)
    truth = rng.normal(size=(sum(COUNTS), 13))
    rows = (truth + noise * rng.normal(size=(16, *truth.shape))).astype(np.float32)
    return rows if kind == "floats" else unit_rows(rows.reshape(-1, 13)).reshape(rows.shape)


def test_average_precision_is_the_sum_of_precisions_at_the_positives():
    # right, wrong, right, wrong: (1/1 + 2/3) / 2, and over 4 where four were to be found
    distances, labels = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1, 0, 1, 0])
    assert patch_metrics.average_precision(distances, labels) == pytest.approx((1 + 2 / 3) / 2)
    assert patch_metrics.average_precision(distances, labels, 4) == pytest.approx((1 + 2 / 3) / 4)
    assert patch_metrics.average_precision(np.zeros(0), np.zeros(0)) == 0


def test_what_is_equally_far_counts_at_the_end_of_its_group():
    # three at one distance, two of them right: both have precision 2/3
    distances, labels = np.array([0.5, 0.5, 0.5, 0.9]), np.array([1, 0, 1, 0])
    assert patch_metrics.average_precision(distances, labels) == pytest.approx(2 / 3)
    assert patch_metrics.average_precision(distances[::-1], labels[::-1]) == pytest.approx(2 / 3)


def test_area_under_roc_is_the_chance_that_a_positive_is_nearer():
    # of 2 x 2 pairs: 0.1 is before both negatives, 0.3 before 0.4 and beside 0.3
    distances, positive = np.array([0.1, 0.3, 0.3, 0.4]), np.array([True, True, False, False])
    assert patch_metrics.roc_area(distances, positive) == (2 + 1 + 0.5) / 4


def test_matches_are_ranked_by_their_distance_over_all_patches():
    # 0 and 2 find their own, 1 finds 0; the wrong one ranks second: (1/1 + 2/3) / 3
    reference = np.array([[0.0, 0], [3, 0], [0, 9]], np.float32)
    others = np.array([[1.0, 0], [9, 9], [0, 12]], np.float32)
    found, share = patch_metrics.matching(reference, others, 13)
    assert (found, share) == (pytest.approx((1 + 2 / 3) / 3), pytest.approx(2 / 3))


def test_retrieval_of_one_query_by_hand():
    # positives at 1 and 3, others that count at 2 and 3: (1/1 + 2/4) / 2; the one of the query's sequence does not
    query, positives = np.array([[0.0]], np.float32), np.array([[[[1.0], [3.0]]]], np.float32)
    pool, of = np.array([[0.5], [2], [3]], np.float32), np.array([4, 1, 2])
    found = patch_metrics.retrieval(query, positives, pool, np.array([4]), of, np.array([2, 3, 9]), 3)
    np.testing.assert_allclose(found, [[1, (1 + 2 / 3) / 2, (1 + 2 / 4) / 2]])


@pytest.mark.parametrize("kind", ["unit", "floats", "bits"])
def test_all_figures_equal_those_of_plain_loops(kind):
    rows = noisy(kind)
    found = measured(rows, SEQUENCES, STARTS, TASKS)
    verified = np.array(patch_loops.verification(rows, TASKS))
    ours = [[v["imbalanced"], v["balanced"]] for by in found["detail"]["verification"].values() for v in by.values()]
    np.testing.assert_allclose(ours, 100 * verified, atol=1e-4)
    looped = {"e": {}, "h": {}, "t": {}}
    for noise, first in zip(looped, (1, 6, 11), strict=True):
        for name, start, end in zip(SEQUENCES, STARTS[:-1], STARTS[1:], strict=True):
            kinds = looped[noise].setdefault({"i": "illumination", "v": "viewpoint"}[name[0]], [])
            pairs = [(rows[0, start:end], rows[s, start:end]) for s in range(first, first + 5)]
            kinds.append(np.mean([patch_loops.matching(a, b)[0] for a, b in pairs]))
    for noise, kinds in looped.items():
        for name, values in kinds.items():
            assert found["detail"]["matching"][noise][name] == pytest.approx(100 * np.mean(values), abs=1e-4)
    retrieved = patch_loops.retrieval(rows, TASKS, [25]).mean(axis=1)  # 20 distractors: one pool of all
    np.testing.assert_allclose(list(found["detail"]["retrieval"].values()), 100 * retrieved, atol=1e-4)


def test_folders_of_other_names_are_of_no_kind_of_the_sets():
    found = measured(noisy("unit"), ["indoor", "i_b", "view"], STARTS, TASKS)
    assert {tuple(by_kind) for by_kind in found["detail"]["matching"].values()} == {("other", "illumination")}


@pytest.mark.parametrize("pools", [[2, 6, 9], [5, 30]])
def test_pools_hold_the_first_distractors_that_count(pools):
    rows = noisy("unit")
    positives = rows[1:, TASKS.queries].reshape(3, 5, len(TASKS.queries), -1).transpose(2, 0, 1, 3)
    found = patch_metrics.retrieval(
        rows[0, TASKS.queries], positives, rows[0, TASKS.distractors], TASKS.query_of, TASKS.distractor_of,
        np.array(pools), 1.0,
    )  # fmt: skip
    np.testing.assert_allclose(found, patch_loops.retrieval(rows, TASKS, pools), atol=1e-6)


@pytest.mark.parametrize("kind", ["unit", "bits"])
def test_equal_rows_reach_what_chance_does(kind):
    rows = np.broadcast_to(noisy(kind)[0, 0], (16, sum(COUNTS), 13 if kind == "unit" else 24)).copy()
    found = measured(rows, SEQUENCES, STARTS, TASKS)
    values = found["values"]
    assert values["verification"] == pytest.approx(100 * 12 / 72)  # 12 positives and 60 negatives
    assert values["balanced verification"] == pytest.approx(50)
    light, place = np.mean([1 / 11**2, 1 / 5**2]), 1 / 13**2  # one of N is right, at a precision of 1 / N
    assert values["matching"] == pytest.approx(100 * (light + place) / 2)
    counted = (TASKS.distractor_of != TASKS.query_of[:, None]).sum(axis=1)
    assert values["retrieval"] == pytest.approx(100 * np.mean(5 / (5 + counted)))


def test_exact_rows_are_perfect():
    rows = np.broadcast_to(noisy("unit")[0], (16, sum(COUNTS), 13)).copy()
    assert set(measured(rows, SEQUENCES, STARTS, TASKS)["values"].values()) == {100.0}


def test_equal_rows_are_equally_far_whatever_the_product_adds_first():
    rng = np.random.default_rng(5)
    rows = unit_rows(rng.normal(size=(1, 128))).repeat(517, axis=0)
    near = unit_rows(rows + 0.1 * rng.normal(size=(1, 128)).astype(np.float32))
    assert patch_metrics.matching(rows, near, 1.0) == (pytest.approx(1 / 517**2), pytest.approx(1 / 517))


def test_drawn_pairs_are_what_they_are_said_to_be():
    tasks = patch_tasks.draw(COUNTS, [np.ones(n, bool) for n in COUNTS], pairs=500, queries=5, distractors=9, seed=0)
    of = np.searchsorted(STARTS, np.arange(sum(COUNTS)), side="right") - 1
    for pairs in (tasks.positive, *tasks.negative.values()):
        assert (pairs.image[:, 0] != pairs.image[:, 1]).all() and pairs.image.min() >= 0 and pairs.image.max() == 4
    assert (tasks.positive.row[:, 0] == tasks.positive.row[:, 1]).all()
    intra, inter = tasks.negative["intra"].row, tasks.negative["inter"].row
    assert (intra[:, 0] != intra[:, 1]).all() and (of[intra[:, 0]] == of[intra[:, 1]]).all()
    assert (of[inter[:, 0]] != of[inter[:, 1]]).all()
    assert len(set(tasks.queries) | set(tasks.distractors)) == 14


def test_patches_without_contrast_are_not_retrieved():
    clear = [np.arange(n) % 2 == 0 for n in COUNTS]
    tasks = patch_tasks.draw(COUNTS, clear, pairs=5)
    kept = np.flatnonzero(np.concatenate(clear))
    assert sorted([*tasks.queries, *tasks.distractors]) == kept.tolist() and len(tasks.queries) == len(kept) // 5
