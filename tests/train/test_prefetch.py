"""Transfers ahead of use."""

from __future__ import annotations

import pytest

from xdesc_jax.train.prefetch import device_prefetch


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_all_batches_come_in_order(size, count):
    assert list(device_prefetch(range(count), lambda x: x * 10, size)) == [10 * i for i in range(count)]


def test_the_next_batch_is_sent_before_the_current_one_is_used():
    sent = []
    feed = device_prefetch(range(5), lambda x: sent.append(x) or x, size=2)
    assert next(feed) == 0
    assert sent == [0, 1]
    assert next(feed) == 1
    assert sent == [0, 1, 2]


def test_size_zero_is_refused():
    with pytest.raises(ValueError, match="prefetch size is 0"):
        device_prefetch([], lambda x: x, size=0)
