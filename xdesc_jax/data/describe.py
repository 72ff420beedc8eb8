"""The stage `xdesc describe`: records with patches -> the same records with further descriptors.

In: a records folder that holds patches. Out: another one, in the npy format, whose rows have descriptors computed from
these patches beside those they had; a few shards are in memory at once. The photos need not be at hand, so new weights
of a learned descriptor cost no new extraction. Of records of pairs a row's descriptors are all of one of its two
patches, or each of either, so that what learns to agree saw a point from two places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.data import open_source
from xdesc_jax.data.build import is_finished, summarize
from xdesc_jax.data.columns import write_split
from xdesc_jax.data.schema import MASK, PAIR, PATCH, RecordInfo
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import atomic, config_hash, content_hash


def describe(
    records: Path,
    out: Path,
    *,
    descriptors: tuple[str, ...],
    weights: tuple[str, ...] = (),
    patches: bool = False,
    across_views: bool = False,
    seed: int = 0,
    overwrite: bool = False,
) -> RecordInfo:
    """Adds descriptors of patches to records, or makes records of descriptors from pairs of patches.

    Started again, it goes on where it stopped, shard by shard.

    A row of pairs (`xdesc pairs`) becomes a row of descriptors of one of its two patches, drawn at random; its keypoint
    is that of the first.

    Args:
        records: a records folder made with patches (for TFDS its version directory), or by `xdesc pairs`.
        out: the folder to make, in the npy format.
        descriptors: what to compute; those that the records hold already are replaced.
        weights: of learned descriptors, as NAME=FILE, where the ones that ship or are installed are not meant.
        patches: keep the patches; not of pairs.
        across_views: of pairs, draw the patch anew for each descriptor of a row, so that they are of two views of the
            same point.
        seed: of the draws.
        overwrite: make the folder anew even if it is there.

    Raises:
        ValueError: records without patches, a descriptor that is not computed from patches, or no weights for it; what
            is asked of pairs alone of other records, or the other way round.
        FileExistsError: `out` holds something else.
    """
    with console.status("starting jax"):
        from xdesc_jax.features.describe import describe_patches, describer, weight_file

    info = RecordInfo.load(records)
    if not info.has_patches:
        raise ValueError(f"{records}: records without patches (columns: {', '.join(info.columns)})")
    if info.has_pairs and patches:
        raise ValueError(f"{records}: records of pairs, whose rows are of two patches: leave out --patches")
    if across_views and not info.has_pairs:
        raise ValueError(f"{records}: no records of pairs (`xdesc pairs` makes them), which --across-views needs")
    given = parse_weights(weights)
    files = {name: weight_file(name, given.get(name)) for name in descriptors}
    for name, file in files.items():
        describer(name, file)  # what cannot be computed is better said before the records are read
    config: dict[str, Any] = {
        "records": info.config_hash,
        "descriptors": {name: get_spec(name).to_dict() for name in descriptors},
        "weights": {name: file and content_hash(file) for name, file in files.items()},
        "patches": patches,
    }
    told = {"records": records, "descriptors": descriptors, "weights": weights, "patches": patches}
    if info.whole_photos:
        config["deal_by"] = info.config["deal_by"]
    if info.has_pairs:
        config["pairs"] = {"across_views": across_views, "seed": seed}
        told |= config["pairs"]
    console.settings(f"xdesc describe -> {out}", told, describe)
    if is_finished(out, config, overwrite):
        console.up_to_date(out)
        return RecordInfo.load(out)

    given_files = {name: file for name, file in files.items() if file}
    rng = np.random.default_rng(seed)

    def described(block: Columns, shard: str, journal: Journal) -> Columns:
        rows = {name: values[block[MASK]] for name, values in block.items()}

        def of(column: str) -> Columns:
            make = partial(describe_patches, descriptors, rows[column], given_files)
            return journal.recall(f"{shard} {column}", make)

        if not info.has_pairs:
            return rows | of(PATCH)
        return rows | either(of(PATCH), of(PAIR), descriptors, across_views, rng)

    specs = {**info.specs, **{name: get_spec(name) for name in descriptors}}
    made = dataclasses.replace(
        info, format="npy", specs=specs, has_patches=patches, has_pairs=False, config=config, files={}
    )  # fmt: skip
    last = PAIR if info.has_pairs else PATCH  # of a shard that is computed
    with claimed(beside(out), "xdesc describe", out), Journal(beside(out, ".part"), config_hash(config)) as journal:
        with atomic(out) as folder:
            folder.mkdir()
            for split in (name for name, rows in info.counts.items() if rows):
                kept = [name for name in made.columns if name not in descriptors]
                read = list(dict.fromkeys([*kept, PATCH, *[PAIR] * info.has_pairs]))
                source = open_source(
                    records, split, max(info.shard_rows(split)), read,
                    window=1, shuffle=False, remainder="pad",
                )  # fmt: skip
                count = source.batches_per_epoch
                shards = [f"{split} {number}" for number in range(count)]
                done = sum(f"{shard} {last}" in journal for shard in shards)
                if done:
                    console.info(f"going on: {done} of {console.counted(count, 'shard')} of {split} described already")
                blocks = console.track(source.epoch(0), f"describing {split}", "shards", count, done)
                of_split = (described(block, shard, journal) for block, shard in zip(blocks, shards, strict=True))
                write_split(folder, split, made.columns, info.shard_rows(split), of_split)
            sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
            dataclasses.replace(made, path=folder, files=sizes).save()
        journal.remove()
    summarize(found := RecordInfo.load(out))
    console.result(out)
    return found


def either(
    first: Columns, second: Columns, descriptors: Sequence[str], across_views: bool, rng: np.random.Generator
) -> Columns:
    """Rows that are each of one of two.

    Args:
        first, second: descriptor -> [N, stored_width].
        descriptors: in whose order is drawn.
        across_views: draw for each descriptor of a row, not once a row.
        rng: of the draws; as many of a row in either case, and row by row, so that blocks may have any size.

    Returns:
        Descriptor -> [N, stored_width].
    """
    takes_second = rng.random((len(first[descriptors[0]]), len(descriptors))) < 0.5
    of = {name: takes_second[:, index if across_views else 0, None] for index, name in enumerate(descriptors)}
    return {name: np.where(of[name], second[name], first[name]) for name in descriptors}
