"""Where the rows of each photo go, against the builder that deals them in order."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.data.places import Counted, Layout, Placed, lay_out, plan_counted
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.schema import Column, row_dtype
from xdesc_jax.data.spread import Spreader, by_shard, packed

COLUMNS = {"x": Column(np.dtype(np.float32), (3,)), "photo": Column(np.dtype(np.int32), ())}
ROWS = [7, 0, 1, 13, 4, 2]
PHOTOS = [Counted(i, f"{i}.jpg", rows=rows) for i, rows in enumerate(ROWS)]
SETTINGS = RecordSettings(validation_share=0.4, seed=3, rows_per_shard=5)


def columns_of(photo: Placed) -> dict[str, np.ndarray]:
    x = np.arange(3 * photo.rows, dtype=np.float32).reshape(-1, 3) + 100 * photo.index
    return {"x": x, "photo": np.full(photo.rows, photo.index, np.int32)}


def test_photos_dealt_one_by_one_in_any_order_give_the_shards_of_the_spreader(tmp_path):
    layout = lay_out(PHOTOS[::-1], SETTINGS, strict=False)
    assert [p.name for p in layout.photos] == [p.name for p in PHOTOS if p.rows]
    blocks: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for placed in (layout.photos[i] for i in (4, 0, 2, 1, 3)):
        shards = layout.deals[placed.split].shard_of(placed.before, placed.before + placed.rows)
        for shard, part in by_shard(packed(columns_of(placed), row_dtype(COLUMNS)), shards):
            blocks.setdefault((placed.split, shard), []).append((placed.before, part.tobytes()))
    for split, deal in layout.deals.items():
        with Spreader(tmp_path / split, COLUMNS, deal) as spreader:
            for placed in layout.photos:
                if placed.split == split:
                    spreader.add(columns_of(placed))
            expected = list(spreader.shards())
        assert len(expected) > 1
        for shard, columns in enumerate(expected):
            joined = b"".join(data for _, data in sorted(blocks.pop((split, shard))))
            found = np.frombuffer(joined, row_dtype(COLUMNS))[deal.order(shard)]
            for name in COLUMNS:
                np.testing.assert_array_equal(found[name], columns[name])
    assert not blocks


def test_rows_before_a_photo_are_counted_by_hand():
    layout = lay_out(PHOTOS, RecordSettings(validation_share=0, rows_per_shard=10), strict=False)
    assert layout.photos == [
        Placed(0, "0.jpg", 7, "train", 0),
        Placed(2, "2.jpg", 1, "train", 7),
        Placed(3, "3.jpg", 13, "train", 8),
        Placed(4, "4.jpg", 4, "train", 21),
        Placed(5, "5.jpg", 2, "train", 25),
    ]
    assert layout.deals["train"].shard_rows == [9, 9, 9] and layout.deals["validation"].shard_rows == []


def test_a_photo_that_stops_the_run_leaves_nothing_to_write():
    unreadable = [*PHOTOS, Counted(6, "6.jpg", unreadable="6.jpg: cut short")]
    assert lay_out(unreadable, SETTINGS, strict=False) == lay_out(PHOTOS, SETTINGS, strict=False)
    assert lay_out(unreadable, SETTINGS, strict=True) == Layout({}, [])
    assert lay_out([*PHOTOS, Counted(6, "6.jpg", error="NaN")], SETTINGS, strict=False) == Layout({}, [])
    assert [p.stops(strict) for p in unreadable[-2:] for strict in (False, True)] == ["", "", "", "6.jpg: cut short"]


def test_photos_without_rows_are_an_error_that_counts_the_readable_ones():
    photos = [Counted(0, "a"), Counted(1, "b"), Counted(2, "c", unreadable="c: cut short")]
    assert lay_out(photos, SETTINGS, strict=False) == Layout({}, [])
    with pytest.raises(ValueError, match="none of the 2 photos has a valid row"):
        plan_counted(photos, SETTINGS)
