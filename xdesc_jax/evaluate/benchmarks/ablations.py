"""What the paper's ablations claim, and whether measured figures bear it out.

In: areas under the matching accuracy of comparisons, each under a setting of the training. Out: of each claim the two
areas, their difference, what the claim asks of it, and whether it holds. `ablations.json` has the settings and the
claims; descriptors in it are a, b, c, d: the paper's BRIEF, SIFT, HardNet, SOSNet. What counts as 'little' or 'far' is
ours, since the paper draws curves and prints no figures. A setting may also name other records than the photos' own
(`records_of`). Training is the command's (`command_line.ablations`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from xdesc_jax.console.words import counted
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, Checked, fingerprint
from xdesc_jax.evaluate.benchmarks.results import Column, Row
from xdesc_jax.evaluate.homography import Comparison
from xdesc_jax.files.whole import read_json

LETTERS = "abcd"
COLUMNS = (
    Column("area to 5 px"), Column("of the other", "%"), Column("difference", "%"), Column("at least", "%"),
    Column("at most", "%"), Column("holds", "1: yes", 0),
)  # fmt: skip
# Rows of photos; of one of the two patches of each pair of a photo and a warped view of it; or of both of them, each
# descriptor of either.
Records = Literal["photos", "one view", "across views"]
Measured = tuple[str, Comparison]  # setting ('' where nothing is trained) and comparison


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the paper says of two figures, or of one.

    Attributes:
        text: the claim.
        paper: where it stands; '' of what is not in the paper.
        first, second: what is compared; `second` None where the claim is of the figure itself.
        least, most: of the difference first - second, or of the figure, in percent; None for no limit.
    """

    text: str
    paper: str
    first: Measured
    second: Measured | None
    least: float | None
    most: float | None

    @property
    def needs(self) -> list[Measured]:
        return [self.first, *([self.second] if self.second else [])]

    def row(self, areas: Mapping[Measured, float]) -> Row:
        """The row of the table, from areas in percent."""
        first, second = areas[self.first], areas[self.second] if self.second else None
        less = first - (second or 0.0)
        holds = (self.least is None or less >= self.least) and (self.most is None or less <= self.most)
        values: dict[str, float | None] = {"area to 5 px": first, "of the other": second, "difference": less}
        values |= {"at least": self.least, "at most": self.most, "holds": float(holds)}
        told = [f"{setting or 'untrained'}: {comparison.label}" for setting, comparison in self.needs]
        detail = {"compared": told, "paper": self.paper or "not in the paper"}
        return Row(f"{self.text} ({' / '.join(told)})", values, "holds" if holds else "does not", "", detail)


@functools.cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = read_json(Path(__file__).parent / "ablations.json")
    return found


def settings(descriptors: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Setting -> fields of the training that it changes, by their dotted names.

    Args:
        descriptors: four, in the place of BRIEF, SIFT, HardNet and SOSNet.
    """
    of = _named(descriptors)
    found = {}
    for name, changes in _data()["settings"].items():
        held = tuple(of[letter] for letter in changes.get("descriptors", LETTERS))
        found[name] = {field: value for field, value in changes.items() if field != "records"} | {"descriptors": held}
    return found


def records_of(setting: str) -> Records:
    """What a setting is trained on: see `Records`."""
    found: Records = _data()["settings"][setting].get("records", "photos")
    return found


def claims(descriptors: Sequence[str], among: Sequence[str]) -> list[Claim]:
    """The claims that can be judged.

    Args:
        descriptors: see `settings`.
        among: settings that are trained.
    """
    of = _named(descriptors)

    def measured(value: Sequence[Any] | None) -> Measured | None:
        return (value[0], Comparison(value[1], of[value[2]], of[value[3]])) if value else None

    found = []
    for entry in _data()["claims"]:
        first, second = measured(entry["first"]), measured(entry["second"])
        assert first is not None
        claim = Claim(entry["claim"], entry["paper"], first, second, entry.get("least"), entry.get("most"))
        if all(setting in ("", *among) for setting, _ in claim.needs):
            found.append(claim)
    return found


def _named(descriptors: Sequence[str]) -> dict[str, str]:
    if len(set(descriptors)) != len(LETTERS):
        told = ", ".join(descriptors)
        raise ValueError(f"descriptors are {told}, expected four, in the place of BRIEF, SIFT, HardNet, SOSNet")
    return dict(zip(LETTERS, descriptors, strict=True))


def check(root: Path) -> Checked:
    """What a folder of photos to train on holds (see `protocol.Checked`)."""
    from xdesc_jax.features.images import list_photos

    names = list_photos(root)
    other = ("photos of one's own, where the paper trains on 3190 of its own choice",)
    made = fingerprint([root / name for name in names], root)
    return Checked(root, counted(len(names), "photo"), (), other, made)


BENCHMARK = Benchmark(
    "ablations",
    "Ablations",
    "a folder of photos to train on, and scenes with known homographies (--scenes), such as HPatches sequences",
    "https://github.com/filipradenovic/revisitop (distractors, of which the paper trains on 3190)",
    "any",
    "Figures of the supplement's ablation study, table 5",
    check,
)
