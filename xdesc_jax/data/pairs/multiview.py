"""Rows from photos of places from many views: patches of one 3D point in two photos, as UBC PhotoTour was made.

In: a folder with one folder of photos per place. Out: rows of pairs, place by place. Models and finished
places are kept in a work folder, so a run that was stopped goes on. The names of the records are the places:
a split never divides one.

M. Brown, G. Hua, S. Winder: Discriminative Learning of Local Image Descriptors, PAMI 2011.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.model import Model
from xdesc_jax.data.pairs.tracks import Candidates, PairRules, choose_pairs, point_numbers
from xdesc_jax.data.schema import KEYPOINT, PAIR, PATCH, PATCH_SIZE, POINT
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.images import UnreadablePhoto, list_photos, read_gray
from xdesc_jax.features.keypoints import Keypoints, from_colmap
from xdesc_jax.features.parts import photo_stamp
from xdesc_jax.features.patches import extract_patches
from xdesc_jax.files.whole import atomic, config_hash, read_json, write_json
from xdesc_jax.mapping.from_photos import DATABASE, NotReconstructed, ReconstructSettings, reconstruct

# Room for the numbers of one place; small, for a mixture of several records multiplies all numbers.
POINTS_OF_A_PLACE = 1 << 20


@dataclasses.dataclass(frozen=True)
class MultiviewSettings:
    """How places become pairs.

    Attributes:
        reconstruction: how photos become models.
        rules: which pairs are taken.
        max_pairs_per_place: the most pairs of a place, drawn at random; None for all.
        seed: of the draws; the reconstruction has its own.
    """

    reconstruction: ReconstructSettings = ReconstructSettings()
    rules: PairRules = PairRules()
    max_pairs_per_place: int | None = 50_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_pairs_per_place is not None and self.max_pairs_per_place < 1:
            raise ValueError(f"max_pairs_per_place is {self.max_pairs_per_place}, expected at least 1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, expected 0 or more")


class MultiviewPairs:
    """The pairs of a folder of places; see `rows.RowSource`, whose photos are places here.

    Args:
        root: folder whose sub-folders are the places; a place holds photos, with any sub-folders.
        work: folder for models and finished places.
        settings: see there.
        strict: raise at a place that cannot be reconstructed or a photo that cannot be read, instead of
            leaving it out.

    Attributes:
        skipped: place and reason, of those left out so far.
        figures: of each finished place: photos, registered ones, models, points and how many are distinct, medians
            (reprojection error, angle and zoom of the pairs), shares of the possible pairs that scale and turn
            drop, and pairs.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: it holds no place.
    """

    unit = "places"
    action = "reconstructing"
    has_patches = True
    has_pairs, has_points = True, False

    def __init__(self, root: Path, work: Path, settings: MultiviewSettings, *, strict: bool = False):
        self._root, self._work, self._settings, self._strict = root, work, settings, strict
        self._photos = places(root)
        self.names = sorted(self._photos)
        self.specs: dict[str, DescriptorSpec] = {}
        self.skipped: dict[str, str] = {}
        self.figures: dict[str, dict[str, Any]] = {}
        listing = [(p, n, photo_stamp(root / p / n)) for p, names in self._photos.items() for n in names]
        self.config: dict[str, Any] = {
            "photos": config_hash(listing),
            "reconstruction": dataclasses.asdict(dataclasses.replace(settings.reconstruction, threads=1)),
            "rules": dataclasses.asdict(settings.rules),
            "max_pairs_per_place": settings.max_pairs_per_place,
            "pairs_seed": settings.seed,
        }
        # What one place's rows depend on beside its models; other settings take the same models.
        self._choice = config_hash([self.config[key] for key in ("rules", "max_pairs_per_place", "pairs_seed")])

    def rows(self) -> Iterator[tuple[str, Columns]]:
        """Yields (place, {column: [n, ...]}); the first pass reconstructs and reports, later ones read its files.

        Raises:
            ValueError: with `strict`, a place or photo cannot be used.
        """
        first = not self.figures
        # Every place has a range of point numbers of its own, whatever becomes of the others.
        stride = min(POINTS_OF_A_PLACE, np.iinfo(np.int32).max // len(self.names))
        for index, place in enumerate(self.names):
            if place in self.skipped:
                continue
            try:
                columns = self._place(place)
            except NotReconstructed as error:
                if self._strict:
                    raise
                console.warn(f"left out: {error}")
                self.skipped[place] = str(error)
                continue
            if columns[POINT].max(initial=0) >= stride:
                raise ValueError(f"{place}: {columns[POINT].max()} points, at most {stride} fit with so many places")
            columns[POINT] = (columns[POINT] + index * stride).astype(np.int32)
            yield place, columns
        if first:
            self.report()

    def report(self) -> None:
        """Prints what became of each place that is finished."""
        heads = ("place", "photos", "models", "points", "distinct", "px", "angle", "zoom", "off %", "pairs")
        rows = [
            (
                place,
                f"{f['registered']}/{f['photos']}",
                f["models"],
                f["points"],
                f["distinct"],
                f"{f['error_px']:.2f}",
                f"{f['angle_deg']:.0f}",
                f"{f['zoom']:.2f}",
                f"{100 * f['disagreeing']:.1f}",
                f["pairs"],
            )
            for place, f in self.figures.items()
        ]
        console.table("places (medians: reprojection error, angle and zoom of pairs)", heads, rows)

    def _place(self, place: str) -> Columns:
        photos, names, settings = self._root / place, self._photos[place], self._settings
        stamps = [(name, photo_stamp(photos / name)) for name in names]
        work = self._work / place / config_hash([stamps, settings.reconstruction.config(len(names))])
        file, figures = work / f"pairs-{self._choice}.npz", work / f"pairs-{self._choice}.json"
        if not file.exists():
            models = reconstruct(photos, names, work, settings.reconstruction, strict=self._strict)
            columns, found = self._pairs(place, work / DATABASE, models)
            write_json(figures, found)
            with atomic(file) as temporary, temporary.open("wb") as out:
                np.savez(out, **columns)  # type: ignore[arg-type]
        self.figures[place] = read_json(figures)
        with np.load(file) as arrays:
            return dict(arrays)

    def _pairs(self, place: str, database: Path, paths: list[Path]) -> tuple[Columns, dict[str, Any]]:
        """The rows of a place, from all its models, and its figures."""
        from xdesc_jax.colmap.bindings.api import read_model

        settings, models = self._settings, [read_model(path) for path in paths]
        photos = sorted({name for model in models for name in model.names})
        pieces: list[Columns] = []
        chosen, candidates, seen = [], [], []
        count = 0
        for index, model in enumerate(models):
            keypoints, patches, usable = self._observed(place, database, model)
            seed = [settings.seed, zlib.crc32(place.encode()), index]
            pairs, possible = choose_pairs(model, keypoints.scales, keypoints.oris, usable, settings.rules, seed)
            first = keypoints.take(pairs.first)
            pieces.append(
                {
                    PATCH: patches[pairs.first],
                    PAIR: patches[pairs.second],
                    POINT: model.point[pairs.first] + count,
                    KEYPOINT: np.column_stack([first.xy, first.scales, first.oris]),
                }
            )
            chosen.append(pairs)
            candidates.append(possible)
            photo_of = np.array([photos.index(name) for name in model.names])
            seen.append((model.point + count, photo_of[model.view], keypoints.xy))
            count += len(model.points)
        number = point_numbers(count, *(np.concatenate(column) for column in zip(*seen, strict=True)))
        rows = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        rows[POINT] = number[rows[POINT]]
        kept = len(rows[POINT])
        if settings.max_pairs_per_place is not None and kept > settings.max_pairs_per_place:
            rng = np.random.default_rng([settings.seed, zlib.crc32(place.encode()), len(models)])
            keep = np.sort(rng.choice(kept, settings.max_pairs_per_place, replace=False))
            rows = {name: values[keep] for name, values in rows.items()}
        return rows, {
            "photos": len(self._photos[place]),
            "registered": len(photos),
            "models": len(models),
            "points": count,
            "distinct": len(np.unique(number)),
            **_figures(models, _joined(chosen), _joined(candidates), settings.rules),
            "pairs": len(rows[POINT]),
        }

    def _observed(self, place: str, database: Path, model: Model) -> tuple[Keypoints, np.ndarray, np.ndarray]:
        """Keypoint and patch of each of a model's M observations, and which patches can be used, bool [M]."""
        total = len(model.point)
        shown = np.zeros((total, 4), np.float32)  # as the column `keypoint`
        patches, usable = np.zeros((total, PATCH_SIZE, PATCH_SIZE), np.uint8), np.zeros(total, bool)
        with DatabaseReader(database) as reader:
            for view, name in enumerate(model.names):
                rows = np.flatnonzero(model.view == view)
                keypoints = from_colmap(reader.keypoints(name)).take(model.keypoint[rows])
                shown[rows] = np.column_stack([keypoints.xy, keypoints.scales, keypoints.oris])
                try:
                    gray = read_gray(self._root / place / name)
                except UnreadablePhoto as error:  # COLMAP reads what is there of a photo that was cut short
                    if self._strict:
                        raise
                    console.warn(f"left out: {error}")
                    continue
                patches[rows], usable[rows] = extract_patches(gray, keypoints)
        return Keypoints(shown[:, :2], shown[:, 2], shown[:, 3]), patches, usable


