"""The chart of benchmarks that localise queries.

In: rows with the figures of each query. Out: a section of the page: how large the errors are, where true poses are
known, and else how many inliers the poses rest on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xdesc_jax.evaluate.benchmarks.results import Row
from xdesc_jax.reports.parts import Section


def section(rows: Sequence[Row], known: bool) -> Section:
    """A curve a row.

    Args:
        rows: with `detail['inliers']`, and `detail['position_m']` where true poses are known.
        known: whether they are.
    """
    from xdesc_jax.evaluate.benchmarks.drawing import shares_within
    from xdesc_jax.reports import chart

    if known:
        errors = {row.name: [np.inf if e is None else e for e in row.detail["position_m"]] for row in rows}
        drawn = chart.chart(
            shares_within, errors, 1.0, "position error [m]", title="Queries within an error",
            caption="share of queries whose position is off by no more",
        )  # fmt: skip
        return Section("Errors", [drawn])
    inliers = {row.name: row.detail["inliers"] for row in rows}
    most = float(max(1, *(np.percentile(counts, 90) for counts in inliers.values())))
    drawn = chart.chart(
        shares_within, inliers, most, "inliers", title="What poses rest on",
        caption="share of queries with no more inliers: the lower a curve, the surer its poses",
    )  # fmt: skip
    return Section("Inliers", [drawn])
