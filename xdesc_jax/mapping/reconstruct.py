"""The stage `xdesc reconstruct`: features and matches -> verified pairs and COLMAP models.

In: feature files or COLMAP databases, also of mixed descriptors, with a match file or with pairs to match; or a
database that has matches; cameras; poses where they are known. Out: `OUT/database.db`, the models `OUT/models/0` (most
photos), 1, ... and `OUT/summary.json`; with pairs, `OUT/matches.h5`, too. All names are joined before any work; a run
that was stopped goes on.
"""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.bindings.mapper import model_figures, model_names
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.camera_models import camera_option
from xdesc_jax.colmap.cameras import (
    Intrinsics,
    Sharing,
    choose_intrinsics,
    database_cameras,
    read_intrinsics,
    share_cameras,
)
from xdesc_jax.colmap.database import DatabaseReader, is_database
from xdesc_jax.colmap.lists import read_names
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.files import dry_run
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import claimed, inside
from xdesc_jax.files.whole import already_done, config_hash, input_hash, making, remove_left, write_json
from xdesc_jax.mapping.build import build_database, canonical_pairs, copy_database, made_with
from xdesc_jax.mapping.from_photos import DATABASE, MODELS, model_folders, settle
from xdesc_jax.mapping.mapper import PairCounts, check_poses, map_incrementally, triangulate, verify
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.match import NEAREST, Device, Matcher, check_matcher, match
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.matching.named_files import NamedFiles
from xdesc_jax.matching.pair_choice import uses_positions
from xdesc_jax.matching.routes import Mode
from xdesc_jax.translation.translator import Translator

SUMMARY, MATCHES = "summary.json", "matches.h5"
PARTIAL = f"{DATABASE}.partial"  # what a killed run goes on with
_SHOWN = 5


