"""The stage `xdesc benchmark run ablations`: photos and scenes -> which claims of the paper's ablations hold.

In: photos to train on, scenes with known homographies, a configuration. Out: a translator of each setting (see
`evaluate.benchmarks.ablations`), trained on records of the same photos, measured on the same scenes, and the table of
claims. It lies here since it trains, exports and measures; jax is imported when it trains.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.config import TrainConfig, load_config
from xdesc_jax.descriptors import get_entry
from xdesc_jax.evaluate.benchmarks import ablations, run_folder
from xdesc_jax.evaluate.benchmarks.ablations import BENCHMARK, COLUMNS, Claim, Measured, Records
from xdesc_jax.evaluate.benchmarks.protocol import require
from xdesc_jax.evaluate.benchmarks.results import Result
from xdesc_jax.evaluate.benchmarks.sequence_scores import area
from xdesc_jax.evaluate.homography import Comparison, evaluate
from xdesc_jax.evaluate.scenes import Scene, find_scenes
from xdesc_jax.evaluate.stages.homography import extracted_stores, scene_config
from xdesc_jax.files import dry_run
from xdesc_jax.files.fields import replaced
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, input_hash
from xdesc_jax.translation.translator import Translator

DESCRIPTORS = ("brief", "sift", "hardnet-xdesc", "sosnet-xdesc")
VERSION = 2  # of the figures
VIEWS = 4  # warped views of a photo, whose pairs share its rows


def run(
    *,
    data: Path,
    scenes: Path,
    out: Path,
    training: Path = Path("paper"),
    settings: tuple[str, ...] = (),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    keypoints: str = "opencv",
    max_keypoints: int = 2000,
    rows_per_photo: int = 800,
    weights: tuple[str, ...] = (),
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """The paper's ablations: a training each, and whether its claims hold.

    Args:
        data: folder of photos to train on.
        scenes: folder of scenes with known homographies, in the layout of HPatches sequences; not of these photos.
        out: folder for result.json, table.md, report.html, records, features, runs and models.
        training: configuration of all trainings, of which each setting changes some fields: a file, or the name of one
            that ships (`xdesc configs`); 'tiny' is of minutes.
        settings: which ones to train, by their names ('4 descriptors', 'pair network', ...); all by default. Claims
            that need others are left out, and so are, by default, settings of two views where a descriptor is not
            computed from patches.
        descriptors: four, in the place of the paper's BRIEF, SIFT, HardNet and SOSNet.
        keypoints: 'opencv' or 'colmap'.
        max_keypoints: the strongest that are kept of what a detector finds.
        rows_per_photo: that are trained on.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        processes: processes that extract.
        overwrite: measure again even if the result is there; finished trainings are kept.

    Returns:
        The result, which is also in OUT: a row a claim.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: no photos or scenes, a setting that is not there, or not four descriptors.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    found, config = require(BENCHMARK, data), load_config(training, TrainConfig)
    known = ablations.settings(descriptors)
    if strange := [name for name in settings if name not in known]:
        raise ValueError(f"no setting is called {strange[0]!r} (there are {', '.join(known)})")
    able = all(get_entry(name).source == "patch" for name in descriptors)
    if not able and (of_pairs := [name for name in settings if ablations.records_of(name) != "photos"]):
        raise ValueError(
            f"{of_pairs[0]!r} needs descriptors that are computed from patches, not {', '.join(descriptors)}"
        )
    chosen = {
        name: changes
        for name, changes in known.items()
        if name in settings or (not settings and (able or ablations.records_of(name) == "photos"))
    }  # fmt: skip
    claims = ablations.claims(descriptors, list(chosen))
    if not claims:
        raise ValueError(f"no claim can be judged by {', '.join(chosen)} alone")
    places = find_scenes(scenes)
    with dry_run.step(out / run_folder.RESULT):
        stores = extracted_stores(
            scenes, out / "features", descriptors, keypoints=keypoints, max_keypoints=max_keypoints, weights=weights,
            processes=processes, overwrite=overwrite,
        )  # fmt: skip
    photos = Photos(Path(data), descriptors, keypoints, max_keypoints, rows_per_photo, weights, processes)
    with console.status("reading the inputs"):
        hashes = {name: input_hash(path) for name, path in stores.items()}
        configs = {name: replaced(config, changes) for name, changes in chosen.items()}
        trained_on = [found.fingerprint, descriptors, keypoints, max_keypoints, rows_per_photo, weights]
        whole = [BENCHMARK.name, VERSION, trained_on, scene_config(places), hashes]
        expected = config_hash([*whole, {name: one.hash for name, one in configs.items()}])
    given: dict[str, Any] = {"scenes": scenes, "training": training, "settings": settings, "descriptors": descriptors}
    given |= {"keypoints": keypoints, "max_keypoints": max_keypoints, "rows_per_photo": rows_per_photo}
    given |= {"weights": weights}
    told = {"data": found.told, "trainings": len(configs), "claims": len(claims), **given}

    def measure(kept: Journal) -> Result:
        areas: dict[Measured, float] = {}
        for name, plan in _plans(claims).items():
            make = functools.partial(_areas, plan, places, stores, configs.get(name), photos, out, name)
            reached = kept.recall(name or "untrained", make)["areas"]
            areas |= {(name, comparison): reached[str(comparison)] for comparison in plan}
        return Result.of(BENCHMARK, found, given, COLUMNS, [claim.row(areas) for claim in claims])

    def page(result: Result) -> run_folder.Page:
        held = sum(row.mode == "holds" for row in result.rows)
        return f"{held} of {len(result.rows)} claims hold here.", []

    return run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, page, told=told, stage=run)