def places(root: Path) -> dict[str, list[str]]:
    """Photos of each sub-folder of `root` that has any, relative to the sub-folder.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: no sub-folder holds a photo.
    """
    found: dict[str, list[str]] = {}
    loose = []
    for name in list_photos(root):
        place, _, inner = name.partition("/")
        if inner:
            found.setdefault(place, []).append(inner)
        else:
            loose.append(name)
    if found and loose:
        console.warn(
            f"left out: {console.counted(len(loose), 'photo')} in {root} itself, of no place, first {loose[:5]}"
        )
    if not found:
        raise ValueError(f"{root}: photos lie in the folder itself, expected one folder of photos per place")
    return found


def _joined(parts: list[Candidates]) -> Candidates:
    fields = [field.name for field in dataclasses.fields(Candidates)]
    return Candidates(*(np.concatenate([getattr(part, field) for part in parts]) for field in fields))


def _figures(models: list[Model], chosen: Candidates, candidates: Candidates, rules: PairRules) -> dict[str, Any]:
    """Medians and shares of the pairs, for the table; NaN-free, for they are kept as JSON."""

    def median(values: np.ndarray) -> float:
        return float(np.median(values)) if len(values) else 0.0

    def share(values: np.ndarray) -> float:
        return float(np.mean(values)) if len(values) else 0.0

    scale_off = np.abs(candidates.scale_error) > np.log2(rules.max_scale_factor)
    turn_off = np.abs(candidates.turn_deg) > rules.max_turn_deg
    return {
        "error_px": median(np.concatenate([model.residual_px for model in models])),
        "angle_deg": median(chosen.angle_deg),
        "zoom": 2 ** median(np.abs(chosen.zoom)),
        "scale_off": share(scale_off),
        "turn_off": share(turn_off),
        "disagreeing": share(scale_off | turn_off),
    }
