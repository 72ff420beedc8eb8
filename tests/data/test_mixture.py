"""Mixtures of records: shares of a batch, and batches as a function of the step."""

from itertools import islice

import numpy as np
import pytest

from tests.support.pair_records import pair_records
from xdesc_jax.data.mixture import Mixture, Part, interleaved, parse_parts, shares, validation_rows
from xdesc_jax.data.schema import PAIR, PATCH, POINT, RecordInfo


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("mixture")
    return [pair_records(base / "large", 7, 11, seed=1), pair_records(base / "small", 3, 9, seed=2)]


@pytest.fixture(scope="module")
def parts(folders):
    return [Part(folders[0], 0.7), Part(folders[1], 0.3)]


def steps(mixture, count, first=0):
    """Batches of the steps from `first` on, whatever epoch they are in."""
    epoch, batch = divmod(first, mixture.batches_per_epoch)
    while True:
        found = list(islice(mixture.epoch(epoch, batch), count))
        yield from found
        count, epoch, batch = count - len(found), epoch + 1, 0
        if not count:
            return


def equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def test_words_name_folders_and_weights():
    found = parse_parts(["a=0.7", "b/c=2"])
    assert [(str(p.path), p.weight) for p in found] == [("a", 0.7), ("b/c", 2.0)]
    assert [(str(p.path), p.weight) for p in parse_parts(["x=y/z", "w"])] == [("x=y/z", None), ("w", None)]


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "no records"), (["a", "./a"], "given twice"), (["a=0", "b=1"], "weight is 0.0"), (["a=1", "b"], "or none"),
     (["a=nan"], "weight is nan")],
)  # fmt: skip
def test_words_that_make_no_mixture_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        parse_parts(words)


def test_shares_are_proportional_and_add_up():
    assert shares([0.7, 0.3], 10) == [7, 3]
    assert shares([1, 1, 1], 8) == [3, 3, 2]
    assert shares([30, 10], 6) == [5, 1]  # 4.5 and 1.5: the first of equal remainders
    with pytest.raises(ValueError, match=r"rows \[4, 0\]"):
        shares([0.95, 0.05], 4)


def test_any_part_of_a_batch_holds_its_share_of_each_source():
    source = np.repeat([0, 1], [9, 3])[interleaved([9, 3])]
    for device in source.reshape(3, 4):
        assert (device == 1).sum() == 1


def test_batches_hold_the_shares_and_all_rows_of_the_largest_source(parts, folders):
    mixture = Mixture(parts, 10, seed=5)
    assert mixture.shares == [7, 3]
    rows = RecordInfo.load(folders[0]).counts["train"]
    assert mixture.batches_per_epoch == rows // 7 and mixture.rows == 10 * (rows // 7)
    seen = np.concatenate([batch[POINT] for batch in mixture.epoch(0)])
    assert len(set(seen[seen % 2 == 0])) == rows // 7 * 7  # each row of the large one at most once
    assert (seen % 2 == 1).sum() == rows // 7 * 3  # the small one comes round again


def test_points_of_two_sources_never_share_a_number(parts):
    """Both number their points from 0."""
    batch = next(Mixture(parts, 10).epoch(0))
    assert (batch[POINT] % 2 == 0).sum() == 7 and (batch[POINT] % 2 == 1).sum() == 3
    assert batch[PATCH].shape == batch[PAIR].shape == (10, 32, 32)


@pytest.mark.parametrize("resident", [False, True])
def test_a_batch_is_a_function_of_the_step(parts, resident):
    """Started at any step, in any epoch, the batches are those of a run from the start."""
    mixture = Mixture(parts, 10, seed=5, resident=resident)
    count = 2 * mixture.batches_per_epoch + 3
    straight = list(steps(mixture, count))
    for first in (1, mixture.batches_per_epoch - 1, mixture.batches_per_epoch + 2):
        for expected, found in zip(straight[first:], steps(mixture, count - first, first), strict=True):
            equal(found, expected)
    assert not np.array_equal(straight[0][POINT], straight[mixture.batches_per_epoch][POINT])


def test_row_numbers_stand_for_the_same_batches(parts):
    mixture = Mixture(parts, 10, seed=5, resident=True)
    expected = list(mixture.epoch(1, 2))
    rows = list(mixture.row_batches(1, 2))
    arrays = mixture.take_arrays()
    for batch, numbers in zip(expected, rows, strict=True):
        row = numbers.pop("row")
        equal({name: x[row] for name, x in arrays.items()} | numbers, batch)


@pytest.mark.parametrize("resident", [False, True])
def test_parts_of_the_hosts_make_up_the_batch_of_one(parts, resident):
    whole = Mixture(parts, 12, seed=4, resident=resident)
    own = [Mixture(parts, 12, seed=4, resident=resident, host=host, num_hosts=3) for host in range(3)]
    assert {mixture.batches_per_epoch for mixture in own} == {whole.batches_per_epoch}
    for method in ("epoch", "row_batches") if resident else ("epoch",):
        streams = [getattr(mixture, method)(1, 1) for mixture in own]
        for expected, *found in zip(getattr(whole, method)(1, 1), *streams, strict=True):
            equal({name: np.concatenate([part[name] for part in found]) for name in expected}, expected)
    with pytest.raises(ValueError, match="batch size is 12, expected a multiple of 5 hosts"):
        Mixture(parts, 12, num_hosts=5)


def test_rows_per_epoch_set_the_length_of_an_epoch(parts, folders):
    assert Mixture(parts, 10, rows_per_epoch=45).batches_per_epoch == 4
    assert Mixture([Part(f) for f in folders], 10).weights == [RecordInfo.load(f).counts["train"] for f in folders]
    with pytest.raises(ValueError, match="rows_per_epoch is 9"):
        Mixture(parts, 10, rows_per_epoch=9)


def test_records_without_pairs_are_refused(folder):
    with pytest.raises(ValueError, match="records without pairs"):
        Mixture([Part(folder)], 4)


def test_point_numbers_that_would_overflow_are_refused(parts):
    mixture = Mixture(parts, 10)
    with pytest.raises(ValueError, match="too large"):
        mixture._numbered(np.array([2**30], np.int32), 1)


def test_validation_takes_one_row_of_each_point(folders):
    part = Part(folders[0])
    found = validation_rows(part, 9)
    assert {name: x.shape for name, x in found.items()} == {PATCH: (9, 32, 32), PAIR: (9, 32, 32), POINT: (9,)}
    assert len(set(found[POINT])) == 9
    everything = validation_rows(part, 1000)
    assert len(everything[POINT]) == RecordInfo.load(folders[0]).counts["validation"]
