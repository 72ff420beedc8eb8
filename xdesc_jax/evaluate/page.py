"""One self-contained HTML page, for light and dark screens: what reports are made of.

In: headings, tables, pictures and settings. Out: a file without any external resource: style and script
inline, pictures as data URIs, tables that sort by a click.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from xdesc_jax.files.whole import atomic


@dataclasses.dataclass(frozen=True)
class Picture:
    """An encoded picture (PNG or JPEG), a caption whose first part is set in bold, and its description.

    Attributes:
        data: for light pages, and for dark ones where `dark` is None.
        title, caption: texts.
        dark: the same for dark pages.
    """

    data: bytes
    title: str
    caption: str = ""
    dark: bytes | None = None


def write_page(path: Path | str, title: str, body: Sequence[str], head: str = "") -> Path:
    """Writes a page.

    Args:
        path: the .html file.
        title: of the window; headings are the body's.
        body: HTML in order.
        head: further HTML of the head, behind the page's style.
    """
    here = Path(__file__)
    page = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{here.with_suffix('.css').read_text()}</style>{head}</head><body>",
        *body,
        f"<script>{here.with_suffix('.js').read_text()}</script></body></html>",
    ]
    with atomic(path) as temporary:
        temporary.write_text("\n".join(page) + "\n", encoding="utf-8")
    return Path(path)


def table(columns: Sequence[str], rows: Sequence[str], text_columns: int = 2) -> str:
    """A table that sorts by a click; `rows` are their cells, the first `text_columns` hold text."""
    head = "".join(f"<th{' class=text' if i < text_columns else ''}>{escape(c)}</th>" for i, c in enumerate(columns))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table class="list"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def number(text: str, value: float | None = None) -> str:
    """A cell of a number; it sorts by `value` where given, else by the text itself."""
    return f'<td data-value="{text.replace(",", "") if value is None else value}">{escape(text)}</td>'


def figure(picture: Picture) -> str:
    """A picture below its caption."""
    alt = f"{escape(picture.title)} {escape(picture.caption)}"
    shown = f'<img src="{uri(picture.data)}" alt="{alt}">'
    if picture.dark is not None:
        source = f'<source srcset="{uri(picture.dark)}" media="(prefers-color-scheme: dark)">'
        shown = f"<picture>{source}{shown}</picture>"
    caption = f"<figcaption><b>{escape(picture.title)}</b> {escape(picture.caption)}</figcaption>"
    return f"<figure>{caption if picture.title else ''}{shown}</figure>"


def uri(data: bytes) -> str:
    """A PNG or JPEG as a data URI."""
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def definitions(values: Mapping[str, Any]) -> str:
    """Names and values, nested where a value is a mapping."""
    return f"<dl>{''.join(f'<dt>{escape(str(k))}</dt><dd>{_value(v)}</dd>' for k, v in values.items())}</dl>"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return definitions(value) if value else "none"
    if value is None:
        return "none"
    return escape(value if isinstance(value, str) else json.dumps(value, default=str))
