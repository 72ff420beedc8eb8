"""What is fuzzed: the readers of the package, each with a small valid file and the check of what it gives.

In: an empty folder for the valid file. Out: the file, or the folder that is read as one; and of a changed one nothing,
an error of its reader, or `Wrong` where a reader took what it should not have.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.fuzz import checks
from tests.fuzz.array_mutators import change_hdf5, change_npy, change_npz, change_safetensors
from tests.fuzz.database_mutators import change_database
from tests.fuzz.mutators import Mutator, change_bytes, change_json, change_words
from tests.support import sweep_records
from tests.support.databases import make_3, make_4
from tests.support.small_translators import SPECS, encoder_decoder, pairs, rows
from xdesc_jax.descriptors import stored
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.matching.matches import Extent, MatchWriter

PHOTOS = ("a b.jpg", "b/\u00e9.jpg", "c.jpg")


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader with what it reads.

    Attributes:
        name: as `--reader` takes it.
        make: writes a valid file into a folder, and gives what `read` takes.
        read: reads it and checks what comes of it.
        mutators: what may become of its files, by their suffix.
        slow: whether one input takes more than some hundredths of a second.
    """

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], None]
    mutators: dict[str, tuple[Mutator, ...]]
    slow: bool = False


_HDF5: dict[str, tuple[Mutator, ...]] = {".h5": (change_bytes, change_hdf5, change_hdf5, change_hdf5)}
_DATABASE: dict[str, tuple[Mutator, ...]] = {".db": (change_bytes, change_database, change_database)}
_TEXT: dict[str, tuple[Mutator, ...]] = {".txt": (change_bytes, change_words, change_words, change_words)}
_JSON: tuple[Mutator, ...] = (change_bytes, change_json, change_json)


# --- Small valid files -----------------------------------------------------------------------------------------------


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


def records(folder: Path) -> Path:
    from tests.support.aligned_stores import write_store
    from xdesc_jax.data.records import records as make

    (folder / "stores").mkdir()
    counts = {f"{i}.png": 6 for i in range(4)}
    paths = tuple(write_store(folder / "stores" / f"{name}.h5", SPECS[name], counts) for name in ("plain", "bits"))
    make(folder / "records", paired=paths, format="npy", validation_share=0.25, rows_per_shard=8)
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


READERS = {
    reader.name: reader
    for reader in (
        Reader("features", features, checks.features, _HDF5),
        Reader("binary-features", lambda folder: features(folder, "bits"), checks.features, _HDF5),
        Reader("matches", matches, checks.matches, _HDF5),
        Reader("listed-matches", listed_matches, checks.matches, _HDF5),
        Reader("model", model, checks.model, {".safetensors": (change_bytes, change_safetensors, change_safetensors)}),
        Reader("pair-model", pair_model, checks.model, {".safetensors": (change_bytes, change_safetensors)}),
        Reader("npz-model", npz_model, checks.model, {".npz": (change_bytes, change_npz, change_npz)}),
        Reader("database-3", database_3, checks.database, _DATABASE),
        Reader("database-4", database_4, checks.database, _DATABASE),
        Reader("binary-map", binary_map, checks.map_model, {".bin": (change_bytes,)}),
        Reader("text-map", text_map, checks.map_model, _TEXT),
        Reader("queries", queries, checks.queries, _TEXT),
        Reader("poses", poses, checks.poses, _TEXT),
        Reader("photo-list", photo_list, checks.photo_list, _TEXT),
        Reader("pair-list", pair_list, checks.pair_list, _TEXT),
        Reader("homography", homography, checks.homography, _TEXT),
        Reader("records", records, checks.records, {".json": _JSON, ".npy": (change_bytes, change_npy)}),
        Reader("run", run_folder, checks.run, {".json": _JSON, ".jsonl": _JSON, ".npz": (change_bytes, change_npz)}),
        Reader("configuration", config_file, checks.configuration, {".py": (change_words,)}),
        Reader("correspondences", correspondences, checks.correspondences, {".npz": (change_bytes, change_npz)}),
        Reader("sweep", sweep, checks.sweep, {".jsonl": _JSON}),
        Reader("translate", features, checks.translate, _HDF5, slow=True),
        Reader("translate-database", database_3, checks.translate_database, _DATABASE, slow=True),
        Reader("match", features, checks.match, _HDF5, slow=True),
        Reader("inspect-features", features, checks.inspect, _HDF5, slow=True),
        Reader("inspect-matches", matches, checks.inspect, _HDF5, slow=True),
        Reader("inspect-model", model, checks.inspect, {".safetensors": (change_bytes, change_safetensors)}, slow=True),
        Reader("inspect-database", database_4, checks.inspect, _DATABASE, slow=True),
        Reader("inspect-map", text_map, checks.inspect, _TEXT, slow=True),
    )
}
