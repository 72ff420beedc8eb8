"""The code blocks of README, CONTRIBUTING and docs, and what the comments before them say."""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex

from pymdownx.slugs import slugify

from tests.support.root import ROOT

PAGES = {
    page.name: page for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
}
LANGUAGES = {"sh", "python", "yaml"}
_BLOCK = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (needs|after|file): (.+?) -->")
_PLACEHOLDER = re.compile(r"(?:^|[/ ])(?:[A-Z]{3,}|[A-Z])(?:\.\w+)?(?:[/ ]|$)")
_slug = slugify(case="lower")


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block, or a command in a table's row.

    Attributes:
        page: file name.
        section: anchor of the heading above it.
        line: where it begins.
        language: 'sh', 'python', ...
        text: what it holds.
        needs: what it lacks to be run; '' where nothing.
        after: sections or pages, as 'page.md#anchor', whose blocks come first.
        file: where it is written to, not run.
    """

    page: str
    section: str
    line: int
    language: str
    text: str
    needs: str = ""
    after: tuple[str, ...] = ()
    file: str = ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def lines(self) -> list[str]:
        """Commands of a block of sh, without comments, a line each."""
        text = re.sub(r"(^|\s)#.*", r"\1", self.text.replace("\\\n", " "))
        return [part.strip() for line in text.splitlines() for part in line.split(" && ") if part.strip()]


@functools.cache
def blocks(page: str) -> tuple[Block, ...]:
    """All blocks of a page, and the whole commands in its tables that name no placeholder, in their order."""
    text = PAGES[page].read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        marks: dict[str, list[str]] = {"needs": [], "after": [], "file": []}
        for key, value in _MARK.findall(match[1]):
            marks[key].append(value)
        needs, file = " ".join(marks["needs"]), " ".join(marks["file"])
        place = text.count("\n", 0, match.start(2)) + 1
        section = _section(text[: match.start()])
        found.append(Block(page, section, place, match[2], match[3], needs, tuple(marks["after"]), file))
    for match in re.finditer(r"^\|.*\|$", _BLOCK.sub(_blank, text), re.MULTILINE):
        for command in re.findall(r"`(xdesc [^`]+)`", match[0]):
            if len(command.split()) > 4 and not _PLACEHOLDER.search(command):
                place = text.count("\n", 0, match.start()) + 1
                found.append(Block(page, _section(text[: match.start()]), place, "sh", f"{command}\n"))
    return tuple(sorted(found, key=lambda block: block.line))


def commands() -> list[tuple[str, list[str]]]:
    """(where, words) of every `xdesc` command line in the blocks of all pages, marked or not."""
    found = []
    for page in PAGES:
        for block in blocks(page):
            if block.language == "sh":
                text = re.sub(r"\$\(.*\)|\$\w+", "1", "\n".join(block.lines))
                for line in re.findall(r"\bxdesc( [^\"&;\n]*)", text):
                    found.append((f"{block.page}: {' '.join(line.split())}", shlex.split(line)))
    return found


def mentions() -> list[tuple[str, list[str]]]:
    """(where, words) of every `xdesc` command within a line of text, whole or not."""
    found = []
    for page, path in PAGES.items():
        text = _BLOCK.sub(_blank, path.read_text(encoding="utf-8"))
        for match in re.finditer(r"`xdesc ([^`]+)`", text):
            found.append((f"{page}:{text.count(chr(10), 0, match.start()) + 1}", match[1].split()))
    return found


def chosen(target: str) -> list[Block]:
    """The blocks of 'page.md' or 'page.md#anchor'."""
    page, _, anchor = target.partition("#")
    found = [block for block in blocks(page) if not anchor or block.section == anchor]
    if not found:
        raise ValueError(f"no block stands in {target}")
    return found


def _section(before: str) -> str:
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", before), re.MULTILINE)
    return _slug(headings[-1], "-") if headings else ""


def _blank(match: re.Match[str]) -> str:
    return "".join(c if c == "\n" else " " for c in match[0])
