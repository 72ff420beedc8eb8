"""What a reader gives must be whole whatever the file: shapes that agree, numbers in range, outputs that can be read.

In: a file or folder that may be damaged. Out: nothing; the reader's own error where it refuses the file; or `Wrong`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import cli
from xdesc_jax.colmap import database_matches, lists
from xdesc_jax.colmap.cameras import database_cameras
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.model import Camera
from xdesc_jax.config import TrainConfig, load_config
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.evaluate.scenes import read_homography
from xdesc_jax.features import images
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.fields import wrong_types
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.matching.pairs import read_pairs
from xdesc_jax.translation.ratios import RATIOS, parse
from xdesc_jax.translation.translator import Translator

KNOWN = ("a b.jpg", "b/\u00e9.jpg", "c.jpg")


class Wrong(AssertionError):
    """A reader took a file, and what it made of it cannot be."""


def need(condition: object, what: str) -> None:
    if not condition:
        raise Wrong(what)


def spec_is_whole(spec: DescriptorSpec) -> None:
    need(isinstance(spec.name, str) and type(spec.width) is int and spec.width >= 1, f"spec is {spec}")
    need(spec.stored_dtype in (np.dtype("u1"), np.dtype("f4")), f"stored dtype of {spec}")
    need(isinstance(spec.storage_scale, (int, float)) and 0 < spec.storage_scale < np.inf, f"storage scale of {spec}")
    need(type(spec.normalized) is bool and spec.output in ("none", "relu", "sigmoid"), f"spec is {spec}")
    need(all(h > 0 for h in spec.hidden), f"hidden widths of {spec}")


def reals(values: Any, shape: tuple[int, ...], what: str) -> None:
    values = np.asarray(values)
    need(values.shape == shape, f"{what} has shape {values.shape}, expected {shape}")
    need(values.dtype.kind == "f" and np.isfinite(values).all(), f"{what} holds what is not finite, or no floats")


def _camera(camera: Camera) -> None:
    need(type(camera.width) is int and type(camera.height) is int, f"size of {camera}")
    need(all(isinstance(p, float) for p in camera.params), f"parameters of {camera}")


def features(path: Path) -> None:
    with FeatureStore(path) as store:
        store.require_photos()
        spec_is_whole(store.spec)
        parse(store.attributes.get(RATIOS), path)
        for name, held in store:
            n = len(held)
            need(store.count(name) == n and held.keypoints.shape == (n, 2), f"{name}: {n} keypoints")
            need(held.keypoints.dtype == np.float32 and np.isfinite(held.keypoints).all(), f"{name}: keypoints")
            need(held.descriptors.shape == (n, store.spec.stored_width), f"{name}: {held.descriptors.shape}")
            need(held.descriptors.dtype in (np.uint8, np.float32, np.float64), f"{name}: {held.descriptors.dtype}")
            need(held.valid.shape == (n,) and held.valid.dtype == bool, f"{name}: valid")
            need(0 <= store.invalid(name) <= n, f"{name}: invalid rows")
            need(min(store.image_size(name)) >= 0, f"{name}: image size")
            for key, values in store.frames(name).items():
                need(len(values) == n and values.dtype == np.float32, f"{name}: {key}")
            store.all_real(name), store.stored_form(name)


def matches(path: Path) -> None:
    with MatchFile(path, KNOWN) as file:
        for pair in file.pairs():
            need(len(pair) == 2 and all(isinstance(name, str) for name in pair), f"pair {pair}")
            for names in (pair, pair[::-1]):
                rows, scores = file.read(*names)
                need(rows.dtype == np.int32 and rows.ndim == 2 and rows.shape[1] == 2, f"{pair}: rows {rows.shape}")
                need((rows >= 0).all(), f"{pair}: row below 0")
                need(scores.shape == (len(rows),) and np.isfinite(scores).all(), f"{pair}: scores")


def model(path: Path) -> None:
    found = Translator.load(path)
    bundle = found.bundle
    for name, spec in bundle.specs.items():
        spec_is_whole(spec)
        need(name == spec.name, f"{name}: {spec}")
    need(bundle.space_id is None or isinstance(bundle.space_id, str), f"space id is {bundle.space_id!r}")
    need(type(bundle.embedding_width) is int, f"embedding width is {bundle.embedding_width!r}")
    json.dumps([bundle.config, bundle.provenance], allow_nan=False)
    if bundle.sample.inputs:
        with np.errstate(all="ignore"):
            found.self_check()
    for key in bundle.networks:
        kind, *ends = key.split("/")
        source = found.embedding_spec if kind == "decoder" else bundle.specs[ends[0]]
        target = bundle.specs[ends[-1]] if kind != "encoder" else found.embedding_spec
        rows = np.ones((2, source.width), bool if source.binary else np.float32)
        if source.normalized:
            rows = rows / np.float32(np.sqrt(source.width))
        seen = {"frames": np.array([[1, 0], [9, 2]]), "positions": np.array([[3, 4], [40, 9]])}
        with np.errstate(all="ignore"):
            y = found.translate(rows, source.name, target.name, **seen)
        need(y.shape == (2, target.width), f"{key} gives {y.shape}")


def database(path: Path) -> None:
    with DatabaseReader(path) as reader:
        reader.require_photos()
        parse(reader.attributes.get(RATIOS), path)
        for name in reader.names:
            xy = reader.keypoints(name)
            need(xy.dtype == np.float32 and xy.shape[1] in (2, 4, 6), f"{name}: keypoints {xy.shape}")
            need(min(reader.image_size(name)) >= 0, f"{name}: image size")
            if (camera := reader.camera(name)) is not None:
                _camera(camera)
            if (spec := reader.spec(name)) is not None:
                spec_is_whole(spec)
                rows = reader.descriptors(name)
                need(rows.ndim == 2 and rows.shape[1] == spec.stored_width, f"{name}: rows {rows.shape}")
            origin = reader.translated_from(name)
            need(origin is None or isinstance(origin, str), f"{name}: from {origin!r}")
        reader.sharing()
        for pair in database_matches.stored_pairs(reader):
            for table in ("matches", database_matches.VERIFIED):
                if reader.columns(database_matches.verified_table(reader) if table != "matches" else table):
                    rows = database_matches.read_rows(reader, table, pair.name0, pair.name1)
                    need(rows.shape[1] == 2 and (rows >= 0).all(), f"{pair}: rows")
            need(type(pair.matches) is int and pair.matches >= 0, f"{pair}: matches")
            need(pair.inliers is None or type(pair.inliers) is int and pair.inliers >= 0, f"{pair}: inliers")
    for camera in database_cameras(path).values():
        _camera(camera)


def map_model(path: Path, sizes: Any = None) -> None:
    from xdesc_jax.colmap.bindings.api import read_model

    with np.errstate(all="ignore"):
        found = read_model(path, sizes)
    v, p, m = len(found.names), len(found.points), len(found.point)
    need(v and len(set(found.names)) == v and all(found.names), f"names {found.names}")
    reals(found.rotations, (v, 3, 3), "rotations")
    need(np.allclose(found.rotations @ found.rotations.transpose(0, 2, 1), np.eye(3), atol=1e-6), "rotations")
    reals(found.translations, (v, 3), "translations")
    reals(found.points, (p, 3), "points")
    need(found.point_ids is not None and len(np.unique(found.point_ids)) == p, "point ids")
    need((np.diff(found.point) >= 0).all() and (found.point >= 0).all() and (found.point < p).all(), "observed points")
    need(found.view.shape == (m,) and (found.view < v).all(), "views")
    reals(found.xy, (m, 2), "keypoints")
    counts = found.keypoint_counts
    need(counts is None or (found.keypoint < counts[found.view]).all(), "rows of keypoints")


def foreign_model(path: Path) -> None:
    """Of another program: the model, and the same without its points."""
    from tests.support.foreign_scenes import NAMES, SIZE
    from xdesc_jax.colmap.cameras import read_intrinsics
    from xdesc_jax.colmap.reference import reference_poses

    sizes = dict.fromkeys(NAMES, SIZE)
    map_model(path, sizes)
    for camera in read_intrinsics(path, sizes).values():
        _camera(camera)
    _positions(reference_poses(path, NAMES))


def _positions(poses: Any) -> None:
    for name, pose in poses.items():
        need(name, f"a pose of {name!r}")
        reals(pose.rotation, (3, 3), name)
        need(np.allclose(pose.rotation @ pose.rotation.T, np.eye(3), atol=1e-6), f"rotation of {name!r}")
        reals(pose.translation, (3,), name)
        reals(pose.center, (3,), name)


def queries(path: Path) -> None:
    for name, camera in lists.read_queries(path, KNOWN).items():
        need(name, f"a query {name!r}")
        if camera is not None:
            _camera(camera)


def poses(path: Path) -> None:
    _positions(lists.read_poses(path))


def photo_list(path: Path) -> None:
    names = lists.read_names(path, KNOWN)
    need(names and all(names) and names == sorted(set(names)), f"names {names}")


def pair_list(path: Path) -> None:
    found = read_pairs(path, KNOWN, KNOWN)
    need(len(found) and all(a and b for a, b in found), "pairs")
    found.hash()


def homography(path: Path) -> None:
    reals(read_homography(path), (3, 3), "homography")


def photos(path: Path) -> None:
    """All that the folder lists; the first that cannot be read is the folder's."""
    found = images.list_photos(path)
    need(found, "no photo")
    for name in found:
        color, gray = images.read_rgb(path / name), images.read_gray(path / name)
        need(color.dtype == gray.dtype == np.uint8, f"{name}: {color.dtype}")
        need(color.shape == (*gray.shape, 3) and min(color.shape) > 0, f"{name}: {color.shape}")


