"""The shipped translator `mixed`: photos -> records of SIFT and of learned rows -> trainings -> model with its card.

    python -m pipelines.mixed --photos PHOTOS --scenes SCENES --calibration OTHER_SCENES --out runs/mixed

A map of COLMAP's SIFT serves devices that send XFeat or ALIKED, and the other way round. Rows of all descriptors stand
at COLMAP's keypoints, and those of the networks at each network's own, too, where it looks when it is used. Three
descriptors make the joint space; the others are trained with them from there, and then added to that very space, in
which six of the eight learn on, against more negatives of the same photo. At last decoders learn from the encoders as
they are now. SCENES give the figures of the card, OTHER_SCENES (`xdesc scenes`, of photos kept out of training) the
matching ratios.
Finished steps are skipped, and rendering, extraction and training go on where they stopped. Needs the extra `learned`
and its weights (`xdesc weights install xfeat aliked-n16rot aliked-n16 disk`), of which DISK's takes the most time.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from pipelines.pretrained import MAX_KEYPOINTS, card, write_card
from xdesc_jax import console
from xdesc_jax.config import TrainConfig, load_config
from xdesc_jax.data.records import records
from xdesc_jax.data.views import ViewSettings, views
from xdesc_jax.descriptors import get_spec
from xdesc_jax.evaluate.calibrate import calibrate
from xdesc_jax.evaluate.stages.homography import homography
from xdesc_jax.export.export import export
from xdesc_jax.features.extract import extract
from xdesc_jax.networks.frames import IMAGE
from xdesc_jax.train.translators.run import train

KEYPOINTS = "colmap"
ADDED = ("aliked-n16", "disk", "opencv-sift", "orb", "brief")
SOURCES, DECODERS = ("colmap-sift", "opencv-sift", "orb"), ("xfeat", "aliked-n16rot", "disk")  # of the last training
FURTHER = (("colmap-sift", "opencv-sift", "orb"), ("disk", "aliked-n16", "brief"))  # learn on together


def mixed(
    *,
    photos: Path,
    scenes: Path,
    calibration: Path,
    out: Path,
    views_per_photo: int = 1,
    side: int | None = 640,
    weights: tuple[str, ...] = (),
    processes: int = 2,
) -> Path:
    """Trains the translator and writes its model file and card.

    Args:
        photos: folder of photos to train on.
        scenes: scenes with known homographies, for the card's figures.
        calibration: other such scenes, for the matching ratios.
        out: folder for everything that is made; the model is OUT/mixed.safetensors, its card OUT/mixed.json.
        views_per_photo: rendered views of each photo that it is trained on too: turned, scaled and relit.
        side: the longer side of photos and views, in px.
        weights: NAME=FILE weight files of the networks, where they are not installed.
        processes: that render, and find keypoints.

    Returns:
        The model file.
    """
    config: TrainConfig = load_config("mixed")
    names = (*config.descriptors, *ADDED)
    learned = tuple(name for name in names if get_spec(name).frame == IMAGE)
    own = {name: learned for name in learned if len(learned) > 1}
    views(photos, out / "photos", settings=ViewSettings(views=views_per_photo, side=side), processes=processes)
    sets = {KEYPOINTS: names} | own
    for keypoints, described in sets.items():
        extract(
            out / "photos", out / "features" / keypoints, keypoints=keypoints, descriptors=described,
            weights=tuple(word for word in weights if word.partition("=")[0] in described),
            max_keypoints=MAX_KEYPOINTS, processes=processes,
        )  # fmt: skip
    paired = tuple(out / "features" / keypoints for keypoints in sets)
    records(out / "records", paired=paired, format="npy", split_by="folder")
    models = {n: out / f"{n}.safetensors" for n in ("first", "second", "together", "added", "mixed")}
    train(config, out / "records", out / "first")
    export(out / "first", models["first"], which="latest")
    train(again(config), out / "records", out / "second", init=models["first"])
    export(out / "second", models["second"], which="latest", dtype="float16")
    train(together(config), out / "records", out / "together", init=models["second"])
    export(out / "together", models["together"], which="latest")
    train(
        added(config), out / "records", out / "added",
        init=models["second"], freeze="all", add=ADDED, start=models["together"],
    )  # fmt: skip
    export(out / "added", models["added"], which="latest", dtype="float16")
    trainings, latest = [out / name for name in ("first", "second", "together", "added")], models["added"]
    for number, some in enumerate(FURTHER, 1):
        trainings.append(out / f"further-{number}")
        train(
            further(config), out / "records", trainings[-1],
            init=latest, freeze="all", retrain=some, start=latest,
        )  # fmt: skip
        latest = out / f"further-{number}.safetensors"
        export(trainings[-1], latest, which="latest", dtype="float16")
    trainings.append(out / "decoders")
    train(decoded(config), out / "records", trainings[-1], init=latest, freeze="all", decoders=DECODERS)
    latest = out / "decoders.safetensors"
    export(trainings[-1], latest, which="latest", dtype="float16")
    model = models["mixed"]
    calibrate(
        latest, calibration, out=model, keypoints=KEYPOINTS, max_keypoints=MAX_KEYPOINTS, weights=weights,
        overwrite=True,
    )  # fmt: skip
    results = homography(
        scenes, out=out / "homography", model=model, keypoints=KEYPOINTS, max_keypoints=MAX_KEYPOINTS,
        descriptors=names, weights=weights, processes=processes,
    )  # fmt: skip
    write_card(model, card("mixed", model, trainings, results) | {"keypoints": KEYPOINTS})
    console.result(model)
    return model


def again(config: TrainConfig) -> TrainConfig:
    """The second training: the same rows in another order, from a slightly lower rate down to zero."""
    return dataclasses.replace(config, data_seed=1, optimizer=dataclasses.replace(config.optimizer, learning_rate=8e-4))


def together(config: TrainConfig) -> TrainConfig:
    """All descriptors in one space, from that of the second training, which moves: where the added ones start from.

    A random target a source and step, with eight descriptors three times the rows in the time of all pairs. Every
    encoder looks at its neighbours.
    """
    return dataclasses.replace(
        config,
        descriptors=(*config.descriptors, *ADDED),
        data_seed=3,
        model=dataclasses.replace(config.model, context=dataclasses.replace(config.model.context, of="every")),
        loss=dataclasses.replace(config.loss, variant="linear"),
    )


def added(config: TrainConfig) -> TrainConfig:
    """The added descriptors alone, likewise, towards the space of the second training, which stays as it is."""
    steps = dataclasses.replace(config.optimizer, learning_rate=6e-4, warmup_steps=50)
    return dataclasses.replace(together(config), descriptors=config.descriptors, data_seed=4, optimizer=steps)


def further(config: TrainConfig) -> TrainConfig:
    """Some of them once more in the same space, each quarter of a batch of one photo."""
    steps = dataclasses.replace(config.optimizer, learning_rate=5e-4, warmup_steps=50)
    return dataclasses.replace(added(config), descriptors=(), data_seed=5, rows_a_photo=128, optimizer=steps)


def decoded(config: TrainConfig) -> TrainConfig:
    """The decoders of the learned descriptors, to which all translations are made in every step."""
    return dataclasses.replace(
        further(config),
        descriptors=(*SOURCES, *DECODERS),
        data_seed=6,
        loss=dataclasses.replace(config.loss, beta=1.0),
        optimizer=dataclasses.replace(config.optimizer, warmup_steps=50),
    )


if __name__ == "__main__":
    from xdesc_jax.cli import run_function

    sys.exit(run_function(mixed))
