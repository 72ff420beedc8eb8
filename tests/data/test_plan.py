"""The split by photo."""

from __future__ import annotations

from xdesc_jax.data.plan import split_photos


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
