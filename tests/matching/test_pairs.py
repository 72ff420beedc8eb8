"""Pair lists as text, and pairs as numbers."""

import codecs
import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from xdesc_jax.files.whole import config_hash
from xdesc_jax.matching.pairs import Pairs, all_pairs, distinct, in_blocks, in_both_orders, pair_line, read_pairs

NAMES0, NAMES1 = ["a.jpg", "b 2.jpg", "c", "é"], ["B", "a.jpg", "c", "d", "é"]


def read(tmp_path, text, names, encoding="utf-8"):
    (tmp_path / "pairs.txt").write_bytes(text.encode(encoding))
    return list(read_pairs(tmp_path / "pairs.txt", names, names))


def test_a_list_of_a_windows_editor_names_the_same_photos(tmp_path):
    names = ["a.png", "b c.png"]
    text = "# pairs\r\n#two words\r\na.png\tb c.png\r\n"
    assert read(tmp_path, text, names, "utf-8-sig") == [("a.png", "b c.png")]
    assert read(tmp_path, codecs.BOM_UTF16_LE.decode("utf-16-le") + text, names, "utf-16-le") == [("a.png", "b c.png")]


@pytest.mark.parametrize("separator", [" ", "\t", "  ", " \t "])
def test_a_photo_whose_name_begins_with_a_hash_is_no_comment(tmp_path, separator):
    names = ["#c.png", "a.png", "b.png"]
    lines = [("#c.png", "a.png"), ("a.png", "#c.png"), ("#a.png", "b.png"), ("#", "b.png")]
    text = "".join(f"{separator.join(pair)}\n" for pair in lines)
    assert read(tmp_path, text, names) == [("#c.png", "a.png"), ("a.png", "#c.png")]


def test_names_with_blanks_at_their_ends_are_read_back(tmp_path):
    names = [" a", "b ", "# c", '"d"']
    pairs = [(a, b) for a in names for b in names if a != b]
    assert read(tmp_path, "".join(pair_line(a, b) for a, b in pairs), names) == pairs


def test_blanks_about_a_tab_are_no_part_of_a_name(tmp_path):
    assert read(tmp_path, " a.png \t b.png \n", ["a.png", "b.png"]) == [("a.png", "b.png")]


def test_one_known_photo_tells_where_a_name_with_blanks_ends(tmp_path):
    assert read(tmp_path, "q.png far away 1.png\nfar away 2.png q.png\n", ["q.png"]) == [
        ("q.png", "far away 1.png"),
        ("far away 2.png", "q.png"),
    ]
    with pytest.raises(ValueError, match=r"pairs\.txt:1: expected two photo names"):
        read(tmp_path, "x y z\n", ["q.png"])


def test_a_slip_of_a_rule_is_answered_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for slip, rule in (("exhuastive", "exhaustive"), ("sequental:10", "sequential:10"), ("retreival", "retrieval")):
        with pytest.raises(FileNotFoundError, match=f"no such pair list; did you mean {rule}\\? .*'retrieval:20'"):
            read_pairs(Path(slip), [], [])
    slips = {"sequential": "sequential", "sequential:x": "sequential", "sequential:-2": "sequential", "gps:": "gps"}
    for slip, rule in (slips | {"sequential:5+gps": "gps", "retrieval:5+sequential": "sequential"}).items():
        with pytest.raises(FileNotFoundError, match=f"pair list; '{rule}' needs a number of photos, as {rule}:10 "):
            read_pairs(Path(slip), [], [])
    with pytest.raises(FileNotFoundError, match=r"pair list; did you mean exhaustive\?"):
        read_pairs(Path("exhaustive:5"), [], [])
    with pytest.raises(FileNotFoundError, match=r"lists/mine.txt: no such pair list \(or 'exhaustive'"):
        read_pairs(Path("lists/mine.txt"), [], [])


def test_photos_that_nobody_knows_stand_behind_those_that_are_known(tmp_path):
    (tmp_path / "pairs.txt").write_text("a x\ny b\nb\ty\n")
    pairs = read_pairs(tmp_path / "pairs.txt", ["a", "b"], ["b", "c"])
    assert pairs.names0 == ["a", "b", "y"] and pairs.names1 == ["b", "c", "x", "y"]
    assert list(pairs) == [("a", "x"), ("y", "b"), ("b", "y")]


def drawn(seed, names0, names1, count=40):
    """Pairs with repeats in both orders and of photos with themselves."""
    rng = np.random.default_rng(seed)
    ids = (rng.integers(len(names), size=count).astype(np.int32) for names in (names0, names1))
    return Pairs(names0, names1, *ids)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ordered", [False, True])
def test_distinct_pairs_are_those_that_a_dictionary_keeps(seed, ordered):
    pairs = drawn(seed, NAMES0, NAMES1 if ordered else NAMES0)
    kept = {}
    for a, b in pairs:
        if a != b:
            kept.setdefault(frozenset((a, b)), (a, b) if ordered else tuple(sorted((a, b))))
    found, own = distinct(pairs, ordered)
    assert list(found) == list(kept.values())
    assert own == sum(a == b for a, b in pairs) > 0


def test_pairs_in_both_orders_are_those_whose_reverse_is_listed():
    pairs = drawn(1, NAMES0, NAMES1)
    listed = set(pairs)
    expected = sorted((a, b) for a, b in listed if a < b and (b, a) in listed)
    assert in_both_orders(pairs) == expected and len(expected) > 1


@pytest.mark.parametrize("group", [1, 2, 3, 9])
def test_blocks_are_two_groups_of_photos_after_one_another(group):
    pairs = all_pairs(NAMES0, NAMES1)
    place0, place1 = ({name: i for i, name in enumerate(names)} for names in (NAMES0, NAMES1))

    def key(pair):
        at = place0[pair[0]], place1[pair[1]]
        return at[0] // group, at[1] // group, *at

    shuffled = pairs.take(np.random.default_rng(0).permutation(len(pairs)))
    assert list(in_blocks(shuffled, group)) == sorted(pairs, key=key)


def test_all_pairs_are_those_of_itertools():
    for count in range(5):
        assert list(all_pairs(NAMES1[:count])) == list(itertools.combinations(NAMES1[:count], 2))
    assert list(all_pairs(NAMES0, NAMES1)) == list(itertools.product(NAMES0, NAMES1))


def test_the_hash_is_that_of_the_sorted_list(monkeypatch):
    monkeypatch.setattr("xdesc_jax.matching.pairs._CHUNK", 7)
    for pairs in (drawn(5, NAMES0, NAMES1), drawn(6, NAMES0, NAMES0, 7), drawn(0, NAMES0, NAMES1, 0)):
        assert pairs.hash() == config_hash(sorted(pairs))


def test_a_pair_takes_eight_bytes(tmp_path):
    """Beside the list in memory at its growth, the names and a buffer of text."""
    names = [f"{i:05}.jpg" for i in range(300)]
    path = tmp_path / "pairs.txt"
    with path.open("w") as file:
        file.writelines(pair_line(a, b) for a, b in itertools.combinations(names, 2))
    tracemalloc.start()
    try:
        pairs = read_pairs(path, names, names)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(pairs) == 44850 and list(pairs) == list(itertools.combinations(names, 2))
    assert held < 10 * len(pairs) + 100_000 and peak < 20 * len(pairs) + 300_000