def configuration(path: Path) -> None:
    found = load_config(path)
    need(isinstance(found, TrainConfig) and not wrong_types(found), f"{found}")
    json.dumps(found.hash)


def correspondences(path: Path) -> None:
    from xdesc_jax.localization.correspondences import read

    for name, found in read(path, "0123456789ab").items():
        n = len(found)
        need(isinstance(name, str) and found.xy.shape == (n, 2), f"{name}: {found.xy.shape}")
        for field in ("point", "keypoint"):
            values = getattr(found, field)
            need(values.shape == (n,) and values.dtype.kind == "i", f"{name}: {field} {values.dtype} {values.shape}")
        need(found.error_px.shape == (n,) and found.error_px.dtype.kind == "f", f"{name}: errors")
        need(found.inlier.shape == (n,) and found.inlier.dtype == bool, f"{name}: inliers")


def sweep(path: Path) -> None:
    from xdesc_jax.sweep.results import mean_figures, read_results, table, write_merged

    found = read_results(path)
    columns = table(found)
    need(all(len(values) == len(found) for values in columns.values()), "columns")
    for record in found:
        mean_figures(record)
    for file in write_merged(path):
        need(file.stat().st_size, f"{file.name} is empty")


# --- Stages ----------------------------------------------------------------------------------------------------------


