"""The stage `xdesc localize`: queries against a map.

In: a sparse model with the features that it was made from, the queries and their cameras, the queries'
features, and which photos to match each query with. Out: `poses.txt` (`name qw qx qy qz tx ty tz`, world to
camera) with the queries that were localised, `results.json` with all of them, and `correspondences.npz` with what
each pose rests on.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.camera_models import camera_option
from xdesc_jax.colmap.foreign.read import files_of
from xdesc_jax.colmap.model import Camera
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import claimed, inside
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import already_done, config_hash, content_hash, input_hash, recorded
from xdesc_jax.localization import correspondences, rendered
from xdesc_jax.localization.candidates import Candidates, read_candidates, similar_candidates
from xdesc_jax.localization.compared import check_rows, kinds, network_of, routes_told
from xdesc_jax.localization.finished import Work, localize_all
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.map import SHOWN, LocalizationMap
from xdesc_jax.localization.map_model import read_map
from xdesc_jax.localization.outcome import Localization, PoseSettings
from xdesc_jax.localization.query_cameras import query_cameras
from xdesc_jax.localization.read_query import localize_read
from xdesc_jax.localization.results import POSES, RESULTS, absolute, summarise, write_results
from xdesc_jax.localization.upright import turns_of_queries
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.match import NEAREST, Device, Matcher, check_matcher
from xdesc_jax.matching.match_plan import EXHAUSTIVE
from xdesc_jax.matching.named_files import NamedFiles
from xdesc_jax.matching.retrieval import joint_space
from xdesc_jax.matching.routes import Router
from xdesc_jax.networks.views import View, parse
from xdesc_jax.translation.ratios import strictest
from xdesc_jax.translation.translator import Translator

PART = ".queries.part"  # those that are finished, until all are


def localize(
    reconstruction: Path,
    out: Path,
    *,
    features: tuple[Path, ...],
    queries: Path | None = None,
    query_features: tuple[Path, ...] = (),
    camera: str | None = None,
    intrinsics: Path | None = None,
    photos: Path | None = None,
    model: Path | None = None,
    mode: Literal["native", "embed", "directional"] = "native",
    target: str | None = None,
    pairs: str | None = None,
    retrieval: int | None = None,
    global_features: tuple[Path, ...] = (),
    views: tuple[str, ...] = (),
    ratio: float | Literal["auto"] | None = "auto",
    matcher: Matcher = NEAREST,
    weights: tuple[str, ...] = (),
    device: Device = "auto",
    min_score: float = 0.0,
    descriptor: tuple[str, ...] = (),
    query_descriptor: tuple[str, ...] = (),
    min_inliers: int = PoseSettings.min_inliers,
    max_error_px: float = PoseSettings.max_error_px,
    seed: int = 0,
    workers: int = 1,
    assume_focal: bool = False,
    allow_missing: bool = False,
    strict: bool = False,
    overwrite: bool = False,
) -> Path:
    """Query photos -> poses in a map. Started again, it goes on with the queries that are left.

    Each query's camera comes from the first that knows it: its line in the query list, --camera or
    --intrinsics, the database that its features come from, EXIF of its photo, and with --assume-focal a guess.

    Args:
        reconstruction: folder of a COLMAP model with 3D points, or a model of OpenSfM, OpenMVG, Bundler or NVM.
        out: folder to write `poses.txt`, `results.json` and `correspondences.npz` to.
        features: feature files (.h5) and COLMAP databases that the model was made from, or translations of them.
        queries: query list, 'name MODEL width height params...' a line, or names alone; without it, all photos of
            `query_features` are queries.
        query_features: feature files and databases of the queries; `features` where none is given.
        camera: of all queries that are listed without, as 'MODEL width height params...'; in place of `intrinsics`.
        intrinsics: list as `queries`, COLMAP model or database, or model of another program, with the cameras of
            queries that are listed without.
        photos: folder of the queries' photos, for the cameras' EXIF, and with --views gravity for how they were held;
            nothing else of them is read.
        model: model file (.safetensors) that translates, or the name of one that ships with the package.
        mode: 'native' compares rows as they are, 'embed' in the joint space, 'directional' in `target`, to which
            the map is translated; without a target each query is translated to what the map holds.
        target: see `mode`.
        pairs: pair list, query and map photo a line; or 'exhaustive' for all photos of the map. Pairs of queries
            that are not listed, or of photos that the map lacks, are left out and counted (see `strict`).
        retrieval: instead of `pairs`: how many map photos to retrieve for each query, in the joint space.
        global_features: files of one vector a photo (`global_descriptor`, as hloc writes NetVLAD's) of queries and map,
            by which `retrieval` compares them in place of the joint space.
        views: 'roll=0,90,180,270 scale=0.5,1,2', for queries at other rolls and zooms than the map's photos: rows of
            SIFT and others that turn with their keypoints are rendered as each view shows them (degrees, clockwise, and
            factors), and each pair of photos is matched in the view with the most sure matches; the map's rows, or else
            the queries'. With 'gravity', the map's photos are turned upright first, by their poses: for queries that
            were held upright, or of which EXIF in --photos says how they lie, and which need no other rolls then.
        ratio: largest first-to-second distance ratio, on the L2 scale; 'None' for mutual neighbours alone;
            'auto' for the calibrated one, 0.9 where none is known.
        matcher: 'nearest' for mutual nearest neighbours, or 'lightglue' for a network, where map and queries hold
            ALIKED or DISK, or are translated to it (--mode directional); see `xdesc match`. Without --views.
        weights: weight files of 'lightglue', as NAME=FILE; installed ones are found without.
        device: on which 'lightglue' computes: 'auto' is CUDA where there is some.
        min_score: of what 'lightglue' finds, see `xdesc match`.
        descriptor: what `features` hold, where they do not say (hloc's); NAME=FILE for one of several. May be given
            again.
        query_descriptor: the same of `query_features`.
        min_inliers: a pose with fewer is a failure.
        max_error_px: largest reprojection error of an inlier.
        seed: of RANSAC and of the retrieval's vocabulary.
        workers: threads that localise; the result is the same for any number.
        assume_focal: guess 1.2 times the longer side as the focal length of queries of which nothing knows it, and
            refine it with the pose.
        allow_missing: leave out photos of the model that `features` lack.
        strict: refuse a pair list that names photos beyond the query list and the map.
        overwrite: replace a result made with other settings.

    Returns:
        `out`.

    Raises:
        ValueError: files that do not fit each other, queries without intrinsics, pairs of which all name unknown
            photos, views of rows that none are rendered of.
        FileExistsError: `out` was made with other settings and `overwrite` is off.
        InUse: another process localises into `out`.
    """
    reconstruction, out = Path(reconstruction), Path(out)
    if (pairs is None) == (retrieval is None):
        raise ValueError(
            "name the map photos to match with: either --pairs (a list, or 'exhaustive') or --retrieval (how many)"
        )
    listed = Path(pairs) if pairs not in (None, EXHAUSTIVE) else None
    if listed is not None and not listed.is_file():
        raise FileNotFoundError(
            f"{listed}: no such pair list (or 'exhaustive' for all photos of the map; --retrieval N retrieves them)"
        )
    if global_features and retrieval is None:
        raise ValueError("--global-features are for --retrieval, which says how many photos they find")
    if retrieval is not None and retrieval < 1:
        raise ValueError(f"retrieval of {retrieval} photos, expected at least 1")
    if workers < 1:
        raise ValueError(f"workers is {workers}, expected at least 1")
    if queries is None and not query_features:
        raise ValueError(
            "name the queries: a list (--queries), or --query-features alone, whose photos are all queries"
        )
    given_camera = camera_option(camera)
    check_matcher(matcher, weights, device, min_score, ratio)
    seen = parse(views)
    rendered.check_matcher(seen, matcher != NEAREST)
    limits = PoseSettings(min_inliers, max_error_px, seed)
    named, model = model, pretrained.resolve(model) if model is not None else None
    translator = Translator.load(model) if model is not None else None
    held = NamedFiles.of(descriptor, features)
    of_queries = NamedFiles.of(query_descriptor, query_features or features, "--query-descriptor")
    with (
        FeatureSet(features, held, model=translator) as known,
        FeatureSet(
            query_features or features,
            of_queries if query_descriptor or query_features else held,
            model=translator,
            hint="name it by --query-descriptor",
        ) as asked,
    ):
        cameras = query_cameras(queries, asked, assume_focal, intrinsics, photos, given_camera)
        check_rows(asked, cameras)
        router = Router(mode, translator, target=target, ratio=ratio, ratios=strictest(known.ratios, asked.ratios))
        network = None
        if matcher != NEAREST:
            of_map = read_map(reconstruction, known).names
            network = network_of(router, asked, cameras, known, of_map, weights, device, min_score)
        with console.status("reading the inputs"):
            hashes = {
                "reconstruction": model_hash(reconstruction),
                "features": known.hashes(),
                "queries": content_hash(queries) if queries is not None else None,
                "query_features": asked.hashes(),
                "model": content_hash(model) if model is not None else None,
            }
        settings: dict[str, Any] = {
            "stage": "localize",
            **hashes,
            "mode": mode,
            "target": target,
            "pairs": pairs if listed is None else input_hash(listed),
            "retrieval": retrieval,
            "ratio": ratio,
            "descriptor": held.config(known.paths),
            "query_descriptor": of_queries.config(asked.paths),
            "min_inliers": min_inliers,
            "max_error_px": max_error_px,
            "seed": seed,
            "assume_focal": assume_focal,
            "allow_missing": allow_missing,
        }
        if given_camera is not None:
            settings["camera"] = dataclasses.asdict(given_camera)
        if intrinsics is not None or photos is not None:
            settings["cameras"] = config_hash(cameras)
        if network is not None:
            settings["matcher"] = {matcher: network.config()}
        if seen:
            settings["views"] = [view.name for view in seen]
        turns = _query_turns(seen, photos, asked, cameras)
        if any(turns.values()):
            settings["query_turns"] = config_hash(turns)
        if global_features:
            settings["global_features"] = [input_hash(path) for path in global_features]
        expected, results = config_hash(settings), out / RESULTS
        beside = [out / POSES, out / correspondences.FILE]
        paths = {"reconstruction": reconstruction, "features": known.paths, "query_features": asked.paths}
        inputs = {"queries": queries, "model": named, "pairs": pairs}
        found_hash = recorded(results)
        differs = partial(
            changes, results, found_hash, settings, {**absolute(paths), **inputs}, kept="settings",
            names_kept=["paths", "inputs"],
        )  # fmt: skip
        if already_done(results, found_hash, expected, overwrite, beside=beside, differs=differs):
            console.up_to_date(out)
            return out
        with console.status("reading the map"):
            sparse = read_map(reconstruction, known)
        embeds = retrieval is not None and not global_features
        space = joint_space([known], translator) if embeds else None
        framed = {held: asked.frames(name) is not None for held, name in kinds(asked, cameras).items()}
        routes = routes_told(router, translator, framed, kinds(known, sparse.names), space, seen, network)
        candidates = None
        if listed is not None:
            candidates = read_candidates(listed, list(cameras), sparse.names, known.names, strict)
        if retrieval is not None and global_features:
            candidates = similar_candidates(global_features, list(cameras), sparse.names, known.names, retrieval)
        shown = {"map photos": len(sparse.names), "3D points": len(sparse.points), "query photos": len(cameras)}
        given = {**settings, **paths, **inputs, "camera": camera} | ({"views": " ".join(views)} if seen else {})
        if network is not None:
            given |= {"matcher": matcher, "weights": weights, "device": device, "min_score": min_score}
        del given["stage"]
        told = {**given, **shown, "workers": workers} | ({"compared": "; ".join(routes)} if routes else {})
        if "query_turns" in settings:
            told["query_turns"] = ", ".join(f"{n} by {turn:g} deg" for turn, n in Counter(turns.values()).items())
        console.settings(f"xdesc localize -> {out}", told, localize)
        _tell_of_photos_of_the_map(cameras, sparse.names)
        about: dict[str, Any] = {"settings": settings, "config_hash": expected, "paths": absolute(paths)}
        about |= {"inputs": inputs, "compared": routes}
        about["pairs_left_out"] = candidates.left_out if candidates is not None else 0
        with claimed(inside(out), "xdesc localize", out):
            built = LocalizationMap.build(
                sparse, known, router, translator, retrieval=embeds, views=seen,
                query_turns=tuple(dict.fromkeys(turns.values())), allow_missing=allow_missing, seed=seed,
                where=str(reconstruction),
                track=lambda names: console.track(names, "reading the map", "photos"),
            )  # fmt: skip
            _warn_of_map(built)
            with (
                Localizer(
                    built, retrieval=retrieval if embeds else None, settings=limits, matcher=network
                ) as localizer,
                Journal(out / PART, expected) as journal,
            ):
                if network is not None and len(journal) < len(cameras):
                    network.start()  # what is wrong with it is no query's fault
                if len(journal):
                    console.info(f"going on: {len(journal)} of {len(cameras)} queries are finished")
                names = console.track(list(cameras), "localizing", "queries", finished=len(journal))
                work_on = lambda name: _work(localizer, asked, name, cameras[name], turns[name], candidates)  # noqa: E731
                found = localize_all(names, work_on, journal, workers)
                localized = {name: _kept(result) for name, result in found}
                write_results(out, about, cameras, sparse, localized)
                journal.remove()
    summarise(localized)
    console.result(out, poses=out / POSES, figures=out / RESULTS)
    return out


def _kept(found: Localization) -> Localization:
    """What is kept of a query until all are written: no more of its correspondences than their file has."""
    kept = found.correspondences.at_most(correspondences.KEPT)
    return dataclasses.replace(found, correspondences=kept)


def _query_turns(
    views: Sequence[View], photos: Path | None, asked: FeatureSet, names: Iterable[str]
) -> dict[str, float]:
    """Query -> the turn that sets it upright, which views of the map's photos upright go by; 0 without such views."""
    if photos is None or not any(view.upright for view in views):
        return dict.fromkeys(names, 0.0)
    return turns_of_queries(photos, {name: asked.image_size(name) for name in names})


def model_hash(model: Path) -> dict[str, str]:
    """File -> hash of each file of a model, COLMAP's or another program's."""
    return {path.name: input_hash(path) for path in files_of(model)}


def _tell_of_photos_of_the_map(queries: Iterable[str], names: Collection[str]) -> None:
    """Says which queries count as photos of the map: those of another device may be called alike by chance."""
    known = set(names)
    if same := [name for name in queries if name in known]:
        console.info(
            f"{console.counted(len(same), 'query', 'queries')} with names of photos of the map, first {same[:SHOWN]}: "
            "not matched with those; rename queries that are other photos"
        )


def _warn_of_map(built: LocalizationMap) -> None:
    if built.missing:
        told = console.counted(len(built.missing), "photo of the model has", "photos of the model have")
        console.warn(f"{told} no features, first {list(built.missing[:SHOWN])}")
    if built.bare_points:
        console.warn(f"{built.bare_points} of {len(built.points)} 3D points have no descriptor")
    for text in built.findings:
        console.warn(text)


def _work(
    localizer: Localizer, asked: FeatureSet, name: str, camera: Camera, turn_deg: float, candidates: Candidates | None
) -> Work:
    """Reads a query; returns what localises it."""
    held = asked.held(name)
    if held is None:
        reason = f"no descriptors for {len(asked.keypoints(name))} keypoints"
        return lambda: Localization("failed", reason)
    of_map = localizer.map.photos  # without those of no features, where photos may be missing
    chosen = None if candidates is None else [photo for photo in candidates.photos[name] if photo in of_map]
    try:
        photo = asked.read(name)
    except ValueError as error:
        reason = str(error)
        return lambda: Localization("failed", reason)
    return partial(localize_read, localizer, name, photo, held, camera, chosen, turn_deg)
