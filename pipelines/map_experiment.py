"""An experiment on a map scene: the rows of a table, each repeated with several seeds.

In: a scene with its features, a translator, and the rows. Out: figures of each repeat, kept as soon as their row is
finished; `results.json` and a page with the table, in which a figure stands with its spread over the repeats.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from xdesc_jax import console
from xdesc_jax.evaluate import map_drawing
from xdesc_jax.files.whole import config_hash, content_hash, input_hash, read_json, write_json
from xdesc_jax.reports.chart import chart
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Picture, Section, Spread
from xdesc_jax.reports.settings import Settings

from .map_scene import MapScene

Row = TypeVar("Row")  # a dataclass of texts
_COUNTS = ("photos", "queries", "map photos")  # what a scene has, and nobody set


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What all rows of a table share.

    Attributes:
        place: the scene.
        out: folder for everything that is made.
        model: the translator's file.
        ratio: of matching; 'auto' for the calibrated ones.
        seeds: repeats of a row.
        own: further settings, by the names under which results show them.
    """

    place: MapScene
    out: Path
    model: Path
    ratio: float | Literal["auto"]
    seeds: int
    own: dict[str, Any]

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """What the results depend on."""
        return {
            "scene": self.place.folder.name,
            "features": {d: input_hash(path) for d, path in self.place.stores.items()},
            "model": content_hash(self.model),
            **self.own,
            "ratio": self.ratio,
            "seeds": self.seeds,
            "scale": self.place.scale,
        }

    def run(
        self,
        rows: Sequence[Row],
        repeats: Callable[[Row], Iterable[dict[str, Any]]],
        told: Callable[[dict[str, Any]], str],
    ) -> list[dict[str, Any]]:
        """The figures of all rows; those of finished ones are read.

        Args:
            rows: of the table.
            repeats: gives the figures of a row, one a seed.
            told: what to print of a row's entry.

        Returns:
            For each row its fields, and the figures of its 'repeats'.
        """
        expected = config_hash(self.settings)
        results = []
        for row in rows:
            fields = dataclasses.asdict(row)  # type: ignore[call-overload]
            path = self.out / "rows" / f"{' '.join(fields.values())}.json"
            found = read_json(path) if path.exists() else {}
            if found.get("hash") != expected:
                found = {"hash": expected, **fields, "repeats": list(repeats(row))}
                write_json(path, found)
            results.append(found)
            console.info(told(found))
        return results

    def write(
        self,
        title: str,
        answer: Answer,
        sections: Sequence[Section],
        results: list[dict[str, Any]],
        *,
        defaults: dict[str, Any],
        made_by: str,
        **further: Any,
    ) -> Path:
        """Writes `results.json`, with further figures of all rows, and the page.

        Args:
            title: of the page, to which the scene's name is added.
            answer, sections: of the page.
            results: what `run` gave.
            defaults: of the settings, by their names.
            made_by: the module's name.
            further: for `results.json`.

        Returns:
            The page.
        """
        write_json(self.out / "results.json", {"settings": self.settings, **further, "rows": results})
        files = {name: self.settings[name] for name in ("scene", "features", "model")}
        chosen = {name: value for name, value in self.settings.items() if name not in {*files, *_COUNTS}}
        return write_page(
            self.out / "report.html",
            f"{title}: {self.place.folder.name}",
            answer,
            sections,
            settings=Settings.of(chosen, defaults),
            provenance={"made by": made_by, **files},
        )


def spread(
    entry: dict[str, Any], *keys: str, digits: int = 1, factor: float = 1, without: float | None = None
) -> Spread:
    """A figure of a row over its repeats; `without` stands for it in those that do not have it."""
    values = []
    for repeat in entry["repeats"]:
        value: Any = repeat
        for key in keys:
            value = value.get(key, without) if isinstance(value, dict) else value
        values.append(float("nan") if value is None else factor * value)
    return Spread(tuple(values), digits)


def means(results: Iterable[dict[str, Any]], by: str, *keys: str, **options: Any) -> dict[str, float]:
    """A figure's mean over all rows of one kind, in the order of the kinds.

    Args:
        results: entries of rows.
        by: the field that says the kind.
        keys, options: of the figure (see `spread`).
    """
    found: dict[str, list[float]] = {}
    for entry in results:
        found.setdefault(entry[by], []).append(spread(entry, *keys, **options).mean)
    return {kind: float(np.mean(values)) for kind, values in found.items()}


def bars(names: Sequence[str], spreads: Sequence[Spread], axis: str, title: str) -> Picture:
    """A figure of all rows as bars."""
    return chart(
        map_drawing.spread_bars, names, [s.mean for s in spreads], [s.deviation for s in spreads], axis,
        title=title, caption="with their standard deviation over the repeats",
    )  # fmt: skip
