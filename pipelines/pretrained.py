"""The translators that ship with the package: photos -> records -> trainings -> two models with their cards.

    python -m pipelines.pretrained --photos PHOTOS --scenes SCENES --calibration OTHER_SCENES --out runs/pretrained

A base is trained on OpenCV's keypoints in two steps: the losses of all pairs first, then with those in the targets'
own spaces. What either detector brings besides is added to its joint space, so that embeddings of both models compare.
SCENES give the figures of the cards, OTHER_SCENES (`xdesc scenes`, of photos kept out of training) the matching
ratios. Finished steps are skipped, and training goes on where it stopped. The base wants an accelerator.
"""

from __future__ import annotations

import dataclasses
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from xdesc_jax import console
from xdesc_jax.config import OptimizerConfig, TrainConfig, load_config
from xdesc_jax.data.describe import describe
from xdesc_jax.data.records import records
from xdesc_jax.evaluate.calibrate import calibrate
from xdesc_jax.evaluate.homography import Result
from xdesc_jax.evaluate.stages.homography import homography
from xdesc_jax.export.export import export
from xdesc_jax.files.whole import read_json, write_json
from xdesc_jax.train.translators.run import train
from xdesc_jax.translation.ratios import key
from xdesc_jax.translation.translator import Translator

LEARNED = ("hardnet-xdesc", "sosnet-xdesc")
ADDED = {"opencv": ("teblid-512",), "colmap": ("colmap-sift", "teblid-512")}
MAX_KEYPOINTS = 2000  # of a photo


def pretrained(
    *,
    photos: Path,
    scenes: Path,
    calibration: Path,
    out: Path,
    rows_per_photo: int = 800,
    added_rows_per_photo: int = 800,
    processes: int = 2,
) -> list[Path]:
    """Trains both translators and writes their model files and cards.

    Args:
        photos: folder of photos to train on.
        scenes: scenes with known homographies, for the cards' figures.
        calibration: other such scenes, for the matching ratios.
        out: folder for everything that is made; a model is OUT/<name>.safetensors, its card OUT/<name>.json.
        rows_per_photo: rows of a photo that the base is trained on.
        added_rows_per_photo: rows of a photo that the added descriptors are trained on.
        processes: that extract.

    Returns:
        The model files.
    """
    config: TrainConfig = load_config("pretrained")
    data = rows(out / "records", photos, "opencv", config.descriptors, rows_per_photo, processes)
    train(config, data, out / "first")
    export(out / "first", out / "first.safetensors", which="latest")
    train(finish(config), data, out / "base", init=out / "first.safetensors")
    export(out / "base", out / "base.safetensors", which="latest", dtype="float16")
    models = []
    for kind, names in ADDED.items():
        members = tuple(n for n in config.descriptors if kind == "opencv" or n != "opencv-sift")
        data = rows(out / f"records-{kind}", photos, kind, (*members, *names), added_rows_per_photo, processes)
        train(load_config("pretrained_added"), data, out / kind, init=out / "base.safetensors", freeze="all", add=names)
        raw, model = out / f"{kind}-raw.safetensors", out / f"{kind}.safetensors"
        export(out / kind, raw, which="latest", dtype="float16")
        calibrate(raw, calibration, out=model, keypoints=kind, overwrite=True)
        results = homography(
            scenes, out=out / f"homography-{kind}", model=model, keypoints=kind, max_keypoints=MAX_KEYPOINTS,
            descriptors=(*members, *names), processes=processes,
        )  # fmt: skip
        write_card(model, card(kind, model, [out / "first", out / "base", out / kind], results))
        models.append(model)
    console.result(", ".join(map(str, models)))
    return models


def rows(out: Path, photos: Path, kind: str, descriptors: Sequence[str], per_photo: int, processes: int) -> Path:
    """Records of these descriptors: those of photos and patches first, then the learned ones from the patches."""
    patches = out.with_name(f"{out.name}-patches")
    records(
        patches, photos=photos, keypoints=kind, max_keypoints=MAX_KEYPOINTS, max_rows_per_photo=per_photo,
        descriptors=tuple(n for n in descriptors if n not in LEARNED), processes=processes, format="npy",
    )  # fmt: skip
    if not (learned := tuple(n for n in descriptors if n in LEARNED)):
        return patches
    describe(patches, out, descriptors=learned)
    return out


def finish(config: TrainConfig) -> TrainConfig:
    """The second training of the base: with the losses in the targets' own spaces, down to a rate of zero."""
    return dataclasses.replace(
        config,
        epochs=7,
        loss=dataclasses.replace(config.loss, beta=1.0),
        optimizer=OptimizerConfig(learning_rate=5e-4, schedule="cosine", warmup_steps=100),
    )


def card(kind: str, model: Path, runs: Sequence[Path], results: Sequence[Result]) -> dict[str, Any]:
    """What the package says of a shipped translator; see `xdesc_jax.pretrained`."""
    translator = Translator.load(model)
    settings = {run.name: read_json(run / "config.json") for run in runs}
    counts = {name: found["data"]["rows"]["train"] for name, found in settings.items()}
    steps = {run.name: read_json(run / "validation.json")[-1]["step"] for run in runs}
    return {
        "name": kind,
        "kind": "translator",
        "descriptors": list(translator.names),
        "keypoints": kind,
        "space_id": translator.space_id,
        "data": ", ".join(f"{name}: {count} rows" for name, count in counts.items()),
        "rows": max(counts.values()),
        "steps": sum(steps.values()),
        "steps_by_training": steps,
        "hardware": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "date": datetime.date.today().isoformat(),
        "config_hash": settings[runs[-1].name]["hash"],
        "command": "python -m pipelines.pretrained " + " ".join(sys.argv[1:]),
        "figures": {"homography": matrices(results)},
    }


def write_card(model: Path, about: dict[str, Any]) -> None:
    """Writes a model's card beside it; what people added to the card of the same model, as its `limits`, stays."""
    path, same = model.with_suffix(".json"), ("space_id", "config_hash", "steps")
    before = read_json(path) if path.exists() else {}
    kept = before if all(before.get(key) == about[key] for key in same) else {}
    write_json(path, {**kept, **about})


def matrices(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """AP of each native descriptor, of each translation and of each pair in the joint space."""
    figures: dict[str, dict[str, float]] = {"native": {}, "translation": {}, "joint": {}}
    for result in results:
        mode, source, target = dataclasses.astuple(result.comparison)
        if mode != "naive":
            group = "translation" if mode == "translated" else mode
            figures[group][key(mode, source, target)] = round(result.mean.ap, 4)
    return figures


if __name__ == "__main__":
    from xdesc_jax.cli import run_function

    sys.exit(run_function(pretrained))
