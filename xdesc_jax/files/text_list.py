"""Text lists: the one reader of their lines, and names as they stand in one.

In: a text file of any editor with an entry a line: UTF-8 with or without a byte-order mark, or UTF-16 with one; lines
that end as on Unix, Windows or old Macs; words parted by blanks and tabs. Out: its lines with their places.

A line that begins with '#' is a comment, unless it is an entry: photos may be called so, and each list knows what its
entries look like. A name that would be lost in its line (blanks at its ends) stands in double quotes, as in JSON.
"""

from __future__ import annotations

import codecs
import dataclasses
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

BLANKS = " \t"  # other white space may be part of a name
_MARK = "\ufeff"
_BREAKS = re.compile(r"\r\n|\n|\r")
_WORD = re.compile(rf"[^{BLANKS}]+")


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a list.

    Attributes:
        where: 'file:number', for messages.
        raw: the line as it stands, with the blanks at its ends.
    """

    where: str
    raw: str

    @property
    def text(self) -> str:
        """The line without the blanks at its ends."""
        return self.raw.strip(BLANKS)

    @property
    def marked(self) -> bool:
        """Whether it begins as a comment does."""
        return self.text.startswith("#")

    @property
    def spaced(self) -> bool:
        """Whether it begins as a comment does that no name could be taken for: '#' alone, or before a blank."""
        return self.text == "#" or self.text.startswith(("# ", "#\t"))


def read_lines(path: Path, what: str = "list") -> list[Line]:
    """The lines that are not blank, of a file that messages call `what`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no text.
    """
    return [Line(f"{path}:{number}", raw) for number, raw in numbered_lines(path, what)]


def numbered_lines(path: Path, what: str = "list") -> Iterator[tuple[int, str]]:
    """`read_lines`, one at a time: the number of each line in the file, and the line as it stands.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no text.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such {what}")
    with path.open("rb") as file:
        wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    # Read so, every line end of any system is one line feed.
    with path.open(encoding="utf-16" if wide else "utf-8-sig") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                raw = line.removesuffix("\n").removeprefix(_MARK)  # lists that were put together of several have marks
                if raw.strip(BLANKS):
                    yield number, raw
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text, expected a {what} ({error})") from error


def words_of(text: str) -> list[tuple[int, str]]:
    """The words of a line, each behind the place where it begins."""
    return [(found.start(), found.group()) for found in _WORD.finditer(text)]


def written(name: str) -> str:
    """A name as it stands at the head of a line: in quotes where the reader would lose something of it."""
    plain = name and name == name.strip(BLANKS) and not name.startswith(('"', "#", _MARK)) and not _BREAKS.search(name)
    return name if plain else json.dumps(name, ensure_ascii=False)


def take_quoted(text: str) -> tuple[str, str] | None:
    """A name in quotes at the head of a text, and what stands behind it; None where there is none."""
    if not text.startswith('"'):
        return None
    try:
        name, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    rest = text[end:]
    return (name, rest.strip(BLANKS)) if not rest or rest[0] in BLANKS else None


def known_form(raw: str, known: Collection[str]) -> str:
    """A name out of a line: with the blanks at its ends where a photo is called so, and without them elsewhere."""
    return raw if raw in known else raw.strip(BLANKS)
