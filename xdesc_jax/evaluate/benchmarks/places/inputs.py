"""Feature files of a benchmark's photos: given ones, or extracted.

In: what a stage was given. Out: a feature file of all photos for each descriptor.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax.evaluate.benchmarks import feature_rows
from xdesc_jax.evaluate.benchmarks.feature_rows import extracted_by_detector
from xdesc_jax.translation.translator import Translator


def stores_of(
    photos: Path, out: Path, descriptors: Sequence[str], translator: Translator | None, given: Mapping[str, Any],
    processes: int, overwrite: bool,
) -> dict[str, Path]:  # fmt: skip
    """Descriptor -> feature file, extracted to OUT/features where none is given.

    Args:
        photos: folder that the names of photos begin in.
        out: the run's folder.
        descriptors: which ones; all that there are, or that the translator has, where empty.
        translator: whose descriptors they are.
        given: of the stage's arguments `features`, `keypoints`, `max_keypoints` and `weights`.
        processes: that extract.
        overwrite: extract anew.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no descriptor is named, or no file has one of them.
    """
    extract = functools.partial(
        extracted_by_detector, photos, out / "features", keypoints=given["keypoints"],
        max_keypoints=given["max_keypoints"], weights=given["weights"], processes=processes, overwrite=overwrite,
    )  # fmt: skip
    return feature_rows.stores_of(given["features"], descriptors, translator, given["keypoints"], out, extract)
