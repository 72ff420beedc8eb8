"""The main job from end to end, on photos that come with scikit-image; some minutes on two CPU cores.

    python -m pipelines.demo --out demo

Photos -> keypoints, patches, three descriptors -> records -> a small translator -> one model file -> matching
on photos that were not trained on: warped views with known homographies, and the stereo pair 'motorcycle'
with its measured disparity, whose right photo is then localised in a map of the left one; where XFeat is installed,
also with the shipped translator `mixed`, between COLMAP's SIFT and XFeat at its own keypoints. Prints tables and
writes `report.html`, `localization.html`, `matches.png`, and `corner/`, a rendered scene to try the stages for
maps on. Nothing is downloaded: `brief`, `sift` and `opencv-sift` need no weights. Finished steps are skipped.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import skimage.data

from xdesc_jax import console, pretrained
from xdesc_jax.config import load_config
from xdesc_jax.data.records import records
from xdesc_jax.evaluate.drawing import matches_grid
from xdesc_jax.evaluate.homography import Comparison, Result, evaluate, matches_of
from xdesc_jax.evaluate.report import Evaluation, figures, matched_pictures, table_label, write_report
from xdesc_jax.evaluate.scenes import PhotoPair, Scene, by_disparity, find_scenes
from xdesc_jax.evaluate.stages.homography import given_stores
from xdesc_jax.export.export import export
from xdesc_jax.features.extract import extract
from xdesc_jax.features.extractors.process import require_learned
from xdesc_jax.features.images import read_gray, write_png
from xdesc_jax.features.official import weight_file
from xdesc_jax.files.whole import already_done, atomic, config_hash, content_hash, read_json, write_json
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Column, Number, Section, Table
from xdesc_jax.reports.settings import Settings
from xdesc_jax.train.translators.run import train
from xdesc_jax.translation.translator import Translator

from . import corner, motorcycle
from .views import ViewSettings, random_view, write_scene

DESCRIPTORS = ("brief", "sift", "opencv-sift")
# All of them are in the wheel; none is fetched.
TRAINING_PHOTOS = (
    "astronaut", "brick", "camera", "cell", "coins", "gravel", "hubble_deep_field", "immunohistochemistry",
    "moon", "page", "retina", "text",
)  # fmt: skip
TEST_PHOTOS = ("chelsea", "coffee", "grass", "rocket")
PARTS = ("train", "warped", "stereo")
# What the pictures show: two translations into one descriptor, what it gives natively, and no translation.
DRAWN = (
    Comparison("native", "sift", "sift"),
    Comparison("translated", "brief", "sift"),
    Comparison("translated", "opencv-sift", "sift"),
    Comparison("naive", "opencv-sift", "sift"),
)
TEXT = (
    "This translator was trained within minutes on views of a dozen photos, to show that the parts work "
    "together. It is not one to use: translators trained on many photos are far better, as those are "
    "that ship with the package."
)
WARPED_TEXT = (
    "Four photos that were not trained on, each matched to five views of it under random homographies, in "
    "other light, blurred and noisy."
)
LOCALIZATION_TEXT = (
    "The left photo of the stereo pair is the map: its keypoints get 3D points from the measured disparity. The right "
    "one is localised with each descriptor (\u2190: another than the map's), and its position compared with the rig's "
    "baseline of 193 mm."
)
LEARNED = ("colmap-sift", "xfeat")  # each at its own detector's keypoints
LEARNED_TEXT = (
    "The same with the translator 'mixed', which ships with the package: COLMAP's SIFT and XFeat, each at the "
    "keypoints of its own detector, in the joint space."
)
STEREO_TEXT = (
    "The two photos of the Middlebury pair 'Motorcycle' (2014), not trained on. Truth is the measured "
    "disparity; keypoints where there is none do not count."
)


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """What is made of the photos."""

    seed: int = 0
    """Of the views."""
    training_views: int = 6
    """Views of each training photo."""
    test_views: int = 5
    """Views of each test photo, from weak to strong."""
    max_keypoints: int = 1000
    """The strongest that are kept of each photo."""
    views: ViewSettings = ViewSettings()
    training_photos: tuple[str, ...] = TRAINING_PHOTOS
    test_photos: tuple[str, ...] = TEST_PHOTOS


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Photos that were not trained on."""

    title: str
    text: str
    photos: Path
    """Their folder; names in scenes are relative to it."""
    scenes: list[Scene]
    drawn: PhotoPair
    """The pair that pictures show."""

    def gray(self) -> tuple[np.ndarray, np.ndarray]:
        """Both photos of the drawn pair, uint8 [H, W]."""
        return read_gray(self.photos / self.drawn.query), read_gray(self.photos / self.drawn.database)


