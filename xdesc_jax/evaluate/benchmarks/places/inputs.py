"""Feature files of a benchmark's photos: given ones, or extracted.

In: what a stage was given. Out: a feature file of all photos for each descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.feature_rows import to_extract
from xdesc_jax.evaluate.benchmarks.relative_pose import extracted
from xdesc_jax.evaluate.stages.homography import given_stores
from xdesc_jax.files import dry_run
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
    if given["features"]:
        return given_stores(given["features"], descriptors, translator)
    names = to_extract(descriptors, translator, given["keypoints"])
    with dry_run.step(out / run_folder.RESULT):
        return extracted(
            photos, out / "features", names, keypoints=given["keypoints"], max_keypoints=given["max_keypoints"],
            weights=given["weights"], processes=processes, overwrite=overwrite,
        )  # fmt: skip
