"""Who holds what: the descriptor of a map and that of its queries, in the scenarios of the paper's table 1.

In: names of descriptors. Out: the rows of the table, in its order, and how the rows of each are made comparable.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence
from typing import Literal

from xdesc_jax.evaluate.benchmarks.tables import PAPER_NAMES, divides_as_the_paper

Scenario = Literal["standard", "continuous deployment", "cross-device", "collaborative"]
SCENARIOS: tuple[Scenario, ...] = ("standard", "continuous deployment", "cross-device", "collaborative")
EMBED = "embed"
Mode = Literal["native", "embed", "directional"]  # of localisation
_ARROWS = {"continuous deployment": "->", "cross-device": "<-", "collaborative": "<-"}


@dataclasses.dataclass(frozen=True)
class Deployment:
    """One row of the table: the map's descriptor ('embed' for all in the joint space), and the queries'.

    Attributes:
        scenario: 'standard', map and queries hold one descriptor; 'continuous deployment', the map is translated to
            the queries'; 'cross-device', the queries to the map's; 'collaborative', the map's photos hold several at
            random, and all goes to the joint space.
        map, query: names of descriptors.
    """

    scenario: Scenario
    map: str
    query: str

    @property
    def mode(self) -> tuple[Mode, str | None]:
        """Mode and target of localisation."""
        if self.scenario == "standard":
            return "native", None
        if self.scenario == "collaborative":
            return "embed", None
        return "directional", self.query if self.scenario == "continuous deployment" else self.map

    @property
    def label(self) -> str:
        """In plain letters, as 'cross-device: sift <- brief'."""
        return self._named(self.map, self.query)

    @property
    def paper_row(self) -> str:
        """Name of the row in the paper's tables; '' where it has no such descriptor."""
        known = {EMBED: EMBED, **PAPER_NAMES}
        names = known.get(self.map, ""), known.get(self.query, "")
        return self._named(*names) if all(names) else ""

    def paper_row_among(self, descriptors: Sequence[str]) -> str:
        """`paper_row`, where the photos of collaborative maps are divided among the paper's four descriptors, too."""
        return self.paper_row if self.scenario != "collaborative" or divides_as_the_paper(descriptors) else ""

    def _named(self, of_map: str, of_query: str) -> str:
        arrow = _ARROWS.get(self.scenario)
        return f"{self.scenario}: {f'{of_map} {arrow} {of_query}' if arrow else of_map}"

    def __str__(self) -> str:
        """For people, without the scenario."""
        arrow = {"->": "\u2192", "<-": "\u2190"}.get(_ARROWS.get(self.scenario, ""))
        return f"{self.map} {arrow} {self.query}" if arrow else self.map


def table_rows(descriptors: Sequence[str]) -> list[Deployment]:
    """The rows of table 1, in its order."""
    pairs = list(itertools.permutations(descriptors, 2))
    return [
        *(Deployment("standard", d, d) for d in descriptors),
        *(Deployment("continuous deployment", a, b) for a, b in pairs),
        *(Deployment("cross-device", a, b) for a, b in pairs),
        *(Deployment("collaborative", EMBED, d) for d in descriptors),
    ]


def possible(
    descriptors: Sequence[str], translated: Collection[str], joint: bool, scenarios: Sequence[Scenario]
) -> list[Deployment]:
    """Those rows of some scenarios that a translator allows.

    Args:
        descriptors: of the rows.
        translated: what the translator knows; nothing without one.
        joint: whether it has a joint space.
        scenarios: the ones asked for.

    Raises:
        ValueError: there are none.
    """
    rows = []
    for row in table_rows(descriptors):
        needed = descriptors if row.scenario == "collaborative" else (row.map, row.query)
        if row.scenario != "standard" and not set(needed) <= set(translated):
            continue
        if row.scenario in scenarios and (joint or row.scenario != "collaborative"):
            rows.append(row)
    if not rows:
        raise ValueError(
            f"no rows of {', '.join(scenarios)} with {', '.join(descriptors)}; all but 'standard' need a --model that "
            f"knows them (it knows {', '.join(translated) or 'none'})"
        )
    return rows