def main(out: Path = Path("demo")) -> None:
    """Trains and evaluates a small translator on the photos of scikit-image.

    Args:
        out: folder for everything that is made.
    """
    start = time.monotonic()
    settings = DemoSettings()
    photos = write_photos(out / "photos", settings)
    corner.save_scene(out / "corner")
    stores = {part: features(photos / part, out / "features" / part, settings) for part in PARTS}
    info = records(out / "records", paired=tuple(stores["train"].values()))
    run = train(load_config("tiny"), info.path, out / "run")
    translator = Translator.load(export(run, out / "model.safetensors"))

    results: dict[str, list[Result]] = {}
    evaluations = []
    for part, test in held_out(photos).items():
        results[part] = evaluate(test.scenes, stores[part], translator)
        pictures = matched_pictures(test.drawn, test.gray(), stores[part], translator, DRAWN)
        names = f"{test.drawn.query} and {test.drawn.database}"
        evaluations.append(Evaluation(test.title, test.text, results[part], names, pictures))
    write_grid(out / "matches.png", held_out(photos)["stereo"], stores["stereo"], translator)
    write_json(out / "results.json", {part: [r.to_dict() for r in found] for part, found in results.items()})
    localised = motorcycle.localise(stores["stereo"], stereo_pair()[2], translator)
    learned = localise_learned(photos / "stereo", out / "features" / "learned")
    write_json(out / "localization.json", [dataclasses.asdict(found) for found in (*localised, *learned)])
    used = Settings.of(dataclasses.asdict(settings), dataclasses.asdict(DemoSettings()))
    provenance = {
        "made by": "pipelines.demo", "model": f"model.safetensors (sha256 {content_hash(out / 'model.safetensors')})",
        "photos": "those that come with scikit-image",
    }  # fmt: skip
    report = write_report(
        out / "report.html", "Translating descriptors: the demo", evaluations, text=TEXT, settings=used,
        provenance=provenance, model=translator,
    )  # fmt: skip
    rows, learned_rows = motorcycle.table_rows(localised), motorcycle.table_rows(learned)
    heads = [Column(c, text=True) if i < 2 else Column.of(c) for i, c in enumerate(motorcycle.COLUMNS)]
    sections = [Section("Right photo in a map of the left one", [Table(heads, rows)], LOCALIZATION_TEXT)]
    if learned:
        sections.append(Section("A map of COLMAP's SIFT, and XFeat", [Table(heads, learned_rows)], LEARNED_TEXT))
    poses = write_page(
        out / "localization.html", "Localisation across descriptors: the demo", poses_answer(localised),
        sections, settings=used, provenance=provenance,
    )  # fmt: skip
    print_table(results["warped"], results["stereo"])
    console.table("Right photo of the stereo pair, localised in a map of the left one", motorcycle.COLUMNS, rows)
    if learned:
        console.table(
            "The same by the translator that ships, each at its own keypoints", motorcycle.COLUMNS, learned_rows
        )
    console.info(f"{TEXT}\ntook {time.monotonic() - start:,.0f} s")
    console.result(out, report=report, localization=poses)


@functools.cache
def stereo_pair() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left and right photo, uint8 [H, W, 3], and the left one's disparity, [H, W] px; read once, not to be changed."""
    left, right, disparity = skimage.data.stereo_motorcycle()
    return left, right, disparity


def write_photos(folder: Path, settings: DemoSettings) -> Path:
    """Writes the views to train on (`train`), the scenes (`warped`) and the stereo pair (`stereo`)."""
    expected, marker = config_hash(settings), folder / "photos.json"
    if already_done(folder, read_json(marker)["hash"] if marker.exists() else None, expected, overwrite=False):
        return folder
    rng = np.random.default_rng(settings.seed)
    with atomic(folder) as temporary:
        for name in settings.training_photos:
            photo = getattr(skimage.data, name)()
            for k in range(settings.training_views):
                view, _ = random_view(rng, photo, k / max(1, settings.training_views - 1), settings.views)
                write_png(temporary / "train" / name / f"{k + 1}.png", view)
        for name in settings.test_photos:
            photo = getattr(skimage.data, name)()
            write_scene(temporary / "warped" / name, photo, settings.test_views, rng, settings.views)
        left, right, _ = stereo_pair()
        write_png(temporary / "stereo" / "motorcycle" / "left.png", left)
        write_png(temporary / "stereo" / "motorcycle" / "right.png", right)
        write_json(temporary / "photos.json", {"hash": expected, "settings": dataclasses.asdict(settings)})
    return folder


