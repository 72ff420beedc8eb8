"""Records of aligned descriptors: building them, and reading them in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.data.source import Source


def open_source(
    path: Path | str, split: str, batch_size: int, *args: Any, resident: bool = False, **kwargs: Any
) -> Source:
    """The batches of one split of a records folder, by a reader that fits its format.

    Args:
        path: the records folder; for TFDS the dataset's version directory.
        split: 'train' or 'validation'.
        batch_size: rows of a batch over all hosts.
        resident: hold the whole split in memory.
        Others as for `source.Source` and, where not resident, `source.ShardedSource`.

    Raises:
        FileNotFoundError, ValueError: as `RecordInfo.load` and `Source`.
    """
    if resident:
        from xdesc_jax.data.resident import ResidentSet

        return ResidentSet(path, split, batch_size, *args, **kwargs)
    if RecordInfo.load(path).format == "npy":
        from xdesc_jax.data.columns import ColumnSource

        return ColumnSource(path, split, batch_size, *args, **kwargs)
    from xdesc_jax.data.pipeline import RecordSource

    return RecordSource(path, split, batch_size, *args, **kwargs)