def reconstruct(
    features: tuple[Path, ...],
    out: Path,
    *,
    matches: Path | None = None,
    pairs: str | None = None,
    global_features: tuple[Path, ...] = (),
    mode: Mode = "native",
    target: str | None = None,
    matcher: Matcher = NEAREST,
    weights: tuple[str, ...] = (),
    device: Device = "auto",
    min_score: float = 0.0,
    photos: Path | None = None,
    camera: str | None = None,
    intrinsics: Path | None = None,
    camera_per: Sharing | None = None,
    given_poses: Path | None = None,
    only: Path | None = None,
    descriptor: tuple[str, ...] = (),
    model: Path | None = None,
    settings: MappingSettings = MappingSettings(),  # noqa: B008
    overwrite: bool = False,
) -> Path:
    """Features and matches -> sparse models.

    Each photo's camera comes from the first that knows it: --camera, --intrinsics (or --given-poses), the
    database that its features come from, EXIF of the photo, and else a focal length of 1.2 max(width, height).
    Cameras of the first two are kept as they are; see --refine-intrinsics.

    Args:
        features: feature files (.h5) and COLMAP databases; a photo is in one of them. One database that has matches
            needs neither --matches nor --pairs. Alone it keeps its rigs and shared cameras; among others, or with
            --only or --camera-per, its photos get cameras and frames of their own. Behind them, `out`.
        out: folder for the database, the models and the summary.
        matches: match file (.h5) of the photos, as `xdesc match` writes it.
        pairs: which photos to match here, instead of --matches: a list, 'exhaustive', 'sequential:10', 'gps:20',
            'retrieval:20' or several with '+' (`xdesc match`).
        global_features: files of one vector a photo, by which 'retrieval' compares photos (`xdesc match`).
        mode: of matching: 'native', or by --model 'embed', 'progressive' or 'directional', where photos hold different
            descriptors.
        target: descriptor to translate to, in mode 'directional'.
        matcher: of pairs that are matched here: 'nearest', or 'lightglue' for rows of ALIKED and DISK, native or
            translated to them (`xdesc match`).
        weights: weight files of 'lightglue', as NAME=FILE; installed ones are found without.
        device: on which 'lightglue' computes: 'auto' is CUDA where there is some.
        min_score: of what 'lightglue' finds, see `xdesc match`.
        photos: folder of the photos, for EXIF: cameras, and positions for --pairs gps:N; nothing else of them is read.
        camera: of all photos, as 'MODEL width height params...'.
        intrinsics: list with a line 'name MODEL width height params...' a photo, a COLMAP model or database, or a model
            of another program: transforms.json, OpenSfM, OpenMVG, Bundler, NVM.
        camera_per: which photos share a camera: 'photo' (the default: each has its own), 'folder' or 'size'.
        given_poses: COLMAP model, or one of another program, whose poses are kept: its photos are not mapped, their
            points triangulated.
        only: text file of the photos to take, one name a line; all without. With --pairs, these alone are matched.
        descriptor: what the files hold, where they do not say (hloc's); NAME=FILE for one of several. May be given
            again.
        model: model file (.safetensors), or the name of one that ships with the package, for `mode`; or one that knows
            `descriptor`, where that is one of your own.
        settings: of verification and mapping.
        overwrite: replace models made with other settings or of other files.

    Returns:
        `out`.

    Raises:
        ValueError: names that one of the inputs lacks, cameras that do not fit, matches of unknown rows.
        NotReconstructed: there is no model; says how far the photos came.
        FileExistsError: `out` holds other models and `overwrite` is off.
        InUse: another process makes them.
    """
    sources = [Path(path) for path in features]
    out = Path(out)
    _check_matching(sources, matches, pairs, mode, target, model)
    check_matcher(matcher, weights, device, min_score)
    if pairs is None and matcher != NEAREST:
        raise ValueError(f"--matcher {matcher}: is of matching here: say by --pairs which photos to match")
    given_camera = camera_option(camera)
    translator = Translator.load(pretrained.resolve(model)) if model is not None else None
    with (
        claimed(inside(out), "xdesc reconstruct", out),
        FeatureSet(sources, NamedFiles.of(descriptor, sources), model=translator) as feature_set,
    ):
        names = feature_set.names if only is None else read_names(only, feature_set.names)
        feature_set.check_names(names, f"{only}")
        if matches is not None:
            _check_matches(matches, feature_set, names)
        elif pairs is None:
            _check_database(sources, camera_per, only)
        chosen, poses = _cameras(
            feature_set, names, sources, given=given_camera, intrinsics=intrinsics, given_poses=given_poses,
            photos=photos, per=camera_per or "photo",
        )  # fmt: skip
        if pairs is not None:
            with dry_run.step(out / DATABASE), console.inner():
                matches = match(
                    features, out / MATCHES, pairs=pairs, mode=mode, model=model, target=target, descriptor=descriptor,
                    matcher=matcher, weights=weights, device=device, min_score=min_score, overwrite=overwrite,
                    photos=photos if uses_positions(pairs) else None, global_features=global_features, only=only,
                )  # fmt: skip
            _check_matches(matches, feature_set, names)
        with console.status("reading the inputs"):
            hashes = {
                "features": feature_set.hashes(),
                "matches": matches and input_hash(matches),
            }
        config = {
            "stage": "reconstruct",
            **hashes,
            "photos": config_hash(names),
            "cameras": config_hash(chosen),
            "camera_per": camera_per,
            "poses": poses and config_hash({name: poses[name] for name in names}),
            "settings": settings.config(),
        }
        expected = config_hash(config)
        named = {"features": sources, "matches": matches, "only": only, "given_poses": given_poses}

        def differs(found_hash: str) -> str:
            called = {"photos": "only", "poses": "given_poses"}
            return changes(out / SUMMARY, found_hash, config, named, names_kept=["inputs"], called=called)

        _check_out(out, sources, expected, overwrite, differs)
        if _finished(out):
            console.up_to_date(out)
            return out
        for name in (DATABASE, PARTIAL, MODELS):
            remove_left(out / name)
        cameras = Counter(i.source for i in chosen.values())
        given = {
            "features": sources,
            "matches": matches,
            "pairs": pairs,
            "global_features": global_features,
            "mode": mode,
            "target": target,
            "matcher": matcher,
            "weights": weights,
            "device": device,
            "min_score": min_score,
            "photos": photos,
            "camera": camera,
            "intrinsics": intrinsics,
        }
        given |= {"camera_per": camera_per, "given_poses": given_poses, "only": only, "descriptor": descriptor}
        told = {"matches": matches or "of the database", "photos": len(names), "settings": settings}
        told["cameras"] = ", ".join(f"{n:,} from {source}" for source, n in cameras.items())
        console.settings(f"xdesc reconstruct -> {out}", {**given, **told}, reconstruct)
        database, partial = out / DATABASE, out / PARTIAL
        if not database.exists() and not partial.exists():
            if _is_whole(sources, camera_per, only):
                own_frames = poses is not None
                copy_database(sources[0], partial, chosen, matches, own_frames=own_frames, config_hash=expected)
            else:
                assert matches is not None, "_check_database asks for one"
                for path in sources:
                    _tell_dissolved(path)
                build_database(
                    partial, feature_set, chosen, matches, names=names, per=camera_per or "photo", config_hash=expected
                )
        # Under its own name only once every pair is verified.
        verified = verify(partial if partial.exists() else database, settings, where=database)
        if partial.exists():
            settle(partial, database)
        models = out / MODELS
        if not models.exists():
            if poses is None:
                map_incrementally(database, models, settings)
            else:
                with console.status("triangulating"):
                    triangulate(database, poses, models, settings)
        counts, _ = made_with(database) or ({}, "")
        about = {
            "config_hash": expected,
            "config": config,
            "inputs": given,
            "cameras": dict(cameras),
            "database": counts,
        }
        _report(out, names, verified, about)
        console.result(out / MODELS / "0", database=database, figures=out / SUMMARY)
    return out


