"""What a matching found, in figures: of all pairs, and of each two descriptors.

In: the plan, the matches of its pairs, and the rows that were matched. Out: counts for the summary, and tables. Runs on
the base install.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.match_plan import MatchPlan
from xdesc_jax.matching.parts import MatchParts
from xdesc_jax.matching.routes import Rows

PHOTOS_KEPT = 4096  # whose keypoints are not read again for the next pair


def figures_of(
    plan: MatchPlan, parts: MatchParts, first: FeatureSet, second: FeatureSet, rows0: Rows, rows1: Rows, nms: float
) -> dict[str, Any]:
    """Counts over all pairs, and for each two descriptors the ratio and where it comes from."""
    counts = np.zeros(len(plan.pairs), np.int64)
    unique = 0
    by_kind: dict[tuple[str, str], dict[str, Any]] = {}

    @functools.lru_cache(PHOTOS_KEPT)
    def place(side: int, name: str) -> np.ndarray:
        xy = (first, second)[side].keypoints(name)
        return np.unique(xy, axis=0, return_inverse=True)[1].reshape(-1)

    one = second is first
    for at, (found, (_, route)) in enumerate(zip(parts, plan, strict=True)):
        a, b = first.held(found.name0), second.held(found.name1)
        kind = (a.spec.name if a else "none", b.spec.name if b else "none")
        entry = by_kind.setdefault(
            kind, {"pairs": 0, "matches": 0, "in": route.target.name, "ratio": route.ratio, "ratio_is": route.why}
        )
        entry["pairs"] += 1
        entry["matches"] += len(found.indices)
        counts[at] = len(found.indices)
        i, j = place(0, found.name0)[found.indices[:, 0]], place(int(not one), found.name1)[found.indices[:, 1]]
        unique += min(len(np.unique(i)), len(np.unique(j)))
        rows0.count(found.name0)
        rows1.count(found.name1)
    sides = [rows0] if rows1 is rows0 else [rows0, rows1]
    return {
        "pairs_matched": len(counts),
        "pairs_without_matches": int((counts == 0).sum()),
        "matches": int(counts.sum()),
        "matches_of_distinct_positions": unique,
        "median_matches": int(np.median(counts)) if len(counts) else 0,
        "rows_never_matched": sum(sum(rows.skipped.values()) for rows in sides),
        "rows_not_finite": sum(sum(rows.not_finite.values()) for rows in sides),
        **({"rows_near_others": sum(sum(rows.duplicates.values()) for rows in sides)} if nms else {}),
        "by_descriptors": [{"first": a, "second": b, **entry} for (a, b), entry in by_kind.items()],
    }


def tell(mode: str, figures: dict[str, Any]) -> None:
    """Prints what `figures_of` and the plan count, and a row for each two descriptors."""
    console.figures(f"matches, mode {mode}", {k: v for k, v in figures.items() if k != "by_descriptors"})
    console.table(
        "by descriptors",
        ("first, second", "pairs", "matches", "matched as", "ratio", "which is"),
        [
            (f"{e['first']}, {e['second']}", e["pairs"], e["matches"], e["in"], str(e["ratio"]), e["ratio_is"])
            for e in figures["by_descriptors"]
        ],
    )
