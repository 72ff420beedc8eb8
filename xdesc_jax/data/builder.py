"""The 'tfds' format of records: a TensorFlow dataset directory that `tfds.builder_from_directory` opens.

In: shards of rows in their final order. Out: one TFRecord file a shard, with the metadata of
tensorflow-datasets beside them. Every feature is stored as raw bytes of a fixed size. The generator of
tensorflow-datasets encodes 15 k rows/s, keeps up to 1 GB and gives all splits as many shards, so the shards
are written here and described by `tfds.folder_dataset.write_metadata`, its interface for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.data.host_tensorflow import tf, tfds
from xdesc_jax.data.schema import Column, RecordInfo
from xdesc_jax.data.source import Columns

NAME = "xdesc_records"
DESCRIPTION = "Local feature descriptors of different types, computed for the same patches; one row a patch."


def file_name(split: str, shard: int, num_shards: int) -> str:
    """Name of a shard's file, as tensorflow-datasets builds it."""
    return f"{NAME}-{split}.tfrecord-{shard:05d}-of-{num_shards:05d}"


def shard_path(info: RecordInfo, split: str, shard: int) -> Path:
    """Path of a shard's file."""
    return info.path / file_name(split, shard, len(info.shards[split]))


def features_of(columns: Mapping[str, Column]) -> tfds.features.FeaturesDict:
    """The TFDS features of these columns."""
    return tfds.features.FeaturesDict(
        {
            name: tfds.features.Tensor(shape=column.shape, dtype=column.dtype, encoding="bytes")
            for name, column in columns.items()
        }
    )


def write_split(
    folder: Path,
    split: str,
    columns: Mapping[str, Column],
    rows: Sequence[int],
    shards: Iterator[Columns],
) -> None:
    """Writes the shards of one split; `rows` says how many rows each has."""
    for index, shard in enumerate(shards):
        write_shard(folder / file_name(split, index, len(rows)), columns, shard)


def write_shard(path: Path, columns: Mapping[str, Column], shard: Columns) -> None:
    """Writes the rows of one shard as one TFRecord file."""
    template, places = _example_template(columns)
    count = len(next(iter(shard.values())))
    examples = np.tile(template, (count, 1))
    for name, place in places.items():
        examples[:, place] = np.ascontiguousarray(shard[name]).view(np.uint8).reshape(count, -1)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            writer.write(example.tobytes())


def _example_template(columns: Mapping[str, Column]) -> tuple[np.ndarray, dict[str, slice]]:
    """A serialised tf.train.Example [bytes] of zeros, and where in it each column's bytes are.

    All rows have the same layout, so filling them in is one assignment a column: three times the speed of
    building the messages one by one.
    """
    zeros = {name: bytes(column.row_bytes) for name, column in columns.items()}
    template = _serialise(zeros)
    places = {}
    for name, column in columns.items():
        changed = np.flatnonzero(template != _serialise({**zeros, name: b"\xff" * column.row_bytes}))
        places[name] = slice(int(changed[0]), int(changed[-1]) + 1)
        assert len(changed) == column.row_bytes == changed[-1] + 1 - changed[0]
    return template, places


def _serialise(values: Mapping[str, bytes]) -> np.ndarray:
    example = tf.train.Example()
    for name, value in values.items():
        example.features.feature[name].bytes_list.value.append(value)
    return np.frombuffer(example.SerializeToString(deterministic=True), np.uint8)


def write_metadata(folder: Path, columns: Mapping[str, Column], shards: Mapping[str, Sequence[int]]) -> None:
    """Writes `dataset_info.json` and `features.json` for shards that are in place."""
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name=NAME, filetype_suffix="tfrecord",
        template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
    )  # fmt: skip
    splits = [
        tfds.core.SplitInfo(
            name=split,
            shard_lengths=list(rows),
            num_bytes=sum((folder / file_name(split, i, len(rows))).stat().st_size for i in range(len(rows))),
            filename_template=template.replace(split=split),
        )
        for split, rows in shards.items()
        if rows
    ]
    tfds.folder_dataset.write_metadata(
        data_dir=folder, features=features_of(columns), split_infos=splits, filename_template=template,
        version="1.0.0", description=DESCRIPTION, check_data=False,
    )  # fmt: skip
