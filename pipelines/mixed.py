"""The shipped translator `mixed`: photos -> records of SIFT and of learned rows -> training -> model with its card.

    python -m pipelines.mixed --photos PHOTOS --scenes SCENES --calibration OTHER_SCENES --out runs/mixed

A map of COLMAP's SIFT serves devices that send XFeat or ALIKED, and the other way round. Rows of all three stand at
COLMAP's keypoints. SCENES give the figures of the card, OTHER_SCENES (`xdesc scenes`, of photos kept out of training)
the matching ratios. Finished steps are skipped, and extraction and training go on where they stopped. Needs the extra
`learned` and its weights (`xdesc weights install xfeat aliked-n16rot`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipelines.pretrained import MAX_KEYPOINTS, card
from xdesc_jax import console
from xdesc_jax.config import TrainConfig, load_config
from xdesc_jax.data.records import records
from xdesc_jax.evaluate.calibrate import calibrate
from xdesc_jax.evaluate.stages.homography import homography
from xdesc_jax.export.export import export
from xdesc_jax.files.whole import write_json
from xdesc_jax.train.translators.run import train

NAMES = ("colmap-sift", "xfeat", "aliked-n16rot")
KEYPOINTS = "colmap"


def mixed(
    *,
    photos: Path,
    scenes: Path,
    calibration: Path,
    out: Path,
    rows_per_photo: int = 1200,
    weights: tuple[str, ...] = (),
) -> Path:
    """Trains the translator and writes its model file and card.

    Args:
        photos: folder of photos to train on.
        scenes: scenes with known homographies, for the card's figures.
        calibration: other such scenes, for the matching ratios.
        out: folder for everything that is made; the model is OUT/mixed.safetensors, its card OUT/mixed.json.
        rows_per_photo: the most rows of a photo that it is trained on.
        weights: NAME=FILE weight files of the networks, where they are not installed.

    Returns:
        The model file.
    """
    config: TrainConfig = load_config("mixed")
    records(
        out / "records", photos=photos, keypoints=KEYPOINTS, descriptors=NAMES, weights=weights, format="npy",
        patches=False, max_rows_per_photo=rows_per_photo,
    )  # fmt: skip
    train(config, out / "records", out / "run")
    raw, model = out / "mixed-raw.safetensors", out / "mixed.safetensors"
    export(out / "run", raw, dtype="float16")
    calibrate(
        raw, calibration, out=model, keypoints=KEYPOINTS, max_keypoints=MAX_KEYPOINTS, weights=weights, overwrite=True
    )
    results = homography(
        scenes, out=out / "homography", model=model, keypoints=KEYPOINTS, max_keypoints=MAX_KEYPOINTS,
        descriptors=NAMES, weights=weights,
    )  # fmt: skip
    write_json(model.with_suffix(".json"), card("mixed", model, [out / "run"], results) | {"keypoints": KEYPOINTS})
    console.result(model)
    return model


if __name__ == "__main__":
    from xdesc_jax.cli import run_function

    sys.exit(run_function(mixed))
