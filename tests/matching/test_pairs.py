"""Pair lists as text."""

import codecs

import pytest

from xdesc_jax.matching.pairs import pair_line, read_pairs


def read(tmp_path, text, names, encoding="utf-8"):
    (tmp_path / "pairs.txt").write_bytes(text.encode(encoding))
    return read_pairs(tmp_path / "pairs.txt", names, names)


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
