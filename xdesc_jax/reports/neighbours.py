"""Pages of one run, which link to each other.

In: a page. Out: the same page and those beside it, each with links to the others. Of one run are the pages of a
folder, and `report.html` in its subfolders, in the folder above and in that one's subfolders. Links are relative, and
stand between two marks, so that a page need not be made again when another joins it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from urllib.parse import quote

from xdesc_jax.files.whole import atomic

REPORT = "report.html"
MADE_BY = '<meta name="generator" content="xdesc '
_MARKED = re.compile("<!--pages-->.*?<!--/pages-->", re.DOTALL)
_HEAD_BYTES = 2048
_MOST = 16  # more links than these help nobody


@dataclasses.dataclass(frozen=True)
class Page:
    """A page as another one links to it.

    Attributes:
        title: its own.
        href: from the other one; empty for itself.
    """

    title: str
    href: str


def link(path: Path, render: Callable[[Sequence[Page]], str]) -> None:
    """Writes the links of a page and of those beside it anew; others that cannot be written keep theirs.

    Args:
        path: the page.
        render: the HTML of links, in a page's marks.
    """
    path = Path(os.path.abspath(path))
    beside = around(path)
    mates = [mate for page in beside for mate in sorted(page.parent.glob("*.html")) if title_of(mate) is not None]
    for page in dict.fromkeys([path, *beside, *mates]):
        try:
            found = {other: title_of(other) for other in [page, *around(page)]}
            listed = [Page(title, "" if p == page else _href(p, page)) for p, title in sorted(found.items()) if title]
            with_links = f"<!--pages-->{render(listed)}<!--/pages-->"
            before = page.read_text(encoding="utf-8")
            after = _MARKED.sub(lambda _, links=with_links: links, before, count=1)  # type: ignore[misc]
            if after != before:
                with atomic(page) as temporary:
                    temporary.write_text(after, encoding="utf-8")
        except (PermissionError, FileNotFoundError):  # of another's, or just taken away
            if page == path:
                raise


def around(path: Path) -> list[Path]:
    """The other pages of a page's run, those of its own folder first.

    Folders that hold all sorts of things, such as the home folder, make no run of what lies in them.
    """
    folder = Path(os.path.abspath(path)).parent
    above = folder.parent
    found = [*sorted(folder.glob("*.html")), *sorted(folder.glob(f"*/{REPORT}"))]
    if above not in (Path.home(), Path(tempfile.gettempdir()), Path(above.anchor)):
        found += [above / REPORT, *sorted(above.glob(f"*/{REPORT}"))]
    others = [page for page in dict.fromkeys(found) if page != Path(os.path.abspath(path))]
    return [page for page in others if not page.parent.name.startswith(".") and title_of(page) is not None][:_MOST]


def title_of(path: Path) -> str | None:
    """The title of a page that was made here; None of any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    found = re.search("<title>(.*?)</title>", head, re.DOTALL)
    return unescape(found[1]) if found and MADE_BY in head else None


def _href(target: Path, page: Path) -> str:
    return quote(Path(os.path.relpath(target, page.parent)).as_posix())