def features(photos: Path, out: Path, settings: DemoSettings) -> dict[str, Path]:
    """Extracts all descriptors of a folder of photos; gives the feature file of each."""
    extract(
        photos,
        out,
        descriptors=DESCRIPTORS,
        keypoints="opencv",
        max_keypoints=settings.max_keypoints,
        processes=2,
    )
    return given_stores([out], DESCRIPTORS)


def localise_learned(photos: Path, out: Path) -> list[motorcycle.Found]:
    """The stereo pair between COLMAP's SIFT and XFeat by `mixed`; nothing where XFeat is not installed, which is said.

    Args:
        photos: folder that holds the pair.
        out: folder for the features.
    """
    try:
        require_learned("xfeat")
        weight_file("xfeat")
    except ValueError as error:
        console.info(f"without XFeat ({error})")
        return []
    for name, keypoints in zip(LEARNED, ("colmap", "xfeat"), strict=True):
        extract(photos, out / name, descriptors=(name,), keypoints=keypoints, max_keypoints=1000)
    stores = {name: out / name / f"{name}.h5" for name in LEARNED}
    mixed = Translator.load(pretrained.path("mixed"))
    return motorcycle.localise(stores, stereo_pair()[2], mixed, ("native", "embed"))


def held_out(photos: Path) -> dict[str, HeldOut]:
    """The two test sets by the names of their folders; in the stereo pair, the left photo is the query."""
    warped = find_scenes(photos / "warped")
    middle = warped[0].pairs[len(warped[0].pairs) // 2]  # neither the easiest nor the hardest view
    stereo = PhotoPair("motorcycle/left.png", "motorcycle/right.png", by_disparity(stereo_pair()[2]))
    return {
        "warped": HeldOut("Warped views", WARPED_TEXT, photos / "warped", warped, middle),
        "stereo": HeldOut("Stereo pair", STEREO_TEXT, photos / "stereo", [Scene("motorcycle", (stereo,))], stereo),
    }


def write_grid(path: Path, test: HeldOut, stores: Mapping[str, Path], translator: Translator) -> None:
    """Writes one picture of all that `DRAWN` names."""
    matched = matches_of(test.drawn, stores, translator, DRAWN)
    panels = [(f"{c.mode} {c.label}", found) for c, found in zip(DRAWN, matched, strict=True)]
    with atomic(path) as temporary:
        temporary.write_bytes(matches_grid(*test.gray(), panels))


def poses_answer(found: Sequence[motorcycle.Found]) -> Answer:
    """How near translated queries come to the true position, against native ones."""
    errors = {
        mode: [f.position_mm for f in found if f.mode == mode and f.position_mm is not None]
        for mode in ("native", "directional", "embed")
    }
    count = sum(f.mode == "directional" for f in found)
    sentence = f"{len(errors['directional'])} of {count} translated queries find the camera"
    labels = {
        "native": "median error, native", "directional": "median error, query translated",
        "embed": "median error, joint space",
    }  # fmt: skip
    medians = {mode: float(np.median(values)) for mode, values in errors.items() if values}
    if "directional" in medians and "native" in medians:
        sentence += f", by the median {medians['directional']:.1f} mm off (native {medians['native']:.1f} mm)"
    return Answer(sentence + ".", [Number(f"{value:.1f}", labels[mode], "mm") for mode, value in medians.items()])


def print_table(warped: Sequence[Result], stereo: Sequence[Result]) -> None:
    """One row per comparison: AP, MMA, correct matches and precision on both test sets."""
    names = {"AP": "AP", "MMA": "MMA", "correct": "correct", "precision": "prec."}
    columns = [f"{part}\n{short}" for part in ("warped", "stereo") for short in names.values()]
    rows = []
    for pair in zip(warped, stereo, strict=True):
        cells = [figures(result.mean)[name] for result in pair for name in names]
        rows.append([table_label(pair[0].comparison), *cells])
    console.table("Photos not trained on (->: translated, |: joint space)", ["query, database", *columns], rows)


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(main))
