"""The split by photo, the rows that are kept of each, and their deal to shards."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.data.plan import RecordSettings, plan_rows, split_photos
from xdesc_jax.data.schema import named


def test_the_split_is_a_hash_of_seed_and_name():
    names = [f"{i}.jpg" for i in range(400)]
    split = split_photos(names, 0.25, seed=1)
    share = sum(s == "validation" for s in split.values()) / len(names)
    assert 0.15 < share < 0.35
    fewer = split_photos(names[:200], 0.25, seed=1)
    assert all(split[name] == fewer[name] for name in fewer)
    assert split_photos(names, 0.25, seed=2) != split


def test_both_splits_get_a_photo_where_there_are_two():
    for seed in range(20):
        assert set(split_photos(["a", "b"], 0.01, seed).values()) == {"train", "validation"}
        assert set(split_photos(["a", "b"], 0.99, seed).values()) == {"train", "validation"}
        assert set(split_photos(["a"], 0.99, seed).values()) == {"train"}
        assert set(split_photos(["a", "b", "c"], 0.0, seed).values()) == {"train"}


def test_a_name_in_another_unicode_form_is_in_the_same_split():
    composed, decomposed = "\u00e9.jpg", "e\u0301.jpg"
    for seed in range(10):
        names = ["x", "y", "z"]
        first = split_photos([*names, composed], 0.5, seed)[composed]
        assert split_photos([*names, decomposed], 0.5, seed)[decomposed] == first


def test_all_sets_of_keypoints_of_a_photo_are_in_one_split():
    photos = [f"place/{i}.jpg" for i in range(60)]
    split = split_photos([named(photo, label) for photo in photos for label in ("a", "b")], 0.4, seed=3)
    assert all(split[named(photo, "a")] == split[named(photo, "b")] for photo in photos)
    assert {named(photo, "a"): s for photo, s in split_photos(photos, 0.4, seed=3).items()}.items() <= split.items()


def test_photos_of_one_folder_are_in_one_split():
    names = [f"place {i % 40}/{i // 40 % 3}/{i}.jpg" for i in range(600)]
    split = split_photos(names, 0.3, seed=1, by="folder")
    by_folder = {
        folder: {split[n] for n in names if n.rpartition("/")[0] == folder}
        for folder in {n.rpartition("/")[0] for n in names}
    }
    assert len(by_folder) == 120 and all(len(found) == 1 for found in by_folder.values())
    assert 0.2 < sum(found == {"validation"} for found in by_folder.values()) / 120 < 0.4
    # Nested folders are folders of their own, and a folder's split does not depend on which photos are in it.
    assert len({tuple(by_folder[f"place {i}/{k}"]) for i in range(40) for k in range(3)}) == 2
    assert any(len({tuple(by_folder[f"place {i}/{k}"]) for k in range(3)}) == 2 for i in range(40))
    assert all(split_photos(names[::7], 0.3, 1, "folder")[name] == split[name] for name in names[::7])
    assert split_photos(names, 0.3, 1) != split


def test_both_splits_get_a_folder_where_there_are_two():
    names = ["a/1", "a/2", "b/1", "b/2", "b/3"]
    for seed in range(20):
        for share in (0.01, 0.99):
            assert set(split_photos(names, share, seed, "folder").values()) == {"train", "validation"}
        assert set(split_photos(names[:2], 0.99, seed, "folder").values()) == {"train"}


def test_a_photo_in_no_folder_cannot_be_split_by_it():
    with pytest.raises(ValueError, match=r"photo 'b.jpg' lies in no folder, expected FOLDER/NAME"):
        split_photos(["a/1.jpg", "b.jpg"], 0.1, 0, "folder")


def test_settings_as_they_were_before_are_told_apart_as_before():
    known = {"format": "npy", "validation_share": 0.1, "seed": 0, "max_rows_per_photo": None, "rows_per_shard": 16384}
    assert RecordSettings("npy").config() == known
    assert RecordSettings("npy", split_by="folder").config() == known | {"split_by": "folder"}
    assert RecordSettings("npy", deal_by="photo").config() == known | {"deal_by": "photo"}


def kept(seed, count=40, most=6, names=8):
    """Row numbers kept of each photo."""
    settings = RecordSettings(seed=seed, max_rows_per_photo=most)
    return [settings.keep(count, f"{i}.jpg").tolist() for i in range(names)]


def test_as_many_rows_are_drawn_as_may_be_kept_each_once_and_ascending():
    for rows in kept(seed=3):
        assert len(rows) == 6 and rows == sorted(set(rows)) and set(rows) <= set(range(40))


def test_every_photo_has_a_draw_of_its_own():
    assert len(set(map(tuple, kept(seed=3)))) == 8


def test_the_draw_is_a_function_of_the_seed():
    assert kept(seed=3) == kept(seed=3)
    assert all(a != b for a, b in zip(kept(seed=3), kept(seed=4), strict=True))


def test_draws_take_no_row_more_often_than_another():
    """Of 10 rows, 3 of 2000 photos: 600 times each, with a deviation of 20."""
    counts = np.bincount(np.concatenate(kept(seed=5, count=10, most=3, names=2000)), minlength=10)
    assert counts.sum() == 6000 and np.abs(counts - 600).max() < 100


@pytest.mark.parametrize(("count", "most"), [(6, 6), (5, 6), (0, 6), (7, None)])
def test_a_photo_with_no_more_rows_than_may_be_kept_keeps_all(count, most):
    assert RecordSettings(seed=3, max_rows_per_photo=most).keep(count, "0.jpg").tolist() == list(range(count))


def test_a_plan_deals_the_rows_of_each_split_to_shards_of_its_own():
    counts = {f"{i}.jpg": i for i in range(30)}  # the first photo has no row, and so no split
    plans = [plan_rows(sorted(counts), counts, RecordSettings("npy", 0.3, seed, None, 16)) for seed in (3, 4)]
    for plan, seed in zip(plans, (3, 4), strict=True):
        assert plan.split_of == split_photos([name for name in sorted(counts) if counts[name]], 0.3, seed)
        for split, deal in plan.deals.items():
            assert deal.rows == sum(counts[name] for name, of in plan.split_of.items() if of == split)
            assert deal.rows_per_shard == 16
    seeds = [deal.seed for plan in plans for deal in plan.deals.values()]
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("counts", [{}, {"a.jpg": 0}])
def test_photos_without_a_row_have_no_plan(counts):
    with pytest.raises(ValueError, match=f"none of the {len(counts)} photos has a valid row"):
        plan_rows(list(counts), counts, RecordSettings())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation_share": 1.0}, "validation share is 1.0, expected 0 to below 1"),
        ({"validation_share": -0.1}, "validation share is -0.1"),
        ({"seed": -1}, "seed is -1, expected 0 or more"),
        ({"max_rows_per_photo": 0}, "max_rows_per_photo is 0, expected at least 1"),
        ({"rows_per_shard": 0}, "rows_per_shard is 0, expected at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RecordSettings(**settings)
    RecordSettings(validation_share=0.0, seed=0, max_rows_per_photo=1, rows_per_shard=1)
