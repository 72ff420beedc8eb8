"""Pages of the site that the repository holds elsewhere: parts of README, CONTRIBUTING, the API, linked source files.

In: README.md, CONTRIBUTING.md, CHANGELOG.md, the public names in `xdesc_jax/__init__.pyi`, and what pages link to. Out:
Markdown pages that are never written to `docs/`, so nothing is said twice. Links that work in the repository, such as
`../README.md#install` or `../xdesc_jax/cli.py`, lead to those pages. A hook of mkdocs.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[2]
# Page -> the sections of README that it holds; '' is what stands before the first.
README = {
    "index.md": ("", "Try it", "From Python", "Cite"),
    "install.md": ("Install",),
    "i-have-x-i-want-y.md": ("I have X and Y, I want Z", "Your file comes from"),
    "what-to-expect.md": ("What to expect",),
}
# Sections of README that are no part of the site, and where links to them lead.
FOUND_ELSEWHERE = {"Find the way": "architecture.md", "Documentation": "index.md"}
WHOLE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
API = "api.md"
API_TEXT = """# From Python

What `import xdesc_jax` offers; names are imported when they are used. All else may change between versions.

"""
LANGUAGES = {".py": "python", ".sh": "sh", ".yml": "yaml", ".cff": "yaml", ".toml": "toml", ".json": "json"}
_LINK = re.compile(r"(?<!!)(\[[^\]\n]*\]\(|!\[[^\]\n]*\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"(^```.*?^```[ \t]*$)", re.MULTILINE | re.DOTALL)
_slug = slugify(case="lower")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, and one for every source file that a page links to."""
    texts = readme_pages() | {page: (ROOT / name).read_text("utf-8") for name, page in WHOLE.items()}
    texts[API] = api_page()
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    linked: set[str] = set()
    for file in files.documentation_pages():
        text = texts.get(file.src_uri) or file.content_string
        relink(text, file.src_uri, linked)
    for path in sorted(linked):
        files.append(File.generated(config, source_uri(path), content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Turns links into the repository into links to pages."""
    return relink(markdown, page.file.src_uri, set())


def readme_sections() -> dict[str, str]:
    """Heading -> text, '' for what stands before the first; fenced blocks may hold lines that look like headings."""
    sections, heading = {"": ""}, ""
    for part in _FENCE.split((ROOT / "README.md").read_text("utf-8")):
        for line in [part] if part.startswith("```") else part.splitlines(keepends=True):
            if line.startswith("## "):
                heading = line[3:].strip()
                sections[heading] = ""
            else:
                sections[heading] += line
    return sections


def readme_pages() -> dict[str, str]:
    """Page -> text.

    Raises:
        ValueError: README has a section that no page holds.
    """
    sections = readme_sections()
    placed = {heading for headings in README.values() for heading in headings} | FOUND_ELSEWHERE.keys()
    if placed != sections.keys():
        odd = sorted(placed ^ sections.keys())
        raise ValueError(f"README.md: sections {odd} are named in docs/site/pages.py or in README.md alone")
    pages = {}
    for page, headings in README.items():
        parts = [f"## {heading}\n{sections[heading]}" if heading else sections[heading] for heading in headings]
        text = "\n".join(parts)
        pages[page] = text if text.startswith("# ") else text.removeprefix("#")
    return pages


def api_page() -> str:
    """The public names, in the order of the stub."""
    stub = ast.parse((ROOT / "xdesc_jax" / "__init__.pyi").read_text("utf-8"))
    imports = [(node.module or "", node.names) for node in stub.body if isinstance(node, ast.ImportFrom)]
    listed = [(module, alias.name) for module, names in imports for alias in names]
    blocks: list[str] = []
    before = ""
    for module, name in sorted(listed, key=lambda item: (item[0].split(".")[0], item)):
        if (folder := module.split(".")[0]) != before:
            blocks.append(f"## {folder}\n\n")
            before = folder
        blocks.append(f"::: xdesc_jax.{module}.{name}\n\n")
    return API_TEXT + "".join(blocks)


def source_uri(path: str) -> str:
    """The page of a file of the repository."""
    return f"source/{path}.md"


def source_page(path: str) -> str:
    """A file of the repository as a page."""
    content = (ROOT / path).read_text("utf-8")
    fence = "`" * 4
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n{fence}{language}\n{content}{fence}\n"


def relink(markdown: str, page: str, linked: set[str]) -> str:
    """Markdown of a page whose links into the repository lead to pages.

    Args:
        markdown: of the page.
        page: where it lies in the site.
        linked: takes the files of the repository that have to become pages.
    """
    # Where the text lies in the repository, and so what its links are relative to.
    folder = "" if page in README or page in WHOLE.values() else posixpath.dirname(f"docs/{page}")

    def target(found: re.Match[str]) -> str:
        place, _, anchor = found[2].partition("#")
        if "://" in place or (not place and folder) or found[2].startswith(("mailto:", "/")):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, place)) if place else "README.md"
        if path == "README.md":
            uri, anchor = readme_place(anchor)
        elif path in WHOLE:
            uri = WHOLE[path]
        elif path.startswith("docs/") and not path.endswith(".py"):
            uri = re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
        elif (ROOT / path).is_file():
            uri = source_uri(path)
            linked.add(path)
        else:
            return found[0]
        relative = posixpath.relpath(uri, posixpath.dirname(page) or ".")
        return f"{found[1]}{relative}{'#' + anchor if anchor else ''}{found[3]}"

    if page.startswith("source/"):
        return markdown
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(target, part) for part in parts)


def readme_place(anchor: str) -> tuple[str, str]:
    """(page, anchor) of a heading of README."""
    for heading, page in FOUND_ELSEWHERE.items():
        if _slug(heading, "-") == anchor:
            return page, ""
    for page, headings in README.items():
        for heading in headings:
            if heading and _slug(heading, "-") == anchor:
                return page, anchor
    return "index.md", ""
