"""Small valid files of every kind that the package reads.

In: an empty folder. Out: the file, or the folder that is read as one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tests.support import sweep_records
from tests.support.context_translators import context_translator
from tests.support.databases import make_3, make_4
from tests.support.small_translators import EMBEDDING_WIDTH, SPECS, encoder_decoder, layers, pairs, rows
from xdesc_jax.descriptors import stored
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.matching.matches import Extent, MatchWriter

PHOTOS = ("a b.jpg", "b/\u00e9.jpg", "c.jpg")


def binary_features(folder: Path) -> Path:
    return features(folder, "bits")


def features(folder: Path, name: str = "grid") -> Path:
    """Three photos of 9, 0 and 4 rows, with all that a photo may have."""
    spec, rng = SPECS[name], np.random.default_rng(0)
    with StoreWriter(
        folder / "features.h5", spec, {"ratios": '{"grid": 0.8}', "config_hash": "0123456789ab"}
    ) as writer:
        for photo, n in zip(PHOTOS, (9, 0, 4), strict=True):
            xy = rng.uniform(0, 99, (n, 2)).astype(np.float32)
            held = stored(rows(n, n)[name], spec)
            frames = {"scales": np.ones(n, np.float32), "oris": np.zeros(n, np.float32)}
            frames = frames if n == 9 else {"affine": np.zeros((n, 2, 2), np.float32)}
            valid = np.arange(n) != 1
            own = {"real": np.ones(n, bool), "scores": np.linspace(0, 1, n, dtype=np.float32)}
            writer.write(photo, ImageFeatures(xy, held, valid, (100, 80), **own, **frames))
    return folder / "features.h5"


def matches(folder: Path) -> Path:
    extents = tuple(Extent(n, np.array([n, 2.5])) for n in (9, 4))
    with MatchWriter(folder / "matches.h5", {"config_hash": "0123456789ab"}) as writer:
        writer.write(PHOTOS[0], PHOTOS[2], 9, np.array([[0, 3], [8, 1]], np.int32), np.array([0.5, 1], "f4"), extents)
        writer.write(PHOTOS[0], PHOTOS[1], 9, np.zeros((0, 2), np.int32), np.zeros(0, "f4"))
    return folder / "matches.h5"


def listed_matches(folder: Path) -> Path:
    """As deep-image-matching writes them: the rows themselves."""
    import h5py

    with h5py.File(folder / "matches.h5", "w") as file:
        file["a.jpg/b.jpg"] = np.array([[0, 3], [8, 1]])
        file["a.jpg/c.jpg"] = np.zeros((0, 2), int)
    return folder / "matches.h5"


def model(folder: Path) -> Path:
    return encoder_decoder().save(folder / "model.safetensors")


def pair_model(folder: Path) -> Path:
    return pairs(sample=False).save(folder / "model.safetensors", "int8")


def context_model(folder: Path) -> Path:
    return context_translator().save(folder / "model.safetensors")


def npz_model(folder: Path) -> Path:
    return encoder_decoder().save(folder / "model.npz")


def database_3(folder: Path) -> Path:
    return make_3(folder / "database.db")


def database_4(folder: Path) -> Path:
    """As `xdesc translate` leaves one of COLMAP 4, with our tables."""
    from xdesc_jax.colmap.database_writer import DatabaseWriter

    source = make_4(folder / "source.db")
    with DatabaseWriter(source, folder / "database.db") as writer:
        for image_id, name in list(enumerate(writer.ids))[:3]:
            writer.set_descriptors(name, np.full((20 + image_id, 9), 0.5, np.float32), SPECS["plain"], "grid")
        writer.set_attribute("ratios", '{"grid->plain": 0.7}')
    for path in folder.glob("source.db*"):
        path.unlink()
    return folder / "database.db"


def binary_map(folder: Path) -> Path:
    from xdesc_jax.colmap.bindings.api import pycolmap

    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = 2, 2, 2, 9
    pycolmap.set_random_seed(0)
    made = pycolmap.synthesize_dataset(options)
    (folder / "map").mkdir()
    made.write(folder / "map")
    return folder / "map"


def foreign_map(folder: Path, format: str = "openmvg", kind: str = "pinhole_brown_t2") -> Path:
    """A model of another program, with the files beside it that it needs."""
    from tests.support.foreign_scenes import WRITERS, true_scene

    (folder / "map").mkdir()
    path, _ = WRITERS[format](folder / "map", true_scene(3), kind)
    path.rename(folder / "map" / path.name)
    return folder / "map"


def text_map(folder: Path) -> Path:
    from xdesc_jax.colmap.bindings.api import open_model

    binary = open_model(binary_map(folder))
    for path in (folder / "map").iterdir():
        path.unlink()
    binary.write_text(folder / "map")
    return folder / "map"


def _text(folder: Path, text: str) -> Path:
    (folder / "list.txt").write_text(text, encoding="utf-8")
    return folder / "list.txt"


def queries(folder: Path) -> Path:
    camera = "OPENCV 640 480 500 500 320 240 0.1 0 0 0"
    lines = (
        "# comment", "a b.jpg SIMPLE_RADIAL 640 480 500 320 240 0.1", f'"#é.jpg" {camera}',
        "d.jpg PINHOLE 64 48 50 50 32 24",
    )  # fmt: skip
    return _text(folder, "\n".join(lines) + "\n")


def poses(folder: Path) -> Path:
    lines = (
        "# name qw qx qy qz tx ty tz", "a b.jpg 1 0 0 0 1 2 3", '"#é.jpg" 0.5 0.5 0.5 -0.5 1e3 -2 3.5',
        "c.jpg 0 0 0 2 0 0 0",
    )  # fmt: skip
    return _text(folder, "\n".join(lines) + "\n")


def photo_list(folder: Path) -> Path:
    return _text(folder, '# comment\na b.jpg\n"#é.jpg"\nc/d.jpg\n')


def pair_list(folder: Path) -> Path:
    return _text(folder, "a b.jpg\tb/é.jpg\nc.jpg a b.jpg\n# comment\nc.jpg b/é.jpg\n")


def homography(folder: Path) -> Path:
    return _text(folder, "1 0.1 20\n-0.1 1.1 3\n1e-4 0 1\n")


def records(folder: Path, format: Literal["npy", "tfds"] = "npy") -> Path:
    from tests.support.aligned_stores import write_store
    from xdesc_jax.data.records import records as make

    (folder / "stores").mkdir()
    counts = {f"{i}.png": 6 for i in range(4)}
    paths = tuple(write_store(folder / "stores" / f"{name}.h5", SPECS[name], counts) for name in ("plain", "bits"))
    make(folder / "records", paired=paths, format=format, validation_share=0.25, rows_per_shard=8)
    return folder / "records"


def run_folder(folder: Path) -> Path:
    """The settings of a training, and what it wrote beside its checkpoints."""
    from xdesc_jax.config import TrainConfig
    from xdesc_jax.files.whole import write_json
    from xdesc_jax.train.translators.inputs import Statistics

    config = TrainConfig(epochs=2)
    run = folder / "run"
    specs = {name: spec.to_dict() for name, spec in SPECS.items()}
    about = {"data": {"path": "records"}, "init": None, "versions": {"numpy": "2"}}
    write_json(run / "config.json", {"config": config, "specs": specs, "hash": config.hash, **about})
    figures = {"rank1": {"grid->plain": 0.5}, "mean_rank1": 0.5}
    write_json(run / "validation.json", [{"step": 7 * e, "epoch": e, **figures} for e in (1, 2)])
    lines = [{"step": step, "epoch": 1, "batch": step, "loss": 0.5} for step in (2, 4)]
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = encoder_decoder()
    Statistics(made.statistics, dict.fromkeys(SPECS, 1.0), made.sample.inputs).save(run / "statistics.npz")
    return run


def config_file(folder: Path) -> Path:
    text = '''"""A configuration."""

from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        descriptors = ( "sift" , "brief" ),
        epochs = 3 ,
        batch_size = 64 ,
        inputs = "columns" ,
        model = ModelConfig( embedding_width = 8 , hidden_learned = ( 16 , 8 ) ),
        loss = LossConfig( alpha = 0.5 , variant = "linear" ),
        optimizer = OptimizerConfig( 1e-3 , "cosine" , warmup_steps = 3 ),
    )
'''
    (folder / "config.py").write_text(text)
    return folder / "config.py"


def correspondences(folder: Path) -> Path:
    from xdesc_jax.localization import correspondences as file

    found = file.Correspondences(np.arange(4), np.arange(4) + 7, np.ones((4, 2)), np.ones(4), np.arange(4) > 1)
    return file.write(
        folder / "correspondences.npz", "0123456789ab", {"a b.jpg": found, "c.jpg": found.take(np.arange(2))}
    )


def sweep(folder: Path) -> Path:
    found = [sweep_records.record({"seed": seed}) for seed in range(3)]
    return sweep_records.sweep(folder / "sweep", [*found, sweep_records.diverged({"seed": 3})], shards=2)


def tfrecords(folder: Path) -> Path:
    return records(folder, "tfds")


# --- Of other formats ------------------------------------------------------------------------------------------------

WEIGHTS = {"features.0.weight": (3, 1, 2, 2), "features.1.bias": (3,)}


def npz_weights(folder: Path) -> Path:
    np.savez(folder / "weights.npz", **_weights())
    return folder / "weights.npz"


def safetensors_weights(folder: Path) -> Path:
    from xdesc_jax.features.weights import write_arrays

    return write_arrays(folder / "weights.safetensors", _weights(), {"origin": "small"})


def pth_weights(folder: Path) -> Path:
    from xdesc_jax.files import pytorch

    pytorch.save(folder / "weights.pth", {"state_dict": _weights(), "epoch": 3})
    return folder / "weights.pth"


def pth_model(folder: Path) -> Path:
    from xdesc_jax.export.pytorch_translator import to_checkpoint
    from xdesc_jax.files import pytorch

    rng, networks = np.random.default_rng(0), {}
    for name, spec in SPECS.items():  # as the format has it, a decoder's widths are the encoder's in reverse
        widths = (spec.width, 17, 13, EMBEDDING_WIDTH)
        networks |= {f"encoder/{name}": layers(rng, *widths), f"decoder/{name}": layers(rng, *widths[::-1])}
    named = {name: [{"kernel": k, "bias": b} for k, b in network] for name, network in networks.items()}
    content, _ = to_checkpoint(SPECS, named, EMBEDDING_WIDTH, 3, "here")
    pytorch.save(folder / "model.pth", content)
    return folder / "model.pth"


def _weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in WEIGHTS.items()}


def photos(folder: Path) -> Path:
    """One of each format, with palettes, transparency, 16 bits and EXIF among them."""
    from PIL import Image

    (folder / "photos").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (9, 14, 3), np.uint8)
    color = Image.fromarray(pixels)
    gray = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker"  # turned, and by whom
    paletted = color.quantize(7)
    paletted.info["transparency"] = 2
    for name, image, more in (
        ("a.png", color, {}), ("deep.png", gray, {}), ("palette.png", paletted, {}),
        ("clear.png", color.convert("LA"), {}), ("a.jpg", color, {"exif": exif}),
        ("cmyk.jpg", color.convert("CMYK"), {}), ("later.jpg", color, {"progressive": True}),
        ("a.tif", gray, {"compression": "tiff_lzw"}), ("a.webp", color, {"lossless": True}),
        ("a.bmp", paletted, {}), ("a.ppm", color, {}), ("a.pgm", color.convert("L"), {}),
    ):  # fmt: skip
        image.save(folder / "photos" / name, **more)
    return folder / "photos"


def small_state() -> Any:
    """What a checkpoint holds, of a network of one layer."""
    from xdesc_jax.train.optimizer import first_moments
    from xdesc_jax.train.state import TrainState

    rng = np.random.default_rng(0)
    params = {"encoder/a": {"kernel": rng.normal(size=(3, 2)).astype(np.float32), "bias": np.ones(2, np.float32)}}
    stats = {"encoder/a": {"mean": np.full(2, 0.5, np.float32)}}
    return TrainState(np.int32(4), params, stats, first_moments(params))


def checkpoint(folder: Path) -> Path:
    from xdesc_jax.train.checkpoint import Checkpoints, Position

    saved = Checkpoints(folder / "run", "0123456789ab")
    saved.save(small_state(), Position(4, 1, 2), {"mean_rank1": 0.5})
    saved.close()
    return folder / "run"
