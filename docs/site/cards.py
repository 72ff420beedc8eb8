"""Pages of the models that ship, made of their cards.

In: `xdesc_jax/pretrained/*.json`. Out: a page a model and one that lists them, none of which is written to `docs/`. A
hook of mkdocs; the entry `models/` of the navigation becomes the pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from xdesc_jax import pretrained  # noqa: E402

ENTRY, INDEX = "models/", "models/index.md"
TEXT = """# Models that ship

They come with the package: `--model NAME`, `Translator.from_pretrained("NAME")`, and learned descriptors by their
names. `xdesc models` prints the same. AP: of ranking matches by their distance ratio, means over what a model was
measured on ([how](../results-matching.md)).

"""
# Key of a card -> what it is called on a page.
TOLD = {
    "kind": "Kind", "descriptors": "Descriptors", "keypoints": "Keypoints", "space_id": "Joint space", "rows": "Rows",
    "pairs": "Pairs", "data": "Trained on", "limits": "Works less well", "steps": "Steps",
    "hardware": "Hardware", "date": "Date", "calibration": "Ratios calibrated on", "command": "Made by",
    "configs": "Configurations", "config_hash": "Hash",
}  # fmt: skip


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages in the place of `models/`."""
    pages = [INDEX, *(f"models/{name}.md" for name in pretrained.names())]

    def filled(entries: Sequence[Any]) -> list[Any]:
        return [
            {title: pages if value == ENTRY else filled(value) if isinstance(value, list) else value}
            for entry in entries
            for title, value in entry.items()
        ]

    config.nav = filled(config.nav)  # type: ignore[arg-type]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    cards = {name: pretrained.card(name) for name in pretrained.names()}
    files.append(File.generated(config, INDEX, content=index_page(cards)))
    for name, card in cards.items():
        files.append(File.generated(config, f"models/{name}.md", content=card_page(card)))
    return files


def index_page(cards: Mapping[str, Mapping[str, Any]]) -> str:
    """The list of all models."""
    rows = []
    for name, card in cards.items():
        size = (pretrained.FOLDER / f"{name}.safetensors").stat().st_size / 1e6
        figures: Mapping[str, Any] = next(iter(card["figures"].values()), {})
        means = [mean(figures.get(kind, {})) for kind in ("native", "translation", "joint")]
        named = ", ".join(f"`{d}`" for d in card["descriptors"])
        rows.append([f"[`{name}`]({name}.md)", card["kind"], named, card["keypoints"], f"{size:.1f}", *means])
    heads = ["name", "kind", "descriptors", "keypoints", "MB", "AP native", "translated", "joint space"]
    return TEXT + table(heads, rows)


def card_page(card: Mapping[str, Any]) -> str:
    """One model: what it is, and its figures."""
    facts = [[told, shown(key, card[key])] for key, told in TOLD.items() if key in card]
    parts = [f"# {card['name']}", table(["", ""], facts), "## Figures"]
    for data, figures in card["figures"].items():
        parts.append(f"### {data.replace('_', ' ')}")
        known = [name for name in card["descriptors"] if name in figures.get("native", {})]
        if not figures.get("translation"):
            parts.append(table(["descriptor", "AP"], [[f"`{n}`", number(v)] for n, v in figures["native"].items()]))
            continue
        parts.append(
            "AP of a query (row) translated to the database's descriptor (column), in brackets both in the joint "
            "space; native on the diagonal."
        )
        parts.append(matrix(known or card["descriptors"], figures))
    parts.append("## The whole card")
    parts.append(f"```json\n{json.dumps(card, indent=2, ensure_ascii=False)}\n```")
    return "\n\n".join(parts) + "\n"


def shown(key: str, value: Any) -> str:
    """A value of a card in a cell."""
    if isinstance(value, bool) or not isinstance(value, int):
        if isinstance(value, Mapping):
            return ", ".join(f"{k}: `{v}`" for k, v in value.items())
        if isinstance(value, list):
            return ", ".join(f"`{v}`" for v in value)
        code = key in ("space_id", "command", "config_hash")
        return f"`{value}`" if code else str(value).replace("|", "\\|")
    return f"{value:,}"


def matrix(names: Sequence[str], figures: Mapping[str, Any]) -> str:
    """AP from row to column."""
    rows = []
    for source in names:
        cells = []
        for target in names:
            if source == target:
                own = figures.get("native", {}).get(source)
                cells.append(f"**{number(own)}**" if own is not None else "-")
            else:
                cells.append(number(figures["translation"].get(f"{source}->{target}")))
            joint = figures.get("joint", {}).get(f"{source}|{target}")
            cells[-1] += f" ({number(joint)})" if joint is not None else ""
        rows.append([f"`{source}`", *cells])
    return table(["", *(f"`{name}`" for name in names)], rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def number(value: float | None) -> str:
    """An AP; '-' where there is none."""
    return "-" if value is None else f"{value:.3f}".removeprefix("0")


def mean(values: Mapping[str, float | None]) -> str:
    found = [value for value in values.values() if value is not None]
    return number(sum(found) / len(found)) if found else "-"
