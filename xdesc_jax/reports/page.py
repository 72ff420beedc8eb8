"""One self-contained HTML page, for light and dark screens, wide and narrow ones: what all reports are.

In: an answer, sections, settings (see `parts`). Out: a file without any external resource: style and script inline,
pictures as data URIs. The answer comes first, then sections, then what the figures were made with. Pages of one run
link to each other (see `neighbours`). The one module that imports jinja2.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import __version__
from xdesc_jax.files.whole import atomic, json_text
from xdesc_jax.reports import neighbours
from xdesc_jax.reports.parts import NOTHING, Answer, Section
from xdesc_jax.reports.settings import Settings

_HERE = Path(__file__).parent


def write_page(
    path: Path | str,
    title: str,
    answer: Answer,
    sections: Sequence[Section],
    *,
    text: str = "",
    settings: Settings | None = None,
    provenance: Mapping[str, Any] | None = None,
    scripts: Sequence[str] = (),
    linked: bool = True,
) -> Path:
    """Writes a page.

    Args:
        path: the .html file.
        title: of the window and the page.
        answer: what the page says, at its top.
        sections: in order.
        text: a paragraph under the answer.
        settings: what the figures were made with.
        provenance: what they were made from, by names; nested where a value is a mapping.
        scripts: JavaScript that comes before the page's own, such as plotly's.
        linked: whether to link it with the pages beside it; else `neighbours.link` does that later.

    Returns:
        The path.
    """
    path = Path(path)
    html = _templates().get_template("page.html.j2").render(
        title=title, answer=answer, sections=sections, text=text, settings=settings, provenance=provenance or {},
        scripts=scripts, version=__version__, style=(_HERE / "page.css").read_text(encoding="utf-8"),
        script=(_HERE / "page.js").read_text(encoding="utf-8"), pages=(),
    )  # fmt: skip
    with atomic(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    if linked:
        link(path)
    return path


def link(path: Path | str) -> None:
    """Links a page and the pages of its run with each other."""
    neighbours.link(Path(path), lambda pages: _templates().get_template("pages.html.j2").render(pages=pages))


@functools.cache
def _templates() -> Any:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.policies["json.dumps_function"] = lambda value, **_: json_text(value, "figures of the page")
    made.globals["nothing"] = NOTHING
    made.filters["shown"] = _shown
    return made


def _shown(value: Any) -> str:
    """A setting as a text."""
    if value is None or value == () or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value))
    return str(value) if isinstance(value, (str, Path, int, float)) else json.dumps(value, default=str)
