"""Lines of text lists from any editor, and names that would be lost in one."""

import codecs

import pytest

from xdesc_jax.files.text_list import read_lines, take_quoted, written

LINES = ["a.png b.png", "", "# made by hand", "é c.png\td.png"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
)
def test_lines_of_every_editor_are_the_same(tmp_path, end, mark, encoding):
    path = tmp_path / "list.txt"
    path.write_bytes(mark + end.join(LINES).encode(encoding))
    found = [(line.where, line.text, line.marked) for line in read_lines(path)]
    assert found == [
        (f"{path}:1", "a.png b.png", False), (f"{path}:3", "# made by hand", True), (f"{path}:4", LINES[3], False),
    ]  # fmt: skip


def test_marks_between_lists_put_together_are_no_part_of_a_name(tmp_path):
    (tmp_path / "list.txt").write_bytes(2 * (codecs.BOM_UTF8 + b"a.png\r\n"))
    assert [line.text for line in read_lines(tmp_path / "list.txt")] == ["a.png", "a.png"]


def test_white_space_other_than_blanks_is_part_of_a_line(tmp_path):
    (tmp_path / "list.txt").write_text("\u00a0a\x0bb\u2028c\x85\n", encoding="utf-8")
    assert [line.text for line in read_lines(tmp_path / "list.txt")] == ["\u00a0a\x0bb\u2028c\x85"]


@pytest.mark.parametrize("name", [" a", "a ", "\ta", '"a"', '"a" b', "#a", "# a", "a\nb", "", "\ufeffa"])
def test_names_that_a_line_would_lose_are_quoted_and_read_back(name):
    assert written(name) != name
    assert take_quoted(f"{written(name)} 1 2") == (name, "1 2")
    assert take_quoted(written(name)) == (name, "")


@pytest.mark.parametrize("name", ["a", "a b", 'a"b"', "a#", "sub dir/\u00e9.jpg", "\u00a0a"])
def test_other_names_stand_as_they_are(name):
    assert written(name) == name and take_quoted(f"{name} 1") is None