class _Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and record.name == "xdesc_jax":
            self.errors.append(record.getMessage())


@contextlib.contextmanager
def _listening() -> Iterator[_Told]:
    from xdesc_jax import console

    told = _Told()
    console.log.addHandler(told)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield told
    finally:
        console.log.removeHandler(told)


def _stage(words: Sequence[object], out: Path, read: Callable[[Path], None]) -> None:
    """Runs a stage: its output can be read where it ends well, and there is none where it does not."""
    before = set(out.parent.iterdir())
    with _listening() as told, np.errstate(all="ignore"):
        status = cli.main([str(word) for word in words])
    left = {path.name for path in set(out.parent.iterdir()) - before}
    if status == 0:
        need(out.name in left and left <= {out.name, f"{out.name}.json"}, f"status 0 left {sorted(left)}")
        try:
            read(out)
        except (ValueError, OSError, KeyError) as error:
            raise Wrong(f"status 0, and its output cannot be read ({error})") from error
        return
    need(status == 2, f"status {status}: {told.errors}")
    need(len(told.errors) == 1, f"status 2 said {told.errors}")
    need(not left, f"status 2 left {sorted(left)}")
    raise ValueError(told.errors[0])


def translate(path: Path) -> None:
    out = path.with_name("out.h5")
    _stage(["translate", path, out, "--target", "bits", "--model", _beside(path)], out, features)


def translate_database(path: Path) -> None:
    out = path.with_name("out.db")
    model = _beside(path)
    _stage(["translate", path, out, "--target", "plain", "--model", model], out, _translated)


def _translated(path: Path) -> None:
    """All that the stage made; the rest is as it was in the file before."""
    with DatabaseReader(path) as reader:
        for name in reader.names:
            rows = reader.descriptors(name)
            if (spec := reader.spec(name)) is not None:
                need(spec.name == "plain", f"{name} holds {spec.name}")
                need(rows.shape[1] == 9 and np.isfinite(rows).all(), f"{name}: rows")


def match(path: Path) -> None:
    out = path.with_name("out.h5")
    _stage(["match", path, out, "--pairs", "exhaustive"], out, matches)


def inspect(path: Path) -> None:
    out = path.parent / "out.json"
    _stage(["inspect", path, "--json", out, "--images"], out, lambda made: json.loads(made.read_text()) and None)


def _beside(path: Path) -> Path:
    """The model that lies beside a file, made at first use."""
    from tests.support.databases import make_model
    from tests.support.small_translators import encoder_decoder

    model = path.parent.parent / f"model-for{path.suffix}.safetensors"
    if not model.exists():
        make_model(model) if path.suffix == ".db" else encoder_decoder().save(model)
    return model
