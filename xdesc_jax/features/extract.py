"""The stage `xdesc extract`: photos -> one feature file per descriptor, same rows in all.

In: photos, descriptor names, a detector or a file of keypoints. Out: `OUT/<descriptor>.h5` and
`OUT/extract.json`. Each photo's features are kept in `OUT/.parts` until the files are complete, so that a
run that was stopped anywhere continues and ends in the same files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.descriptors import get_entry, get_spec
from xdesc_jax.features.earlier import MASKING, SUMMARY, check_keypoints, finished, recorded_files
from xdesc_jax.features.extractors.process import Extractors, require_learned
from xdesc_jax.features.given import KeypointFile, is_keypoint_database
from xdesc_jax.features.images import UnreadablePhoto, list_photos
from xdesc_jax.features.official import weight_file
from xdesc_jax.features.parts import has_part, load_part, photo_stamp, save_part
from xdesc_jax.features.photo import (
    COLMAP_SIFT,
    ExtractSettings,
    PhotoFeatures,
    describe_photo,
    extract_photo,
)
from xdesc_jax.features.store import StoreWriter
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.features.workers import Job, detect_all
from xdesc_jax.files import dry_run
from xdesc_jax.files.claim import claimed, inside
from xdesc_jax.files.whole import config_hash, remove_left, write_json

__all__ = ["ExtractSettings", "PhotoFeatures", "check_ready", "extract", "extract_parts", "extract_photo"]

VERSION = 2  # of the summary


def extract(
    photos: Path,
    out: Path,
    *,
    descriptors: tuple[str, ...] = ("brief", "sift"),
    keypoints: str = "colmap",
    first_octave: int = -1,
    max_keypoints: int | None = None,
    weights: tuple[str, ...] = (),
    processes: int = 1,
    device: str = "auto",
    network_side: int | None = None,
    nms: float = 0.0,
    overwrite: bool = False,
    strict: bool = False,
) -> Path:
    """Extracts keypoints and descriptors of all photos in a folder.

    Args:
        photos: folder of photos, with any sub-folders; as they lie in the file: EXIF orientation is not applied.
        out: folder for the feature files; photos are named relative to PHOTOS in them.
        descriptors: registered descriptor names.
        keypoints: 'colmap' or 'opencv' (SIFT detectors), a learned descriptor whose network finds its own
            (aliked-n16rot, disk, xfeat, ...), or a feature file or COLMAP database.
        first_octave: of COLMAP's detector; -1 doubles the photo first, 0 does not (faster, fewer keypoints).
        max_keypoints: keep the strongest: by |difference of Gaussians| (COLMAP), by response (OpenCV), by score
            (networks).
        weights: weight files of learned descriptors, as NAME=FILE; those that ship with the package or are
            installed (`xdesc weights install`) are found without.
        processes: processes that detect keypoints and cut patches; COLMAP's takes about 0.4 GB a megapixel.
        device: where networks compute: 'auto' (CUDA where there is some), 'cpu' or 'cuda'.
        network_side: the longer side, in px, that photos are scaled down to for networks, whose memory grows with the
            photo; positions remain those of the photo itself.
        nms: leave out keypoints closer than so many px to a stronger one, also its further orientations; 0 keeps all.
        overwrite: redo finished files, and replace those made with other settings.
        strict: stop at a photo that cannot be read, instead of leaving it out.

    Returns:
        `out`.

    Raises:
        ValueError: unusable settings, keypoint file or weights (before any work), no photo that can be
            read, or with `strict` one that cannot.
        FileExistsError: a feature file was made with other settings or photos.
        InUse: another process extracts into `out`.
    """
    asked = ExtractSettings(
        descriptors, keypoints, first_octave, max_keypoints, parse_weights(weights),
        device=device, network_side=network_side, nms=nms,
    )  # fmt: skip
    skipped: dict[str, str] = {}
    names = list_photos(photos, strict=strict, skipped=skipped)
    given = {"descriptors": descriptors, "keypoints": keypoints, "first_octave": first_octave, "weights": weights}
    given |= {"max_keypoints": max_keypoints, "processes": processes, "device": device, "network_side": network_side}
    given |= {"nms": nms}
    told = {"photos": f"{photos} ({console.counted(len(names), 'photo')})", **given, "strict": strict}
    console.settings(f"xdesc extract -> {out}", told | {"descriptors": ", ".join(descriptors)}, extract)
    with console.status("preparing the descriptors"):
        check_ready(asked)
        keys = configuration_keys(asked)
    for name in descriptors:
        if file := weight_file(name, asked.weights.get(name)):
            console.log.debug("weights of %s: %s", name, file)
    with console.status("reading the photos"):
        listing = [(name, photo_stamp(photos / name)) for name in names]  # names and contents
    hashes = {name: config_hash([key, listing]) for name, key in keys.items()}
    with dry_run.several():
        todo = [name for name in descriptors if not finished(out, name, hashes[name], overwrite, asked, len(names))]
        if todo:
            check_keypoints(out, asked, overwrite)
        if todo and dry_run.active():
            kept = _kept(out / ".parts", listing, {name: keys[name] for name in todo}) if not overwrite else 0
            dry_run.remark(f"{console.counted(len(names), 'photo')}, {kept} of them done by a run that was stopped")
    if not todo:
        console.up_to_date(out)
        return out
    # What `valid` depends on is computed again with the rest, so that all files share one mask.
    again = tuple(d for d in descriptors if d in todo or get_entry(d).source in MASKING)
    used = {name: file for name, file in asked.weights.items() if name in (*again, asked.detector)}
    settings = dataclasses.replace(asked, descriptors=again, weights=used)
    parts = out / ".parts"
    with claimed(inside(out), "xdesc extract", out):
        if overwrite and parts.exists():
            shutil.rmtree(parts)
        seconds: dict[str, float] = {}
        found = extract_parts(
            photos, names, settings, parts, processes, strict=strict, skipped=skipped, keys=keys, seconds=seconds
        )
        kept = _kept(parts, listing, _keys_of(settings, keys))
        found = console.track(found, "extracting", "photos", len(names), kept)
        counts = [_counts(f) for _, f in found]
        if not counts:
            raise ValueError(f"{photos}: no photo can be read, first of {len(names)}: {skipped[names[0]]}")
        read = {name: stamp for name, stamp in listing if name not in skipped}
        done = console.track(_parts(photos, read, parts, settings, keys), "writing", "photos", len(read))
        _assemble(out, todo, hashes, done)
        _report(photos, out, asked, todo, hashes, counts, skipped, seconds)
        shutil.rmtree(parts)
    console.result(out, figures=out / SUMMARY)
    return out


def check_ready(settings: ExtractSettings) -> None:
    """Raises ValueError or FileNotFoundError where the settings cannot be carried out on any photo."""
    from_database = settings.given and is_keypoint_database(settings.keypoints)
    if COLMAP_SIFT in settings.descriptors and settings.keypoints != "colmap" and not from_database:
        raise ValueError(
            f"descriptor {COLMAP_SIFT!r} exists only where COLMAP detects the keypoints or a COLMAP database "
            f"holds it, but keypoints come from {settings.keypoints!r}; pass --keypoints colmap or a database"
        )
    for name in settings.names("detector"):
        if name != COLMAP_SIFT:
            raise ValueError(f"descriptor {name!r} comes with its own detector, which is not in this package")
    for name in [*settings.names("photo"), *settings.names("network")]:
        if get_entry(name).describe is None:
            raise ValueError(f"descriptor {name!r} is registered without a function; its rows can only come from files")
    if settings.detector is not None and settings.framed:
        framed = [*settings.names("patch"), *settings.names("photo"), *(["patches (--no-patches)"] * settings.patches)]
        raise ValueError(
            f"{', '.join(framed)}: computed from keypoints with scales, but {settings.detector!r} finds positions "
            "alone; name a SIFT detector or a file by --keypoints"
        )
    for name in settings.networks:
        require_learned(name)
        weight_file(name, settings.weights.get(name))
    if names := settings.names("patch"):
        from xdesc_jax.features.describe import describer

        for name in names:
            describer(name, settings.weights.get(name))


def configuration_keys(settings: ExtractSettings) -> dict[str, str]:
    """Descriptor -> hash of all that its rows and their mask depend on, the photos apart."""
    detector: dict[str, Any] = {"keypoints": settings.keypoints, "max_keypoints": settings.max_keypoints}
    if settings.given:
        detector["keypoints"] = _digest(Path(settings.keypoints))
    elif settings.keypoints == "colmap":
        detector["first_octave"] = settings.first_octave
    if settings.networks and settings.network_side is not None:
        detector["network_side"] = settings.network_side
    if settings.nms:
        detector["nms"] = settings.nms
    if settings.sample is not None:
        detector["sample"] = [settings.sample, settings.sample_seed]
    if settings.detector is not None:
        detector["detector_weights"] = _digest(_weights_of(settings.detector, settings))
    masking = sorted(name for source in MASKING for name in settings.names(source))
    keys = {}
    for name in settings.descriptors:
        file = weight_file(name, settings.weights.get(name))
        rows = {"descriptor": get_spec(name).to_dict(), "weights": file and _digest(file)}
        keys[name] = config_hash({**detector, **rows, "mask": masking})
    return keys


def _weights_of(name: str, settings: ExtractSettings) -> Path:
    file = weight_file(name, settings.weights.get(name))
    assert file is not None  # every network has weights
    return file


def extract_parts(
    root: Path,
    names: Sequence[str],
    settings: ExtractSettings,
    parts_dir: Path,
    processes: int = 1,
    *,
    strict: bool = False,
    skipped: dict[str, str] | None = None,
    keys: dict[str, str] | None = None,
    seconds: dict[str, float] | None = None,
) -> Iterator[tuple[str, PhotoFeatures]]:
    """Extracts photos in several processes, each once: finished ones are read from `parts_dir`.

    With one process everything runs in this one. With more, they detect keypoints and cut patches, while this
    one computes descriptors with jax, which would compile in each process otherwise.

    Args:
        root: the photos' folder.
        names: photo names relative to `root`.
        settings: what is extracted.
        parts_dir: folder for one part file a photo; the caller removes it when all is done.
        processes: worker processes; at most twice as many photos are in memory.
        strict: raise at a photo that cannot be read.
        skipped: receives the name and reason of each photo that cannot be read.
        keys: `configuration_keys` of the whole run, where `settings` are a part of it.
        seconds: receives how long networks computed, and the whole took.

    Yields:
        (name, features) in the order of `names`, without the skipped photos.

    Raises:
        ValueError: photos without keypoints in the given file (before any work), a photo that its
            keypoints do not fit, or with `strict` one that cannot be read.
    """
    if processes < 1:
        raise ValueError(f"processes is {processes}, expected at least 1")
    keys = _keys_of(settings, keys)
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(keypoint_file(settings))
        check_names(source, root, names)
        extractors = stack.enter_context(extractors_of(settings, processes))

        def job(name: str) -> Job | PhotoFeatures:
            path = Path(root) / name
            stamp = photo_stamp(path)
            done = load_part(parts_dir, name, keys, stamp, settings.patches)
            if done is not None:
                return done
            extractors.start()  # what it cannot do is better said before any work
            return Job(name, path, stamp, source.read(name) if source else None)

        jobs = ((name, job(name)) for name in names)
        for name, made, result in stack.enter_context(detect_all(jobs, settings, processes)):
            if made is not None and isinstance(result, PhotoFeatures):
                try:
                    result = describe_photo(made.path, result, settings, extractors)
                    save_part(parts_dir, name, result, keys, made.stamp)
                except UnreadablePhoto as error:
                    result = error
            if isinstance(result, UnreadablePhoto):
                if strict:
                    raise result
                console.warn(f"left out: {result}")
                if skipped is not None:
                    skipped[name] = str(result)
                continue
            yield name, result
        if extractors.seconds:
            found = {"networks": extractors.seconds, "whole": time.perf_counter() - start}
            share = found["networks"] / found["whole"]
            told = f"{found['networks']:.1f} s of {found['whole']:.1f} s ({share:.0%}) on {extractors.found_device}"
            console.info(f"networks computed {told}")
            if seconds is not None:
                seconds.update(found)


def extractors_of(settings: ExtractSettings, processes: int = 1) -> Extractors:
    """What runs the networks of the settings beside `processes` others; a context manager."""
    weights = {name: _weights_of(name, settings) for name in settings.networks}
    threads = max(1, len(os.sched_getaffinity(0)) - (processes - 1))
    return Extractors(settings.networks, weights, settings.device, threads)


def keypoint_file(settings: ExtractSettings) -> contextlib.AbstractContextManager[KeypointFile | None]:
    """Opens the file that the keypoints come from; None where they are detected."""
    if not settings.given:
        return contextlib.nullcontext()
    return KeypointFile(settings.keypoints, COLMAP_SIFT in settings.descriptors, settings.framed)


def check_names(source: KeypointFile | None, root: Path, names: Sequence[str]) -> None:
    """Warns of photos in a file of keypoints that are not below `root`; raises ValueError where it lacks some."""
    if source is not None and (others := source.check_names(names)):
        console.warn(
            f"{source.path}: {console.counted(len(others), 'photo is', 'photos are')} not in {root}, first {others[:5]}"
        )


def _keys_of(settings: ExtractSettings, keys: dict[str, str] | None) -> dict[str, str]:
    keys = keys or configuration_keys(settings)
    return {name: keys[name] for name in settings.descriptors}


def _digest(path: Path) -> str:
    """SHA-256 of a file, and of the write-ahead log of a database."""
    digest = hashlib.sha256()
    for file in (path, path.with_name(path.name + "-wal")):
        if file.exists():
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def _parts(
    root: Path, stamps: dict[str, list[int]], parts: Path, settings: ExtractSettings, keys: dict[str, str]
) -> Iterator[tuple[str, PhotoFeatures]]:
    """The finished photos; raises ValueError where one was read as another than was listed, with its `photo_stamp`."""
    for name, stamp in stamps.items():
        features = load_part(parts, name, _keys_of(settings, keys), stamp, settings.patches)
        if features is None:
            raise ValueError(f"{root / name}: the photo has changed during the run; start it again")
        yield name, features


def _assemble(
    out: Path, descriptors: list[str], hashes: dict[str, str], parts: Iterator[tuple[str, PhotoFeatures]]
) -> None:
    for name in descriptors:
        remove_left(out / f"{name}.h5")
    with contextlib.ExitStack() as stack:
        writers = {
            name: stack.enter_context(StoreWriter(out / f"{name}.h5", get_spec(name), {"config_hash": hashes[name]}))
            for name in descriptors
        }
        for photo, features in parts:
            for name, writer in writers.items():
                writer.write(photo, features.image_features(name))


def _kept(parts: Path, listing: Sequence[tuple[str, list[int]]], keys: dict[str, str]) -> int:
    """Photos, listed with their stamps, that a run that was stopped has finished and that are still the same."""
    return sum(has_part(parts, name, keys, stamp) for name, stamp in listing)


def _counts(features: PhotoFeatures) -> tuple[int, int, int]:
    """Keypoints, valid ones, and distinct positions (a position may have several orientations)."""
    positions = len(np.unique(features.keypoints.xy, axis=0))
    return len(features), int(features.valid.sum()), positions


def _report(
    photos: Path,
    out: Path,
    settings: ExtractSettings,
    made: list[str],
    hashes: dict[str, str],
    counts: list[tuple[int, int, int]],
    skipped: dict[str, str],
    seconds: dict[str, float],
) -> None:
    total, valid, positions = (int(v) for v in np.sum(counts, axis=0))
    empty = sum(count == 0 for count, *_ in counts)
    share = valid / total if total else 0.0
    columns = ("photos", "without keypoints", "keypoints", "positions", "valid share", "skipped")
    row = (len(counts), empty, total, positions, share, len(skipped))
    console.table(f"extracted {' '.join(made)}", columns, [row])
    about = {
        "photos_folder": photos,
        "settings": settings,
        "photos": len(counts),
        "photos_without_keypoints": empty,
        "keypoints": total,
        "distinct_positions": positions,
        "valid": valid,
        "skipped": skipped,
        **({"seconds": seconds} if seconds else {}),
    }
    files = {name: {"file": f"{name}.h5", "config_hash": digest, **about} for name, digest in hashes.items()}
    # What is finished already, or was not asked for, was made by another extraction.
    for name, earlier in recorded_files(out).items():
        if name not in made and earlier.get("config_hash") == hashes.get(name, earlier.get("config_hash")):
            files[name] = earlier
    write_json(out / SUMMARY, {"version": VERSION, **about, "files": files})
