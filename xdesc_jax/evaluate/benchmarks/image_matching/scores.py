"""The figure of the Image Matching challenge: mean average accuracy of relative poses (Jin et al., IJCV 2021).

In: pose errors of photo pairs, see `pose_scores`. Out: what the paper calls AUC at 5 and 10 degrees: the share of pairs
whose error is below 1, 2, ... up to so many degrees, mean over these. It is a sum over whole degrees, not the area of
`pose_scores.areas`. Imports numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

LIMITS_DEG = (5, 10)


def mean_average_accuracy(errors_deg: Sequence[float] | np.ndarray, up_to_deg: int) -> float:
    """From 0 to 1; 0 of no pairs.

    Args:
        errors_deg: [P]; inf for pairs without a pose.
        up_to_deg: the last of the limits 1, 2, ...
    """
    errors = np.asarray(errors_deg, np.float64)
    if not len(errors):
        return 0.0
    return float(np.mean([np.mean(errors < limit) for limit in range(1, up_to_deg + 1)]))


def over_bags(errors_deg: Mapping[int, Sequence[Sequence[float]]], up_to_deg: int) -> float:
    """Mean over the sizes of bags of the mean over bags of the accuracy over all pairs of a bag.

    Args:
        errors_deg: size -> errors of each bag.
        up_to_deg: see `mean_average_accuracy`.
    """
    return float(
        np.mean([np.mean([mean_average_accuracy(e, up_to_deg) for e in bags]) for bags in errors_deg.values()])
    )
