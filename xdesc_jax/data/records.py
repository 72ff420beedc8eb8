"""The stage `xdesc records`: photos, or aligned feature files, to a records folder for training.

In: photos (patches and descriptors are computed) or two or more feature files of the same keypoints. Out: a
folder in the 'tfds' or 'npy' format with a train and a validation split, split by photo or by folder of photos. The
folder appears when it is complete; extraction that was interrupted goes on where it stopped. It is made in this
process, or, with the same bytes, by a Beam pipeline (`beam.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from xdesc_jax import console
from xdesc_jax.data.build import LOCAL, Build, build, make, work_folder
from xdesc_jax.data.origin import Origin
from xdesc_jax.data.plan import DealBy, RecordSettings, SplitBy
from xdesc_jax.data.schema import RecordInfo


def records(
    out: Path,
    *,
    photos: Path | None = None,
    paired: tuple[Path, ...] = (),
    within: float | None = None,
    across: Path | None = None,
    descriptors: tuple[str, ...] = (),
    keypoints: str = "colmap",
    first_octave: int = -1,
    max_keypoints: int | None = None,
    weights: tuple[str, ...] = (),
    patches: bool = True,
    format: Literal["tfds", "npy"] = "tfds",
    validation_share: float = 0.1,
    split_by: SplitBy = "photo",
    deal_by: DealBy = "row",
    seed: int = 0,
    max_rows_per_photo: int | None = None,
    rows_per_shard: int = 16384,
    processes: int = 1,
    device: str = "auto",
    network_side: int | None = None,
    overwrite: bool = False,
    strict: bool = False,
    beam: bool = False,
    runner: str = LOCAL,
    beam_options: tuple[str, ...] = (),
) -> RecordInfo:
    """Makes training records of aligned descriptors, from photos or from feature files.

    With --beam, an Apache Beam pipeline makes them, on this machine or a cluster. Its workers read the photos or
    feature files, and write OUT and .OUT.work beside it, under the same paths as here: on a cluster all of them lie on
    a shared file system. Workers need this package with the beam extra, and weights that are not shipped are named by
    --weights. All rows pass through the runner; that of one machine holds them in memory, about five times the size of
    the records. Without --beam they are not held in memory.

    Args:
        out: the folder to make; `xdesc train --data` takes it.
        photos: folder of photos, with any sub-folders.
        paired: instead of photos, two or more feature files of the same keypoints; or folders of such files, as `xdesc
            extract` makes them, one for each set of keypoints: a row has the descriptors of its folder, and training
            takes of each pair of descriptors the rows that have both.
        within: of feature files of different keypoints, each detector's own, pair those that lie at most so many px
            apart, are each other's nearest, and agree in scale (half an octave) and orientation (20 deg) where both
            have them; positions and frames are those of the first file that has frames.
        across: of feature files, `views.json` of the photos (`xdesc views`), or a sparse model of them, which says what
            keypoints of different photos show one point; training can match rows across photos then
            (`--loss.across-views`).
        descriptors: with photos, what to compute (brief and sift where not given); with feature files, what
            they hold, in order, where they do not say.
        keypoints: of photos: 'colmap' or 'opencv' (SIFT detectors), a learned descriptor whose network finds its own
            (with --no-patches), or a feature file or COLMAP database.
        first_octave: of COLMAP's detector; -1 doubles the photo first, 0 does not.
        max_keypoints: of a photo: keep the strongest.
        weights: of learned descriptors, as NAME=FILE, where they are neither shipped nor installed.
        patches: keep the patches of photos, to train with augmentation or other descriptors.
        format: tfds (TFRecord shards, a TensorFlow dataset directory) or npy (read without tensorflow; not with
            --beam).
        validation_share: share of the photos whose rows are kept for validation.
        split_by: 'photo', or 'folder' where photos of one folder belong together, as the views of one photo (`xdesc
            views`) or the photos of one place do: all of them are in one split.
        deal_by: 'row' shuffles all rows into shards; 'photo' keeps those of a photo in one shard, in windows of which a
            training finds each row's neighbours (`--model.context`) without holding all rows in memory.
        seed: of the split, of the choice of rows and of their order.
        max_rows_per_photo: keep at most so many rows of a photo, drawn at random (from photos: of the keypoints whose
            patch is usable, so that a row without some other descriptor leaves one less).
        rows_per_shard: the most rows of a shard (give or take a photo where these stay whole); readers hold a few
            shards in memory.
        processes: that extract from photos; with --beam, worker processes of the DirectRunner (other runners have
            options for it).
        device: where networks compute: 'auto' (CUDA where there is some), 'cpu' or 'cuda'.
        network_side: the longer side, in px, that photos are scaled down to for networks.
        overwrite: make the folder anew even if it is there.
        strict: stop at a photo that cannot be read, instead of leaving it out.
        beam: make them by a Beam pipeline; the files are the same.
        runner: of the pipeline: DirectRunner (this machine), FlinkRunner, SparkRunner, DataflowRunner, or another
            that Beam knows.
        beam_options: passed to Beam, as NAME=VALUE or NAME.

    Raises:
        ValueError: settings out of range, feature files that do not match, no valid row, or a photo in no folder where
            they are split by it.
        FileExistsError: `out` holds something else.
        OSError: the pipeline failed, or its workers do not see the same files.
    """
    origin = Origin(
        photos, paired, descriptors, keypoints, first_octave, max_keypoints, weights, patches, device, network_side,
        within, across,
    )  # fmt: skip
    settings = RecordSettings(format, validation_share, seed, max_rows_per_photo, rows_per_shard, split_by, deal_by)
    builder: Build = build
    by_what: dict[str, Any] = {}
    if beam:
        if format != "tfds":
            raise ValueError(f"format is {format!r}, a pipeline writes 'tfds' alone; 'npy' is made without --beam")
        with console.status("starting Apache Beam"):
            from xdesc_jax.data.beam import Pipeline

        pipeline = Pipeline(runner, processes, beam_options, strict)
        builder, by_what = pipeline.build, {"beam": beam, "beam_options": pipeline.options}
    elif runner != LOCAL or beam_options:
        raise ValueError("--runner and --beam-options are a pipeline's: they need --beam")
    if across is not None and split_by == "photo" and validation_share:
        console.warn(
            "--across: photos of one point may be in different splits, and their rows then have no other to be matched "
            "with; --split-by folder keeps those of a folder together"
        )
    work = work_folder(out)
    with origin.open(work / "parts", max_rows_per_photo, seed, processes, strict) as source:
        shown = {**origin.shown(len(source.names)), "processes": processes, "strict": strict, "runner": runner}
        return make("records", shown | by_what, out, source, work, settings, overwrite, builder, records)
