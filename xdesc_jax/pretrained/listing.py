"""The stage `xdesc models`: what ships with the package, and how good it is.

In: the cards of the shipped files. Out: tables, or JSON. Runs on the base install.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdesc_jax import console, pretrained
from xdesc_jax.files.tensors import dtype_of, read_header
from xdesc_jax.files.whole import parse_json

KERNEL = "/kernel"  # how the names of a translator's weights end
NONE = "-"  # where a card holds no such figure


def models(*, json: bool = False) -> list[dict[str, Any]]:
    """Lists the translators and weights that ship with the package, with their figures.

    Args:
        json: print the cards, with path and size of each file, as JSON.

    Returns:
        The cards, with `file` and `bytes`.
    """
    cards = []
    for name in pretrained.names():
        file = pretrained.path(name)
        cards.append({**pretrained.card(name), "file": str(file), "bytes": file.stat().st_size})
    if json:
        console.out.print(json_text.dumps(cards, indent=2), markup=False)
    elif not cards:
        console.out.print("No models ship with this installation.", markup=False)
    else:
        _print(cards)
    return cards


def _print(cards: list[dict[str, Any]]) -> None:
    columns = ("name", "kind", "keypoints", "MB", "native", "translated", "joint")
    console.table("Shipped models; mean AP of their first data set", columns, [_row(card) for card in cards])
    texts = [(card["name"], f"{', '.join(card['descriptors'])}; {card['data']}, {card['date']}") for card in cards]
    console.figures("Descriptors, training data and date", texts)
    limits = [(card["name"], card["limits"]) for card in cards if "limits" in card]
    if limits:
        console.figures("What works less well", limits)
    # Embeddings match within one space, whichever of its models or of their smaller copies made them.
    spaces = [(card["name"], _space(card)) for card in cards if "space_id" in card]
    if spaces:
        console.figures("Joint spaces", spaces)
    for card in cards:
        for data, figures in card["figures"].items():
            if figures.get("translation"):
                _print_matrix(f"{card['name']} on {data}: AP, query of row translated to column", card, figures)


def _space(card: Mapping[str, Any]) -> str:
    """The joint space of a translator, its weights, and what its encoders look at, as its file says it."""
    file = Path(card["file"])
    entries, tensors = read_header(file)
    told = f"{card['space_id']}, {dtype_of(file, KERNEL)} weights"
    if (text := entries.get("context")) is None:
        return told
    looks, of = parse_json(text), sorted({name.split("/")[1] for name in tensors if name.startswith("context/")})
    return f"{told}; looks at {looks['nearest']} nearest and {looks['larger']} larger neighbours ({', '.join(of)})"


def _row(card: Mapping[str, Any]) -> tuple[Any, ...]:
    figures: Mapping[str, Any] = next(iter(card["figures"].values()), {})
    native = {name: figures.get("native", {}).get(name) for name in card["descriptors"]}
    means = [_mean(table) for table in (native, figures.get("translation", {}), figures.get("joint", {}))]
    return card["name"], card["kind"], card["keypoints"], card["bytes"] / 1e6, *means


def _mean(table: Mapping[str, float | None]) -> float | str:
    values = [value for value in table.values() if value is not None]
    return sum(values) / len(values) if values else NONE


def _print_matrix(title: str, card: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
    """AP from row to column, native on the diagonal; columns are numbered so that seven fit a narrow screen."""
    known = card["descriptors"]
    rows = []
    for number, source in enumerate(known, start=1):
        found = [figures["translation"].get(f"{source}->{target}", NONE) for target in known]
        found[number - 1] = figures.get("native", {}).get(source, NONE)
        rows.append([f"{number} {source}", *found])
    console.table(title + " (diagonal: native)", ["", *map(str, range(1, len(known) + 1))], rows, matrix=True)
