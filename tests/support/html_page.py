"""A report's page as a reader meets it: texts, tables, links, and whether its tags close."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path


class HtmlPage(html.parser.HTMLParser):
    """A parsed page.

    Attributes:
        tags: every tag with its attributes, in order.
        tables: of each table its rows, of each row its cells (tag, attributes, text).
        by_class: class -> texts of the elements that have it.
        headings: texts of h1 to h3.
    """

    VOID = frozenset({"meta", "img", "source", "br", "input", "link", "wbr"})

    def __init__(self, text: str):
        super().__init__()
        self.source = text
        self.tags: list[tuple[str, dict]] = []
        self.tables: list[list[list[list]]] = []
        self.by_class: dict[str, list[str]] = {}
        self.headings: list[str] = []
        self.ids: set[str] = set()
        self._texts: list[str] = []
        self._open: list[tuple[str, tuple[str, ...], int]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    @classmethod
    def read(cls, path: Path) -> HtmlPage:
        return cls(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        if "id" in found:
            assert found["id"] not in self.ids
            self.ids.add(found["id"])
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append([tag, found, ""])
        if tag not in self.VOID:
            self._open.append((tag, tuple((found.get("class") or "").split()), len(self._texts)))

    def handle_endtag(self, tag):
        opened, classes, start = self._open.pop()
        assert opened == tag
        text = " ".join(" ".join(self._texts[start:]).split())
        for name in classes:
            self.by_class.setdefault(name, []).append(text)
        if tag in ("h1", "h2", "h3"):
            self.headings.append(text)
        if tag in ("td", "th"):
            self.tables[-1][-1][-1][2] = text

    def handle_data(self, data):
        if not {tag for tag, _, _ in self._open} & {"script", "style"}:
            self._texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._texts).split())

    @property
    def links(self) -> list[str]:
        return [found["href"] for tag, found in self.tags if tag == "a"]

    @property
    def rows(self) -> list[list[str]]:
        """The texts of all rows of all tables."""
        return [[text for _, _, text in row] for table in self.tables for row in table]

    def check(self) -> None:
        """What holds for every page: nothing from outside, heads that name rows and columns, light and dark."""
        for tag, found in self.tags:
            for name in ("src", "srcset"):
                assert found.get(name, "data:image/").startswith("data:image/"), (tag, found)
            assert tag != "link" and ("href" not in found or "://" not in found["href"])
            assert tag != "img" or found["alt"]
        own = re.sub(r"<script>/\*\*\s+\* plotly.*?</script>", "", self.source, flags=re.DOTALL)
        assert not re.search(r"https?://|@import|url\(", own)
        assert "color-scheme: light dark" in own
        for table in self.tables:
            head, *body = table
            assert all(tag == "th" and found["scope"] == "col" for tag, found, _ in head)
            assert all(row[0][:1] == ["th"] and row[0][1]["scope"] == "row" for row in body)
            assert all(tag == "td" for row in body for tag, _, _ in row[1:])
        assert len(self.by_class["answer"]) == 1 and self.by_class["answer"][0]
