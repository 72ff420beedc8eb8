"""Settings of a sweep, best first."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.sweep_records import diverged, record
from xdesc_jax.sweep.ranking import counts, explained, ranked


def seeds(value, *ranks, status="finished"):
    return [record({"loss.alpha": value, "seed": i}, rank, status) for i, rank in enumerate(ranks)]


def alpha(setting):
    return setting.best["fields"]["loss.alpha"]


def test_members_that_differ_in_the_seed_alone_are_one_setting():
    found = ranked([*seeds(0.1, 0.5, 0.7), *seeds(0.2, 0.25)])
    assert [alpha(s) for s in found] == [0.1, 0.2]
    assert found[0].mean == pytest.approx(0.6) and found[0].deviation == pytest.approx(np.sqrt(0.02))
    assert (found[0].seeds, found[1].seeds, found[1].deviation) == (2, 1, None)
    assert (str(found[0]), str(found[1])) == ("0.6000 \u00b1 0.1414", "0.2500")


def test_the_mean_over_seeds_ranks_and_not_the_best_seed():
    found = ranked([*seeds(0.1, 0.9, 0.1), *seeds(0.2, 0.6, 0.6)])
    assert [alpha(s) for s in found] == [0.2, 0.1]
    assert found[1].best["fields"]["seed"] == 0


def test_diverged_and_stopped_settings_stand_behind():
    records = [
        diverged({"loss.alpha": 0.1, "seed": 0}),
        *seeds(0.2, 0.9, status="stopped"),
        *seeds(0.3, 0.8),
        diverged({"loss.alpha": 0.3, "seed": 1}),
        *seeds(0.4, 0.1),
    ]
    found = ranked(records)
    assert [alpha(s) for s in found] == [0.4, 0.3, 0.2, 0.1]
    assert [(s.mean, s.diverged) for s in found] == [(0.1, 0), (0.8, 1), (0.9, 0), (None, 1)]
    assert str(found[-1]) == "-"


def test_a_stopped_seed_is_not_averaged_with_finished_ones():
    found = ranked([*seeds(0.1, 0.5), record({"loss.alpha": 0.1, "seed": 7}, 0.9, "stopped")])
    assert (found[0].mean, found[0].seeds, found[0].best["fields"]["seed"]) == (0.5, 1, 0)


def test_a_diverged_member_does_not_count_whatever_it_had_reached():
    late = record({"seed": 1}, 0.9, "diverged")
    assert not counts(late) and not counts(diverged({})) and counts(record({}, 0.0))
    found = ranked([late, record({"seed": 0}, 0.2)])
    assert found[0].mean == 0.2 and found[0].best["mean_rank1"] == 0.2


def test_the_share_explained_of_hand_computed_groups():
    groups = np.array([0, 0, 1, 1])
    # Within 0.02 / 2, in all 1.02 / 3: the means are 0.0 and 1.0, each value 0.1 / sqrt 2 from its own.
    d = np.sqrt(0.005)
    values = np.array([-d, d, 1 - d, 1 + d])
    assert explained(groups, values) == pytest.approx(1 - (0.02 / 2) / (1.02 / 3))
    assert explained(groups, np.array([0.0, 0, 1, 1])) == 1
    assert explained(groups, np.array([0.0, 1, 0, 1])) == 0


def test_what_cannot_be_explained_is_none():
    assert explained(np.arange(3), np.array([1.0, 2, 3])) is None
    assert explained(np.array([0, 0, 1]), np.ones(3)) is None
    assert explained(np.zeros(0, int), np.zeros(0)) is None


def test_groups_without_effect_explain_about_nothing():
    rng = np.random.default_rng(0)
    shares = [explained(rng.integers(0, 12, 60), rng.normal(size=60)) for _ in range(50)]
    assert np.mean(shares) < 0.06
