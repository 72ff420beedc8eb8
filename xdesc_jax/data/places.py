"""Where the rows of each photo go, for workers that know one photo at a time.

In: how many rows each photo has. Out: its place among the rows of its split, from which `deal.Deal` gives the
shard of each row.
"""

from __future__ import annotations

import dataclasses

from xdesc_jax.data.deal import AnyDeal
from xdesc_jax.data.plan import Plan, RecordSettings, plan_rows


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """How many rows a photo has, or what is wrong with it.

    Attributes:
        index, name: of the photo.
        rows: that are kept.
        unreadable: why it is left out.
        error: what is wrong with it that stops the run.
    """

    index: int
    name: str
    rows: int = 0
    unreadable: str = ""
    error: str = ""

    def stops(self, strict: bool) -> str:
        """Why it stops the run, or ''; with `strict`, a photo that cannot be read does."""
        return self.error or (self.unreadable if strict else "")


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """Where the rows of a photo are among those of its split.

    Attributes:
        index, name, rows: of the photo, which has some.
        split: it is in.
        before: rows of the split that come before its own.
    """

    index: int
    name: str
    rows: int
    split: str
    before: int


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The deal of each split, and where each photo with rows is in it."""

    deals: dict[str, AnyDeal]
    photos: list[Placed]


def lay_out(photos: list[Counted], settings: RecordSettings, strict: bool) -> Layout:
    """The layout for counted photos in any order; empty where one stops the run or none has a row."""
    if any(photo.stops(strict) for photo in photos) or not any(photo.rows for photo in photos):
        return Layout({}, [])
    plan = plan_counted(photos, settings)
    before = dict.fromkeys(plan.deals, 0)
    placed = []
    for photo in sorted(photos, key=lambda photo: photo.index):
        if split := plan.split_of.get(photo.name):
            placed.append(Placed(photo.index, photo.name, photo.rows, split, before[split]))
            before[split] += photo.rows
    return Layout(plan.deals, placed)


def plan_counted(photos: list[Counted], settings: RecordSettings) -> Plan:
    """The plan for counted photos in any order.

    Raises:
        ValueError: no photo has a valid row.
    """
    names = [photo.name for photo in sorted(photos, key=lambda photo: photo.index)]
    return plan_rows(names, {photo.name: photo.rows for photo in photos if not photo.unreadable}, settings)
