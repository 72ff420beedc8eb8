"""The page of the benchmark across descriptors: who serves whom best.

In: the rows of a result. Out: the answer in a sentence, matrices of what is left of the weaker side's, and the leaders.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdesc_jax.evaluate.benchmarks import run_folder, tables
from xdesc_jax.evaluate.benchmarks.cross.plan import OWN, under
from xdesc_jax.evaluate.benchmarks.cross.scores import Best, Leader, leaders
from xdesc_jax.evaluate.benchmarks.results import Result
from xdesc_jax.reports.parts import Column, Folded, Matrix, Part, Section, Table

KINDS = {"sequences": "correct matches in sequences", "posed": "inliers in posed scenes"}
HEADS = (
    Column("map", text=True), Column("device", text=True), Column("keypoints", text=True),
    Column("condition", text=True), Column("sequences", text=True), Column("correct", digits=0),
    Column("of the weaker side's", "%", digits=1), Column("scenes", text=True), Column("inliers", digits=0),
    Column("of the weaker side's inliers", "%", digits=1),
)  # fmt: skip


def page(result: Result) -> run_folder.Page:
    """The answer, and what follows the table of all rows."""
    found = leaders(result.rows)
    share = (
        "What the best way of each map and device leaves of what the weaker of both descriptors reaches with itself, "
        "at the same keypoints and in the same condition."
    )
    best = (
        "For each map and device the way with the most correct matches in sequences, and that with the most inliers in "
        "posed scenes; conditions but 'plain' are simulated."
    )
    return answer(found), [
        Section("Who serves whom", matrices(found), share), Section("Leaders", [leader_table(found)], best),
    ]  # fmt: skip


def answer(found: Sequence[Leader]) -> str:
    """Which map serves which other descriptor best, at keypoints of their own and without simulation."""
    plain = [each for each in found if each.known != each.device and (each.keypoints, each.condition) == (OWN, "plain")]
    told = []
    for kind, what in KINDS.items():
        served = [(each, of) for each in plain if (of := getattr(each, kind)) is not None]
        if served:
            each, of = max(served, key=lambda one: one[1].share or 0)
            told.append(f"map of {each.known} serves {each.device} best ({of.way}): {of.count:.0f} {what} a pair")
    return f"A {'; a '.join(told)}." if told else "There is one descriptor alone."


def matrices(found: Sequence[Leader]) -> list[Part]:
    """Maps down and devices across, one of each kind of scene, keypoints and condition; simulated ones are folded."""
    parts: list[Part] = []
    for condition in dict.fromkeys(each.condition for each in found):
        of = [each for each in found if each.condition == condition]
        drawn: list[Part] = [
            matrix([each for each in of if each.keypoints == keypoints], kind)
            for keypoints in dict.fromkeys(each.keypoints for each in of)
            for kind in KINDS
            if any(getattr(each, kind) for each in of)
        ]
        parts += drawn if condition == "plain" else [Folded(f"simulated {condition}", drawn)]
    return parts


def matrix(found: Sequence[Leader], kind: str) -> Matrix:
    """Shares from 0 to 1 of the leaders of one condition and one kind of keypoints; native ones are marked."""
    best = {(each.known, each.device): getattr(each, kind) for each in found}
    maps, devices = (list(dict.fromkeys(names)) for names in zip(*best, strict=True))
    values = [[_part(best.get((known, device))) for device in devices] for known in maps]
    native = {(row, devices.index(known)) for row, known in enumerate(maps) if known in devices}
    told = under(found[0].keypoints, found[0].condition)
    return Matrix(maps, devices, values, f"{KINDS[kind]}, {told}", "map, device", native)


def leader_table(found: Sequence[Leader]) -> Table:
    """A line a leader."""
    rows = [
        [each.known, each.device, each.keypoints, each.condition, *_cells(each.sequences), *_cells(each.posed)]
        for each in found
    ]
    return tables.long_table(HEADS, rows, "descriptors", "leaders")


def _part(best: Best | None) -> float | None:
    return None if best is None or best.share is None else best.share / 100


def _cells(best: Best | None) -> tuple[str, float | None, float | None]:
    return ("-", None, None) if best is None else (best.way, best.count, best.share)
