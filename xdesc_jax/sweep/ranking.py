"""Which members and settings of a sweep are best.

In: members' records. Out: settings, which are configurations without their seed, best first; how much of the spread
each field explains.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import numpy as np

from xdesc_jax.sweep.results import Record

SEED = "seed"


@dataclasses.dataclass(frozen=True)
class Setting:
    """Members that differ in their seed alone.

    Attributes:
        members: their records, best first.
        mean: mean rank-1 over those that count: which finished, or where none did, which were stopped; None where
            all diverged.
        deviation: its sample standard deviation over seeds; None for fewer than two.
    """

    members: tuple[Record, ...]
    mean: float | None
    deviation: float | None

    @property
    def best(self) -> Record:
        return self.members[0]

    @property
    def seeds(self) -> int:
        """How many members the mean is of."""
        return len(_counted(self.members))

    @property
    def diverged(self) -> int:
        return sum(record["status"] == "diverged" for record in self.members)

    def __str__(self) -> str:
        if self.mean is None:
            return "-"
        return f"{self.mean:.4f}" + (f" \u00b1 {self.deviation:.4f}" if self.deviation is not None else "")


def ranked(records: Sequence[Record]) -> list[Setting]:
    """Settings, best first.

    Those of which a member finished and none diverged come first, then those of which some diverged, then those
    whose members were all stopped early, last those that all diverged; within each, by mean rank-1.
    """
    by_setting: dict[str, list[Record]] = {}
    for record in records:
        shared = {name: value for name, value in record["config"].items() if name != SEED}
        by_setting.setdefault(json.dumps(shared, sort_keys=True), []).append(record)
    return sorted(map(_setting, by_setting.values()), key=_standing)


def counts(record: Record) -> bool:
    """Whether a member has a figure that can be ranked."""
    return record["status"] != "diverged" and record["mean_rank1"] is not None


def explained(groups: np.ndarray, values: np.ndarray) -> float | None:
    """Share of a variance that grouping explains, corrected for the number of groups (epsilon squared).

    Args:
        groups: [N] int.
        values: [N] float64.

    Returns:
        0 to 1; None where there are as many groups as values, or one value.

    Source: T. L. Kelley, An unbiased correlation ratio measure, PNAS 21, 1935.
    """
    total = float(np.sum((values - values.mean()) ** 2)) if len(values) else 0.0
    names = np.unique(groups)
    if total == 0 or len(names) >= len(values):
        return None
    within = sum(float(np.sum((v - v.mean()) ** 2)) for v in (values[groups == g] for g in names))
    share = 1 - (within / (len(values) - len(names))) / (total / (len(values) - 1))
    return min(1.0, max(0.0, share))


def _setting(records: Sequence[Record]) -> Setting:
    finished_first = sorted(records, key=lambda r: (r["status"] != "finished", not counts(r), -(r["mean_rank1"] or 0)))
    values = [record["mean_rank1"] for record in _counted(records)]
    mean = float(np.mean(values)) if values else None
    return Setting(tuple(finished_first), mean, float(np.std(values, ddof=1)) if len(values) > 1 else None)


def _counted(records: Sequence[Record]) -> list[Record]:
    usable = [record for record in records if counts(record)]
    return [record for record in usable if record["status"] == "finished"] or usable


def _standing(setting: Setting) -> tuple[int, float]:
    if setting.mean is None:
        return 3, 0.0
    if not any(record["status"] == "finished" and counts(record) for record in setting.members):
        return 2, -setting.mean
    return int(setting.diverged > 0), -setting.mean
