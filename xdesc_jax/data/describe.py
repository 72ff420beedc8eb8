"""The stage `xdesc describe`: records with patches -> the same records with further descriptors.

In: a records folder that holds patches. Out: another one, in the npy format, whose rows have descriptors computed from
these patches beside those they had; a few shards are in memory at once. The photos need not be at hand, so new weights
of a learned descriptor cost no new extraction.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from xdesc_jax import console
from xdesc_jax.data import open_source
from xdesc_jax.data.build import is_finished, summarize
from xdesc_jax.data.columns import write_split
from xdesc_jax.data.schema import MASK, PATCH, RecordInfo
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.whole import atomic, content_hash


def describe(
    records: Path,
    out: Path,
    *,
    descriptors: tuple[str, ...],
    weights: tuple[str, ...] = (),
    patches: bool = False,
    overwrite: bool = False,
) -> RecordInfo:
    """Adds descriptors of patches to records.

    Args:
        records: a records folder made with patches (for TFDS its version directory).
        out: the folder to make, in the npy format.
        descriptors: what to compute; those that the records hold already are replaced.
        weights: of learned descriptors, as NAME=FILE, where the ones that ship or are installed are not meant.
        patches: keep the patches.
        overwrite: make the folder anew even if it is there.

    Raises:
        ValueError: records without patches, a descriptor that is not computed from patches, or no weights for it.
        FileExistsError: `out` holds something else.
    """
    with console.status("starting jax"):
        from xdesc_jax.features.describe import describe_patches, describer, weight_file

    info = RecordInfo.load(records)
    if not info.has_patches:
        raise ValueError(f"{records}: records without patches (columns: {', '.join(info.columns)})")
    if info.has_pairs:
        raise ValueError(f"{records}: records of pairs, expected records of descriptors (made by `xdesc records`)")
    given = parse_weights(weights)
    files = {name: weight_file(name, given.get(name)) for name in descriptors}
    for name, file in files.items():
        describer(name, file)  # what cannot be computed is better said before the records are read
    config = {
        "records": info.config_hash,
        "descriptors": {name: get_spec(name).to_dict() for name in descriptors},
        "weights": {name: file and content_hash(file) for name, file in files.items()},
        "patches": patches,
    }
    told = {"records": records, "descriptors": descriptors, "weights": weights, "patches": patches}
    console.settings(f"xdesc describe -> {out}", told, describe)
    if is_finished(out, config, overwrite):
        console.up_to_date(out)
        return RecordInfo.load(out)

    def described(block: Columns) -> Columns:
        rows = {name: values[block[MASK]] for name, values in block.items()}
        return rows | describe_patches(descriptors, rows[PATCH], {n: f for n, f in files.items() if f})

    specs = {**info.specs, **{name: get_spec(name) for name in descriptors}}
    made = dataclasses.replace(info, format="npy", specs=specs, has_patches=patches, config=config, files={})
    with claimed(beside(out), "xdesc describe", out), atomic(out) as folder:
        folder.mkdir()
        for split in (name for name, rows in info.counts.items() if rows):
            kept = [name for name in made.columns if name not in descriptors]
            source = open_source(
                records, split, max(info.shard_rows(split)), list(dict.fromkeys([*kept, PATCH])),
                window=1, shuffle=False, remainder="pad",
            )  # fmt: skip
            blocks = console.track(source.epoch(0), f"describing {split}", "shards", source.batches_per_epoch)
            write_split(folder, split, made.columns, info.shard_rows(split), map(described, blocks))
        sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
        dataclasses.replace(made, path=folder, files=sizes).save()
    summarize(found := RecordInfo.load(out))
    console.result(out)
    return found
