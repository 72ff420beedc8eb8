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
    assert patch_metrics.average_precision(distances, labels)[0] == pytest.approx((1 + 2 / 3) / 2)
    assert patch_metrics.average_precision(distances, labels, 4)[0] == pytest.approx((1 + 2 / 3) / 4)


def test_the_toolbox_takes_the_mean_with_the_precision_one_place_before():
    # right, wrong, right, wrong: from 1 to 1, then from 1/2 to 2/3
    distances, labels = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1, 0, 1, 0])
    assert patch_metrics.average_precision(distances, labels)[1] == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 2)
    assert patch_metrics.average_precision(distances, labels, 4)[1] == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 4)
    # wrong, right: from 0 to 1/2
    assert patch_metrics.average_precision(distances[:2], labels[1:3])[1] == pytest.approx(1 / 4)


@pytest.mark.parametrize("positives", [None, 3])
def test_a_ranking_without_positives_has_no_precision(positives):
    for distances in (np.zeros(0), np.arange(4.0)):
        assert patch_metrics.average_precision(distances, np.zeros(len(distances)), positives).tolist() == [0, 0]


@pytest.mark.parametrize("labels", ["whole", "parts"])
@pytest.mark.parametrize("values", [5, 10_000])  # many ties, and hardly any
@pytest.mark.parametrize("unfound", [0, 9])
def test_both_ways_equal_plain_loops_over_random_rankings(labels, values, unfound):
    rng = np.random.default_rng(values + unfound)
    for n in (1, 2, 7, 60):
        for _ in range(20):
            distances, credit = rng.integers(values, size=n).astype(float), (rng.random(n) < 0.4).astype(float)
            if labels == "parts":
                credit = np.where(rng.random(n) < 0.5, credit, 1 / rng.integers(2, 5, size=n))
            total = credit.sum() + unfound
            found = patch_metrics.average_precision(distances, credit, total)
            np.testing.assert_allclose(found, patch_loops.both(distances, credit, total), rtol=0, atol=1e-9)


def test_rankings_of_bool_labels_are_those_of_numbers():
    rng = np.random.default_rng(2)
    distances, positive = rng.integers(9, size=50), rng.random(50) < 0.3
    found = patch_metrics.average_precision(distances, positive)
    np.testing.assert_allclose(found, patch_loops.both(distances, positive.astype(int)), rtol=0, atol=1e-9)


def test_what_is_equally_far_counts_at_the_end_of_its_group():
    # three at one distance, two of them right: both have precision 2/3; in the toolbox's way wrong, right, right
    distances, labels = np.array([0.5, 0.5, 0.5, 0.9]), np.array([1, 0, 1, 0])
    expected = pytest.approx([2 / 3, ((0 + 1 / 2) / 2 + (1 / 2 + 2 / 3) / 2) / 2])
    assert patch_metrics.average_precision(distances, labels) == expected
    assert patch_metrics.average_precision(distances[::-1], labels[::-1]) == expected


def test_what_is_right_with_a_probability_is_a_part_of_both():
    # half a wrong one, a right one, half a right one: at 1 of 1.5, then at 1.5 of 2; the paper has 1.5 of 2 for both
    for credit in ([0.5, 1], [1, 0.5]):
        found = patch_metrics.average_precision(np.array([3.0, 3]), np.array(credit), 2)
        trapezoids = (0 + 2 / 3) / 2 + (2 / 3 + 3 / 4) / 2 * 0.5
        assert found == pytest.approx([1.5 * 0.75 / 2, trapezoids / 2])


def test_area_under_roc_is_the_chance_that_a_positive_is_nearer():
    # of 2 x 2 pairs: 0.1 is before both negatives, 0.3 before 0.4 and beside 0.3
    distances, positive = np.array([0.1, 0.3, 0.3, 0.4]), np.array([True, True, False, False])
    assert patch_metrics.roc_area(distances, positive) == (2 + 1 + 0.5) / 4


def test_matches_are_ranked_by_their_distance_over_all_patches():
    # 0 and 2 find their own, 1 finds 0; the wrong one ranks second: (1/1 + 2/3) / 3, of trapezoids (1 + 7/12) / 3
    reference = np.array([[0.0, 0], [3, 0], [0, 9]], np.float32)
    others = np.array([[1.0, 0], [9, 9], [0, 12]], np.float32)
    found, share = patch_metrics.matching(reference, others, 13)
    assert (found, share) == (pytest.approx([(1 + 2 / 3) / 3, (1 + 7 / 12) / 3]), pytest.approx(2 / 3))
    found, share = patch_metrics.matching(reference[:0], others[:0], 13)
    assert found.tolist() == [0, 0] and share == 0


