"""From a folder of photos to sparse models: SIFT, matching, geometric verification, incremental mapping.

In: photos of one place. Out: COLMAP models (paths) beside the database that they come from, in a work folder.
Each step keeps what it finished, so a run that was stopped goes on there. Needs pycolmap, not jax.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.files.changes import changes
from xdesc_jax.files.whole import atomic, config_hash, content_hash, recorded, write_json

DATABASE, MODELS, SETTINGS = "database.db", "models", "settings.json"


class NotReconstructed(ValueError):
    """Photos that give no model, and how far they came."""


@dataclasses.dataclass(frozen=True)
class ReconstructSettings:
    """How photos become models.

    Attributes:
        max_features: SIFT features per photo; COLMAP keeps those of the largest scale.
        max_side_px: larger photos are shrunk to it for detection; keypoints are in px of the photo as it is.
        exhaustive_up_to: so many photos are matched all with all; of more, each is matched to `neighbours`
            that follow it in the order of names, so those names should follow the camera's path.
        neighbours: see `exhaustive_up_to`.
        two_view_tracks: keep points that only two photos see: about twice the points, but only their distance
            from the epipolar line was checked.
        seed: of verification and mapping. Results still differ a little with the number of threads.
        threads: to run on; no part of the configuration.
    """

    max_features: int = 8192
    max_side_px: int = 1600
    exhaustive_up_to: int = 200
    neighbours: int = 20
    two_view_tracks: bool = False
    seed: int = 0
    threads: int = 2

    def __post_init__(self) -> None:
        for field in ("max_features", "max_side_px", "exhaustive_up_to", "neighbours", "threads"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}, expected at least 1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, expected 0 or more")

    def neighbours_of(self, photos: int) -> int | None:
        """How many following photos each of `photos` photos is matched to; None for all with all."""
        return self.neighbours if photos > self.exhaustive_up_to else None

    def config(self, photos: int) -> dict[str, Any]:
        """What the models of so many photos depend on."""
        return {
            "max_features": self.max_features,
            "max_side_px": self.max_side_px,
            "neighbours": self.neighbours_of(photos),
            "two_view_tracks": self.two_view_tracks,
            "seed": self.seed,
        }


def reconstruct(
    photos: Path, names: Sequence[str], work: Path, settings: ReconstructSettings, *, strict: bool = False
) -> list[Path]:
    """Reconstructs photos, or goes on where an earlier call with the same arguments stopped.

    Args:
        photos: folder of the photos.
        names: the photos, relative to it.
        work: folder for the database (`DATABASE`) and the models; kept.
        settings: see there.
        strict: raise at a photo that COLMAP cannot read, instead of leaving it out.

    Returns:
        Folders of the models, those with most photos first.

    Raises:
        NotReconstructed: there is no model.
        ValueError: with `strict`, a photo cannot be read.
        FileExistsError: `work` belongs to other photos or settings.
    """
    from xdesc_jax.colmap.bindings import photos as colmap

    if len(names) < 2:
        raise NotReconstructed(f"{photos}: {console.counted(len(names), 'photo')}, expected at least 2")
    listing = [(name, content_hash(photos / name)) for name in sorted(names)]
    _claim(work, listing, settings.config(len(names)))
    database, models = work / DATABASE, work / MODELS
    if not models.exists():
        if not database.exists():
            partial = work / f"{DATABASE}.partial"  # what a killed call goes on with
            if not partial.exists():
                with atomic(partial) as temporary:
                    colmap.add_photos(temporary, photos, sorted(names))
            _check_read(partial, photos, names, strict)
            colmap.add_features(partial, photos, settings.max_features, settings.max_side_px, settings.threads)
            colmap.add_matches(partial, settings.neighbours_of(len(names)), settings.seed, settings.threads)
            settle(partial, database)
        with atomic(models) as folder:
            colmap.map_photos(database, folder, settings.two_view_tracks, settings.seed, settings.threads)
    found = model_folders(models)
    if not found:
        counts = ", ".join(f"{count} {what}" for what, count in colmap.database_counts(database).items())
        raise NotReconstructed(f"{photos}: no model could be reconstructed ({counts}, of {len(names)} photos)")
    return found


def model_folders(models: Path) -> list[Path]:
    """The models in a folder, the one with most photos first."""
    return sorted((path for path in models.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def settle(partial: Path, database: Path) -> None:
    """Gives a finished database its name, as one file without a log beside it."""
    with contextlib.closing(sqlite3.connect(partial)) as connection:
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise OSError(f"{database}: cannot be written as a COLMAP database ({error})") from error
    os.replace(partial, database)


def _claim(work: Path, photos: Sequence[tuple[str, str]], settings: dict[str, Any]) -> None:
    file, expected = work / SETTINGS, config_hash([photos, settings])
    config = {"photos": config_hash(photos), **settings}
    if not file.exists():
        write_json(file, {"config_hash": expected, "config": config})
    elif (found := recorded(file)) != expected:
        differs = changes(file, found, config) or f"hash {found}, now {expected}"
        raise FileExistsError(f"{work} holds the models of other photos or settings ({differs}); choose another")


def _check_read(database: Path, photos: Path, names: Sequence[str], strict: bool) -> None:
    with DatabaseReader(database) as reader:
        missing = sorted(set(names) - set(reader.names))
    if missing:
        reason = f"{len(missing)} of {len(names)} photos in {photos} cannot be read, first {missing[:5]}"
        if strict:
            raise ValueError(reason)
        console.warn(f"left out: {reason}")