def _check_matches(matches: Path, features: FeatureSet, names: list[str]) -> None:
    """Raises ValueError where a match file names photos that no feature file has."""
    with MatchFile(matches, features.names) as match_file:
        canonical_pairs(match_file, features, set(names))


def _cameras(
    features: FeatureSet,
    names: list[str],
    sources: list[Path],
    *,
    given: Camera | None,
    intrinsics: Path | None,
    given_poses: Path | None,
    photos: Path | None,
    per: Sharing,
) -> tuple[dict[str, Intrinsics], Mapping[str, Pose] | None]:
    """The camera of each photo, and the poses that are kept; found before photos are matched, which takes longer.

    Raises:
        ValueError: cameras that do not fit their photo or each other, photos without a given pose.
    """
    sizes = {name: features.image_size(name) for name in names}
    posed = read_model(given_poses, sizes) if given_poses else None
    poses = posed.poses if posed else None
    if poses is not None:
        check_poses(names, poses, str(given_poses))
    listed = read_intrinsics(intrinsics, sizes) if intrinsics else {}
    if posed and not intrinsics:
        listed = dict(zip(posed.names, posed.cameras, strict=True))
    own = {name: c for path in sources if is_database(path) for name, c in database_cameras(path).items()}
    chosen = choose_intrinsics(sizes, given=given, listed=listed, own=own, photos=photos)
    share_cameras(chosen, per)
    return chosen, poses


def _is_whole(sources: list[Path], camera_per: Sharing | None, only: Path | None) -> bool:
    """Whether the photos are those of one database, which keeps its cameras, rigs and frames."""
    return len(sources) == 1 and camera_per is None and only is None and is_database(sources[0])


def _tell_dissolved(path: Path) -> None:
    """Warns of what a database loses where its photos become part of another one."""
    if not is_database(path):
        return
    with DatabaseReader(path) as reader:
        shared, rigs = reader.sharing()
    if shared or rigs:
        console.warn(
            f"{path}: its photos are taken without its rigs and shared cameras: {rigs} rigs of several cameras and "
            f"{shared} cameras of several photos come apart; alone, with neither --only nor --camera-per, it keeps them"
        )


def _check_matching(
    sources: list[Path], matches: Path | None, pairs: str | None, mode: Mode, target: str | None, model: Path | None
) -> None:
    """Raises ValueError where settings of matching come without pairs to match, or lack what they need."""
    files = ", ".join(map(str, sources))
    if pairs is not None and matches is not None:
        raise ValueError(f"{files}: --matches {matches} and --pairs {pairs}; give one of them")
    if pairs is None and (mode != "native" or target is not None):
        raise ValueError(f"{files}: --mode and --target are of matching here: say by --pairs which photos to match")
    if mode != "native" and model is None:
        raise ValueError(f"{files}: --mode {mode} translates, so it needs a model: give --model")


