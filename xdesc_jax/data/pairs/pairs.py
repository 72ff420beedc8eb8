"""The stage `xdesc pairs`: photos to records of corresponding patches, to train descriptors on.

In: single photos, which are warped, or places seen in many photos, which are reconstructed. Out: a records folder
whose rows hold two patches of one point (`patch`, `pair`) and the point's number (`point`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console
from xdesc_jax.data.build import build, make, work_folder
from xdesc_jax.data.pairs.multiview import MultiviewPairs, MultiviewSettings
from xdesc_jax.data.pairs.warped import WarpedPairs, WarpedSettings
from xdesc_jax.data.plan import RecordSettings
from xdesc_jax.data.schema import RecordInfo

WARPED, PLACES = WarpedSettings(), MultiviewSettings()


def pairs(
    out: Path,
    *,
    photos: Path | None = None,
    multiview: Path | None = None,
    warped: WarpedSettings = WARPED,
    places: MultiviewSettings = PLACES,
    format: Literal["tfds", "npy"] = "tfds",
    validation_share: float = 0.1,
    seed: int = 0,
    rows_per_shard: int = 16384,
    processes: int = 1,
    overwrite: bool = False,
    strict: bool = False,
) -> RecordInfo:
    """Makes training pairs of patches of the same point.

    Args:
        out: the folder to make; `xdesc train-descriptor --data` takes it.
        photos: folder of photos, with any sub-folders; each is warped by random homographies.
        multiview: instead of photos, a folder with one folder of photos a place; each is reconstructed with pycolmap,
            and pairs are two observations of a track.
        warped: how photos are warped and pairs chosen.
        places: how places are reconstructed and pairs chosen.
        format: tfds (TFRecord shards, a TensorFlow dataset directory) or npy (read without tensorflow).
        validation_share: share of the photos or places whose pairs are kept for validation.
        seed: of the split and of the order of rows.
        rows_per_shard: the most rows of a shard; readers hold a few shards in memory.
        processes: that work on photos; a reconstruction has threads of its own.
        overwrite: make the folder anew even if it is there.
        strict: stop at a photo that cannot be read or a place that cannot be reconstructed, instead of leaving it out.

    Raises:
        ValueError: settings out of range, not one of photos and multiview, or no pair.
        FileExistsError: `out` holds something else.
    """
    if (photos is None) == (multiview is None):
        raise ValueError("pairs come from --photos or from --multiview places: name one of the two")
    settings = RecordSettings(format, validation_share, seed, None, rows_per_shard)
    work = work_folder(out)
    source: WarpedPairs | MultiviewPairs
    if photos is not None:
        source = WarpedPairs(photos, warped, work / "parts", processes=processes, strict=strict)
    else:
        assert multiview is not None
        source = MultiviewPairs(multiview, work / "places", places, strict=strict)
    found = console.counted(len(source.names), "photo" if photos is not None else "place")
    chosen = {"warped": warped} if photos is not None else {"places": places}
    shown = {"photos": photos, "multiview": multiview, "found": found, **chosen, "processes": processes}

    def build_and_tell(*given: Any) -> RecordInfo:
        info = build(*given)
        if isinstance(source, WarpedPairs) and len(source.residuals):
            _summarize_residuals(source.residuals)
        return info

    return make("pairs", shown, out, source, work, settings, overwrite, build_and_tell, pairs)


def _summarize_residuals(residuals: np.ndarray) -> None:
    """Prints what the detector's noise was."""
    size = np.abs(np.column_stack([np.linalg.norm(residuals[:, :2], axis=1), residuals[:, 2:]]))
    names = ("position (sigma)", "log scale", "angle (rad)")
    figures = np.percentile(size, [50, 90, 99], axis=0).T
    rows = [(name, *map(float, values)) for name, values in zip(names, figures, strict=True)]
    console.table(
        f"{len(residuals):,} keypoints found again, against their true place", ("", "50 %", "90 %", "99 %"), rows
    )
