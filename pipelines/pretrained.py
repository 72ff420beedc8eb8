"""The translators that ship with the package: photos -> records -> two trainings -> one model with its card.

    python -m pipelines.pretrained opencv --photos PHOTOS --scenes SCENES --calibration OTHER_SCENES --out runs/opencv
    python -m pipelines.pretrained colmap --photos PHOTOS --scenes SCENES --calibration OTHER_SCENES --out runs/colmap

The cheap linear loss first, then a finish with the losses of all pairs. SCENES give the figures of the card,
OTHER_SCENES (`xdesc scenes`, of photos kept out of training) the matching ratios. Finished steps are skipped, and
training goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import datetime
import platform
import sys
from pathlib import Path
from typing import Any, Literal

import tyro

from configs import pretrained_colmap, pretrained_opencv
from xdesc_jax import console
from xdesc_jax.config import OptimizerConfig, TrainConfig
from xdesc_jax.data.records import records
from xdesc_jax.evaluate.calibrate import calibrate
from xdesc_jax.evaluate.command import homography
from xdesc_jax.evaluate.homography import Result
from xdesc_jax.export import export
from xdesc_jax.files import read_json, write_json
from xdesc_jax.infer import Translator
from xdesc_jax.train.run import train

CONFIGS = {"opencv": pretrained_opencv, "colmap": pretrained_colmap}
MAX_KEYPOINTS = 2000  # of a photo of the scenes, as in the README's tables


def pretrained(
    kind: Literal["opencv", "colmap"],
    *,
    photos: Path,
    scenes: Path,
    calibration: Path,
    out: Path,
    max_rows_per_photo: int = 300,
    processes: int = 2,
) -> Path:
    """Trains one of the two translators and writes its model file and card.

    Args:
        kind: the detector, and the name of the translator.
        photos: folder of photos to train on.
        scenes: scenes with known homographies, for the card's figures.
        calibration: other such scenes, for the matching ratios.
        out: folder for everything that is made; the model is OUT/<kind>.safetensors, the card OUT/<kind>.json.
        max_rows_per_photo: rows of a photo that become records.
        processes: that extract.

    Returns:
        The model file.
    """
    config = CONFIGS[kind].get_config()
    data, model = out / "records", out / f"{kind}.safetensors"
    records(
        data, photos=photos, descriptors=config.descriptors, keypoints=kind, max_keypoints=1000, patches=False,
        max_rows_per_photo=max_rows_per_photo, processes=processes, format="npy",
    )  # fmt: skip
    train(config, data, out / "linear")
    export(out / "linear", out / "linear.safetensors")
    train(finish(config), data, out / "quadratic", init=out / "linear.safetensors")
    export(out / "quadratic", out / "uncalibrated.safetensors", dtype="float16")
    calibrate(out / "uncalibrated.safetensors", calibration, out=model)
    results = homography(scenes, out=out / "homography", model=model, keypoints=kind, max_keypoints=MAX_KEYPOINTS)
    write_json(out / f"{kind}.json", card(kind, model, config, data, results))
    console.out.print(f"model: {model}, card: {model.with_suffix('.json')}", markup=False)
    return model


def finish(config: TrainConfig) -> TrainConfig:
    """The second training: all pairs, one epoch down to a rate of zero."""
    return dataclasses.replace(
        config,
        epochs=1,
        loss=dataclasses.replace(config.loss, variant="quadratic"),
        optimizer=OptimizerConfig(learning_rate=5e-4, schedule="cosine"),
    )


def card(kind: str, model: Path, config: TrainConfig, data: Path, results: list[Result]) -> dict[str, Any]:
    """What the package says of a shipped translator; see `xdesc_jax.pretrained`."""
    translator = Translator.load(model)
    figures: dict[str, dict[str, float]] = {"native": {}, "translation": {}, "joint": {}}
    groups = {"native": ("native", ""), "translated": ("translation", "->"), "joint": ("joint", "|")}
    for result in results:
        if result.comparison.mode in groups:
            group, sign = groups[result.comparison.mode]
            source, target = result.comparison.source, result.comparison.target
            figures[group][f"{source}{sign}{target}" if sign else source] = round(result.mean.ap, 4)
    found = read_json(data / "records.json")
    rows = {split: sum(shards) for split, shards in found["shards"].items()}
    steps = {name: read_json(model.parent / name / "validation.json")[-1]["step"] for name in ("linear", "quadratic")}
    return {
        "name": kind,
        "kind": "translator",
        "descriptors": list(translator.names),
        "keypoints": kind,
        "space_id": translator.space_id,
        "data": f"{len(found['photos'])} photos, {rows['train']} rows to train on, {rows['validation']} to validate",
        "records_hash": found["config_hash"],
        "rows": rows["train"],
        "steps": sum(steps.values()),
        "steps_by_training": steps,
        "hardware": f"{platform.machine()}, {platform.system()}",
        "date": datetime.date.today().isoformat(),
        "config_hash": config.hash,
        "command": "python -m pipelines.pretrained " + " ".join(sys.argv[1:]),
        "figures": {"homography": figures},
    }


if __name__ == "__main__":
    tyro.cli(pretrained)