def _check_database(sources: list[Path], camera_per: Sharing | None, only: Path | None) -> None:
    """Raises ValueError where inputs without a match file are not one whole database."""
    files = ", ".join(map(str, sources))
    if len(sources) > 1 or not is_database(sources[0]):
        raise ValueError(
            f"{files}: matches are given by --matches, made by --pairs, or lie in a single COLMAP database"
        )
    for option, value in (("--camera-per", camera_per), ("--only", only)):
        if value is not None:
            raise ValueError(f"{files}: {option} needs --matches or --pairs: a database with matches is taken as it is")


def _finished(out: Path) -> bool:
    """Whether the last run into `out` came to its end, and its models are still there."""
    return (out / SUMMARY).exists() and (out / MODELS / "0").is_dir()


def _check_out(out: Path, sources: list[Path], expected: str, overwrite: bool, differs: Callable[[str], str]) -> None:
    """Raises where `out` holds anything but this very result, of which `differs` tells by the hash of the other's
    configuration; takes out what is not gone on with."""
    database, models, partial = out / DATABASE, out / MODELS, out / PARTIAL
    if database.resolve() in [path.resolve() for path in sources]:
        raise ValueError(f"{database}: is the input itself; choose another output")
    if not database.exists():
        if models.exists():
            raise FileExistsError(f"{models} exists without the database of its models; choose another output")
        goes_on = not overwrite and _hash_of_partial(partial) == expected
        if goes_on:
            dry_run.output(out, dry_run.CONTINUED)
        making(out)
        if partial.exists() and not goes_on:
            console.info(f"{partial}: was made with other settings or inputs, or is damaged; it is not used")
            _remove_database(partial)
        return
    made = made_with(database)
    if made is None:
        raise FileExistsError(f"{database} was not made by this stage; choose another output")
    goes_on = not overwrite and made[1] == expected and not _finished(out)
    if goes_on:
        dry_run.output(out, dry_run.CONTINUED)
    redone = not already_done(database, made[1], expected, overwrite, differs=functools.partial(differs, made[1]))
    if redone or goes_on:
        (out / SUMMARY).unlink(missing_ok=True)
    if redone:
        _remove_database(database)
    if redone or not (models / "0").is_dir():
        shutil.rmtree(models, ignore_errors=True)
    _remove_database(partial)


def _hash_of_partial(partial: Path) -> str | None:
    """The configuration of an unfinished database; None where there is none that can be gone on with."""
    try:
        made = made_with(partial) if partial.exists() else None
    except ValueError:  # killed within a write of SQLite's
        made = None
    return None if made is None else made[1]


def _remove_database(path: Path) -> None:
    """Takes out a database and what SQLite left beside it."""
    for end in ("-wal", "-shm", "-journal", ""):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _report(out: Path, names: list[str], pairs: PairCounts, about: Mapping[str, Any]) -> None:
    folders = model_folders(out / MODELS)
    registered = [model_names(folder) for folder in folders]
    missing = sorted(set(names).difference(registered[0]))
    models = [
        {"model": f"{MODELS}/{folder.name}", **model_figures(folder), "photo_names": found}
        for folder, found in zip(folders, registered, strict=True)
    ]
    write_json(
        out / SUMMARY,
        {**about, "matched_pairs": pairs.matched, "verified_pairs": pairs.verified, "models": models,
         "not_registered": missing},
    )  # fmt: skip
    columns = ("photos", "points", "observations", "mean_track_length", "mean_reprojection_error_px")
    console.table(
        f"{pairs.verified:,} of {pairs.matched:,} pairs verified; {len(names) - len(missing):,} of {len(names):,} "
        f"photos in the largest model",
        ("model", *(column.replace("_", " ") for column in columns)),
        [(model["model"], *(model[column] for column in columns)) for model in models],
    )
    if missing:
        told = console.counted(len(missing), "photo is", "photos are")
        console.warn(f"{told} not in {out / MODELS / '0'}, first {missing[:_SHOWN]}")