def _plans(claims: Sequence[Claim]) -> dict[str, list[Comparison]]:
    """Setting -> what is measured of it, each once."""
    plans: dict[str, dict[Comparison, None]] = {}
    for claim in claims:
        for setting, comparison in claim.needs:
            plans.setdefault(setting, {})[comparison] = None
    return {setting: list(found) for setting, found in plans.items()}


@dataclasses.dataclass(frozen=True)
class Photos:
    """Photos that are trained on, and what of them; see `run`."""

    folder: Path
    descriptors: tuple[str, ...]
    keypoints: str
    max_keypoints: int
    rows_per_photo: int
    weights: tuple[str, ...]
    processes: int

    def records(self, out: Path, kind: Records) -> Path:
        """The folder of records of a kind, below `out`; made where it is not there."""
        from xdesc_jax.data.describe import describe
        from xdesc_jax.data.pairs.pairs import pairs
        from xdesc_jax.data.pairs.warped import WarpedSettings
        from xdesc_jax.data.records import records

        with console.inner():
            if kind == "photos":
                return records(
                    out / "records", photos=self.folder, keypoints=self.keypoints, max_keypoints=self.max_keypoints,
                    max_rows_per_photo=self.rows_per_photo, descriptors=self.descriptors, weights=self.weights,
                    processes=self.processes, patches=False, format="npy",
                ).path  # fmt: skip
            views = WarpedSettings(views=VIEWS, pairs=self.rows_per_photo, max_keypoints=self.max_keypoints)
            found = pairs(out / "pairs", photos=self.folder, warped=views, processes=self.processes, format="npy")
            return describe(
                found.path, out / f"records-{kind.replace(' ', '-')}", descriptors=self.descriptors,
                weights=self.weights, across_views=kind == "across views",
            ).path  # fmt: skip


def _areas(
    plan: Sequence[Comparison], scenes: Sequence[Scene], stores: Mapping[str, Path], config: TrainConfig | None,
    photos: Photos, out: Path, name: str,
) -> dict[str, Any]:  # fmt: skip
    """Comparison -> area under the matching accuracy to 5 px, in percent, of one setting."""
    translator = None
    if config is not None:
        data = photos.records(out, ablations.records_of(name))
        translator = Translator.load(trained(config, data, out / "runs" / name.replace(" ", "-")))
    needed = {d: stores[d] for d in stores if any(d in (one.source, one.target) for one in plan)}
    results = evaluate(scenes, needed, translator, plan)
    found = {str(result.comparison): 100 * area(np.array(result.mean.mma)) for result in results}
    console.info(
        f"{name or 'untrained'}: "
        + ", ".join(f"{r.comparison.label} {found[str(r.comparison)]:.1f} %" for r in results)
    )
    return {"areas": found}


def trained(config: TrainConfig, data: Path, workdir: Path) -> Path:
    """The model file of a training, which goes on where it was stopped."""
    from xdesc_jax.export.export import export
    from xdesc_jax.train.translators.stage import train

    with console.inner():
        return export(train(data=data, workdir=workdir, config=config), workdir / "model.safetensors", which="latest")