def test_retrieval_of_one_query_by_hand():
    # positives at 1 and 3, others that count at 2 and 3: (1/1 + 2/4) / 2; the one of the query's sequence does not
    query, positives = np.array([[0.0]], np.float32), np.array([[[[1.0], [3.0]]]], np.float32)
    pool, of = np.array([[0.5], [2], [3]], np.float32), np.array([4, 1, 2])
    found = patch_metrics.retrieval(query, positives, pool, np.array([4]), of, np.array([2, 3, 9]), 3)
    np.testing.assert_allclose(found[..., 0], [[1, (1 + 2 / 3) / 2, (1 + 2 / 4) / 2]])
    # the last ranks right, wrong, wrong, right: from 1/3 to 2/4
    np.testing.assert_allclose(found[..., 1], [[1, (1 + 7 / 12) / 2, (1 + 5 / 12) / 2]])


@pytest.mark.parametrize("kind", ["unit", "floats", "bits"])
def test_all_figures_equal_those_of_plain_loops(kind):
    rows = noisy(kind)
    found = measured(rows, SEQUENCES, STARTS, TASKS)
    detail, toolbox = found["detail"], found["detail"]["toolbox"]
    verified = np.array(patch_loops.verification(rows, TASKS))
    ours = [[v["imbalanced"], v["balanced"]] for by in detail["verification"].values() for v in by.values()]
    np.testing.assert_allclose(ours, 100 * verified[:, :2], rtol=0, atol=1e-9)
    theirs = [value for by in toolbox["verification"].values() for value in by.values()]
    np.testing.assert_allclose(theirs, 100 * verified[:, 2], rtol=0, atol=1e-9)
    looped = {"e": {}, "h": {}, "t": {}}
    for noise, first in zip(looped, (1, 6, 11), strict=True):
        for name, start, end in zip(SEQUENCES, STARTS[:-1], STARTS[1:], strict=True):
            kinds = looped[noise].setdefault({"i": "illumination", "v": "viewpoint"}[name[0]], [])
            pairs = [(rows[0, start:end], rows[s, start:end]) for s in range(first, first + 5)]
            kinds.append(np.mean([patch_loops.matching(a, b)[0] for a, b in pairs], axis=0))
    for noise, kinds in looped.items():
        for name, values in kinds.items():
            ours = [detail["matching"][noise][name], toolbox["matching"][noise][name]]
            np.testing.assert_allclose(ours, 100 * np.mean(values, axis=0), rtol=0, atol=1e-9)
    retrieved = patch_loops.retrieval(rows, TASKS, [25]).mean(axis=1)  # 20 distractors: one pool of all
    ours = [[detail["retrieval"][noise], toolbox["retrieval"][noise]] for noise in looped]
    np.testing.assert_allclose(ours, 100 * retrieved, rtol=0, atol=1e-9)
    means = {"verification": np.mean(theirs), "retrieval": 100 * retrieved[:, 1].mean()}
    means["matching"] = np.mean([list(by_kind.values()) for by_kind in toolbox["matching"].values()])
    for task, mean in means.items():
        assert found["values"][f"toolbox {task}"] == pytest.approx(mean, abs=1e-9)


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
    np.testing.assert_allclose(found, patch_loops.retrieval(rows, TASKS, pools), rtol=0, atol=1e-9)


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
    # The toolbox's way ranks all negatives first.
    ranked = [patch_loops.toolbox_precision(range(n + 5), [0] * n + [1] * 5) for n in counted]
    assert values["toolbox retrieval"] == pytest.approx(100 * np.mean(ranked))
    ranked = patch_loops.toolbox_precision(range(72), [0] * 60 + [1] * 12)
    assert values["toolbox verification"] == pytest.approx(100 * ranked)


def test_exact_rows_are_perfect():
    rows = np.broadcast_to(noisy("unit")[0], (16, sum(COUNTS), 13)).copy()
    assert set(measured(rows, SEQUENCES, STARTS, TASKS)["values"].values()) == {100.0}


def test_equal_rows_are_equally_far_whatever_the_product_adds_first():
    rng = np.random.default_rng(5)
    rows = unit_rows(rng.normal(size=(1, 128))).repeat(517, axis=0)
    near = unit_rows(rows + 0.1 * rng.normal(size=(1, 128)).astype(np.float32))
    found, share = patch_metrics.matching(rows, near, 1.0)
    assert (found[0], share) == (pytest.approx(1 / 517**2), pytest.approx(1 / 517))


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
