"""What is fuzzed: the readers of the package, each with a small valid file and the check of what it gives.

In: an empty folder for the valid file. Out: the file, or the folder that is read as one; and of a changed one nothing,
an error of its reader, or `Wrong` where a reader took what it should not have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.fuzz import checks, training_checks, valid_files
from tests.fuzz.archive_mutators import change_png, change_tfrecords, change_zip
from tests.fuzz.array_mutators import change_hdf5, change_npy, change_npz, change_safetensors
from tests.fuzz.database_mutators import change_database
from tests.fuzz.mutators import Mutator, change_bytes, change_json, change_json_or_bytes, change_words
from xdesc_jax.files import pytorch


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader with what it reads.

    Attributes:
        name: as `--reader` takes it.
        make: writes a valid file into a folder, and gives what `read` takes.
        read: reads it and checks what comes of it.
        mutators: what may become of its files, by their suffix (less what numbers a shard).
        slow: whether one input takes more than some hundredths of a second.
        apart: whether it leaves threads behind, which a process that is forked from this one would wait for.
    """

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], None]
    mutators: dict[str, tuple[Mutator, ...]]
    slow: bool = False
    apart: bool = False

    def mutators_of(self, file: Path) -> tuple[Mutator, ...]:
        """What may become of a file."""
        return self.mutators.get(file.suffix.partition("-")[0], ())


_HDF5: dict[str, tuple[Mutator, ...]] = {".h5": (change_bytes, change_hdf5, change_hdf5, change_hdf5)}
_DATABASE: dict[str, tuple[Mutator, ...]] = {".db": (change_bytes, change_database, change_database)}
_WORDS: tuple[Mutator, ...] = (change_bytes, change_words, change_words, change_words)
_TEXT: dict[str, tuple[Mutator, ...]] = {".txt": _WORDS}
_JSON: tuple[Mutator, ...] = (change_bytes, change_json, change_json)
_SAFETENSORS: dict[str, tuple[Mutator, ...]] = {".safetensors": (change_bytes, change_safetensors)}
_PHOTOS: dict[str, tuple[Mutator, ...]] = {
    ".png": (change_bytes, change_png, change_png, change_png),
    **dict.fromkeys((".jpg", ".tif", ".webp", ".bmp", ".ppm", ".pgm"), (change_bytes,)),
}

READERS = {
    reader.name: reader
    for reader in (
        Reader("features", valid_files.features, checks.features, _HDF5),
        Reader("binary-features", valid_files.binary_features, checks.features, _HDF5),
        Reader("matches", valid_files.matches, checks.matches, _HDF5),
        Reader("listed-matches", valid_files.listed_matches, checks.matches, _HDF5),
        Reader(
            "model",
            valid_files.model,
            checks.model,
            {".safetensors": (change_bytes, change_safetensors, change_safetensors)},
        ),
        Reader("pair-model", valid_files.pair_model, checks.model, _SAFETENSORS),
        Reader("context-model", valid_files.context_model, checks.model, _SAFETENSORS),
        Reader("npz-model", valid_files.npz_model, checks.model, {".npz": (change_bytes, change_npz, change_npz)}),
        Reader("database-3", valid_files.database_3, checks.database, _DATABASE),
        Reader("database-4", valid_files.database_4, checks.database, _DATABASE),
        Reader("binary-map", valid_files.binary_map, checks.map_model, {".bin": (change_bytes,)}),
        Reader("text-map", valid_files.text_map, checks.map_model, _TEXT),
        *(
            Reader(
                name,
                partial(valid_files.foreign_map, format=name, kind=kind),
                checks.foreign_model,
                {".json": _JSON, ".csv": _WORDS, ".out": _WORDS, ".nvm": _WORDS, ".txt": _WORDS},
            )
            for name, kind in (
                ("transforms", "opencv"),
                ("opensfm", "brown"),
                ("openmvg", "pinhole_brown_t2"),
                ("bundler", ""),
                ("nvm", "bent"),
            )
        ),
        Reader("queries", valid_files.queries, checks.queries, _TEXT),
        Reader("poses", valid_files.poses, checks.poses, _TEXT),
        Reader("photo-list", valid_files.photo_list, checks.photo_list, _TEXT),
        Reader("pair-list", valid_files.pair_list, checks.pair_list, _TEXT),
        Reader("homography", valid_files.homography, checks.homography, _TEXT),
        Reader(
            "records",
            valid_files.records,
            training_checks.records,
            {".json": _JSON, ".npy": (change_bytes, change_npy)},
        ),
        Reader(
            "run",
            valid_files.run_folder,
            training_checks.run,
            {".json": _JSON, ".jsonl": _JSON, ".npz": (change_bytes, change_npz)},
        ),
        Reader(
            "tfrecords",
            valid_files.tfrecords,
            training_checks.records,
            {".json": _JSON, ".tfrecord": (change_bytes, change_tfrecords, change_tfrecords)},
            slow=True,
            apart=True,
        ),
        Reader(
            "checkpoint",
            valid_files.checkpoint,
            training_checks.checkpoint,
            {"": (change_json_or_bytes,), ".ocdbt": (change_bytes,)},
            slow=True,
            apart=True,
        ),
        Reader(
            "npz-weights",
            valid_files.npz_weights,
            training_checks.weights,
            {".npz": (change_bytes, change_npz, change_npz)},
        ),
        Reader("safetensors-weights", valid_files.safetensors_weights, training_checks.weights, _SAFETENSORS),
        Reader("photos", valid_files.photos, checks.photos, _PHOTOS),
        Reader("configuration", valid_files.config_file, checks.configuration, {".py": (change_words,)}),
        Reader(
            "correspondences", valid_files.correspondences, checks.correspondences, {".npz": (change_bytes, change_npz)}
        ),
        Reader("sweep", valid_files.sweep, checks.sweep, {".jsonl": _JSON}),
        Reader("translate", valid_files.features, checks.translate, _HDF5, slow=True),
        Reader("translate-database", valid_files.database_3, checks.translate_database, _DATABASE, slow=True),
        Reader("match", valid_files.features, checks.match, _HDF5, slow=True),
        Reader("inspect-features", valid_files.features, checks.inspect, _HDF5, slow=True),
        Reader("inspect-matches", valid_files.matches, checks.inspect, _HDF5, slow=True),
        Reader("inspect-model", valid_files.model, checks.inspect, _SAFETENSORS, slow=True),
        Reader("inspect-database", valid_files.database_4, checks.inspect, _DATABASE, slow=True),
        Reader("inspect-map", valid_files.text_map, checks.inspect, _TEXT, slow=True),
    )
}
if pytorch.installed():
    _PTH: dict[str, tuple[Mutator, ...]] = {".pth": (change_bytes, change_zip, change_zip)}
    READERS["pth-model"] = Reader("pth-model", valid_files.pth_model, training_checks.pth_model, _PTH, apart=True)
    READERS["pth-weights"] = Reader(
        "pth-weights", valid_files.pth_weights, training_checks.pth_weights, _PTH, apart=True
    )
