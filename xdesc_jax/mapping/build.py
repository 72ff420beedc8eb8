"""The database that mapping starts from: a new one of feature files and matches, or a copy of one that has both.

In: features of photos (`FeatureSet`), their cameras (`cameras`), a match file or a database. Out: a COLMAP
database in which every photo has a frame, keypoints have COLMAP's origin, and each pair of photos has its
matches once. It appears whole or not at all; inputs are only read.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap import own_tables
from xdesc_jax.colmap.bindings.database import NewDatabase, complete_frames, image_cameras, set_cameras
from xdesc_jax.colmap.cameras import Intrinsics, Sharing, check_shared, share_cameras
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.descriptor_types import OTHER_TYPE, type_of
from xdesc_jax.features.keypoints import Keypoints, to_colmap
from xdesc_jax.files.whole import atomic, parse_json
from xdesc_jax.mapping import copied_matches
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import Extent, MatchFile, check_names, check_rows
from xdesc_jax.translation import ratios as ratio_keys

COUNTS = "counts"  # attribute of our tables: what `build_database` and `copy_database` return
MEASURED = "measured_cameras"  # attribute of our tables: ids of cameras that mapping keeps
_SHOWN = 5

Pair = tuple[str, str]


def build_database(
    out: Path,
    features: FeatureSet,
    intrinsics: Mapping[str, Intrinsics],
    matches: Path,
    *,
    names: Sequence[str] | None = None,
    per: Sharing = "photo",
    config_hash: str = "",
) -> dict[str, int]:
    """Makes a database of features, cameras and matches; image ids follow the names.

    Args:
        out: the database; an existing one is replaced.
        features: of all photos; descriptors may differ, and go into the database in their stored form.
        intrinsics: the camera of each photo (`choose_intrinsics`).
        matches: match file (.h5) of these features.
        names: the photos to take; None for all. Pairs with others are left out.
        per: which photos share a camera (`share_cameras`).
        config_hash: of all that the database and its models depend on, kept in it.

    Returns:
        Counts: photos, cameras, photos without keypoints, pairs, matches, and the pairs that were left out.

    Raises:
        ValueError: photos without features or camera, photos that cannot share one, or matches of unknown
            photos or rows. `out` is as it was then.
    """
    names = sorted(set(features.names if names is None else names))
    features.check_names(names, "the list of photos")
    if lacking := [name for name in names if name not in intrinsics]:
        raise ValueError(
            f"{console.counted(len(lacking), 'photo has', 'photos have')} no camera, first {lacking[:_SHOWN]}"
        )
    groups = share_cameras({name: intrinsics[name] for name in names}, per)
    with MatchFile(matches, features.names) as match_file, atomic(out) as temporary:
        pairs, left_out = canonical_pairs(match_file, features, set(names))
        with NewDatabase(temporary) as db:
            camera_of: dict[str, int] = {}
            measured = []
            for members in groups.values():
                camera_id = db.add_camera(intrinsics[members[0]].camera)
                camera_of |= dict.fromkeys(members, camera_id)
                if intrinsics[members[0]].measured:
                    measured.append(camera_id)
            ids, extents = {}, {}
            for name in console.track(names, "writing features", "photos"):
                ids[name] = db.add_photo(name, camera_of[name])
                extents[name] = _write_features(db, ids[name], name, features)
            found = 0
            for a, b in console.track(pairs, "writing matches", "pairs"):
                indices = _read_matches(match_file, a, b, extents)
                if len(indices):
                    db.write_matches(ids[a], ids[b], indices)
                    left_out["matches"] += len(indices)
                    found += 1
        empty = sum(extent.rows == 0 for extent in extents.values())
        counts = {"photos": len(names), "cameras": len(groups), "photos_without_keypoints": empty, "pairs": found}
        counts |= {"pairs_without_matches": len(pairs) - found, **left_out}
        with _editing(temporary) as connection:
            for name in names:
                if held := features.held(name):
                    own_tables.write_image(connection, ids[name], held.spec, held.translated_from)
            _note(connection, counts, measured, config_hash)
            if features.ratios:
                own_tables.write_attribute(connection, ratio_keys.RATIOS, json.dumps(features.ratios))
    return counts


def copy_database(
    source: Path,
    out: Path,
    intrinsics: Mapping[str, Intrinsics],
    matches: Path | None = None,
    *,
    own_frames: bool = False,
    config_hash: str = "",
) -> dict[str, int]:
    """Copies a database, of any schema, and completes what mapping needs.

    Keypoints, descriptors, matches, geometries, rigs and tables of others are kept; geometries only where no
    camera changes, and where they are of a match at all: pairs whose verification failed are verified again.
    Photos keep sharing the cameras that they share.

    Args:
        source: the database; only read.
        out: the copy; an existing one is replaced.
        intrinsics: the camera of each photo (`choose_intrinsics`).
        matches: match file (.h5) of these features, in the place of the matches of the database.
        own_frames: dissolve rigs, so that each photo can be given a pose of its own.
        config_hash: of all that the copy and its models depend on, kept in it.

    Returns:
        Counts: photos, cameras, photos that had no frame, self pairs that were left out, and pairs that are verified
        again.

    Raises:
        ValueError: photos of one camera were given different intrinsics, or matches are damaged or of rows
            that their photo has not.
    """
    with atomic(out) as temporary:
        with DatabaseReader(source) as reader, contextlib.closing(sqlite3.connect(temporary)) as connection:
            try:
                reader.copy_to(connection)
            except sqlite3.Error as error:
                raise OSError(f"{source}: cannot be copied to {out} ({error})") from error
        with _editing(temporary) as connection:
            copied_matches.upgrade(connection)
            left_out: Counter[str] = Counter()
            if matches is not None:
                left_out = _replace_matches(connection, source, matches)
            own = copied_matches.check(connection, source)
            failed = copied_matches.drop_failed(connection)
        completed = complete_frames(temporary, own_frames)
        cameras: dict[int, list[str]] = {}
        for name, camera_id in image_cameras(temporary).items():
            cameras.setdefault(camera_id, []).append(name)
        for camera_id, names in cameras.items():
            check_shared(intrinsics, names, f"{source}: camera {camera_id}")
        if set_cameras(temporary, {key: intrinsics[names[0]].camera for key, names in cameras.items()}):
            console.warn(f"{source}: cameras were replaced, so its verified pairs are verified again")
        measured = [key for key, names in cameras.items() if intrinsics[names[0]].measured]
        counts = {"photos": sum(map(len, cameras.values())), "cameras": len(cameras)}
        counts |= {"photos_given_frames": completed, "self_pairs": own, "pairs_verified_again": failed, **left_out}
        with _editing(temporary) as connection:
            _note(connection, counts, measured, config_hash)
    return counts


def made_with(database: Path) -> tuple[dict[str, int], str] | None:
    """Counts and configuration hash of a database that was made here; None for one that was not."""
    with DatabaseReader(database) as reader:
        if COUNTS not in reader.attributes:
            return None
        try:
            return parse_json(reader.attributes[COUNTS]), reader.attributes.get("config_hash", "")
        except ValueError as error:
            raise ValueError(f"{database}: attribute {COUNTS!r} is damaged ({error})") from error


def _note(connection: sqlite3.Connection, counts: dict[str, int], measured: list[int], config_hash: str) -> None:
    own_tables.write_attribute(connection, COUNTS, json.dumps(counts))
    own_tables.write_attribute(connection, MEASURED, json.dumps(measured))
    own_tables.write_attribute(connection, "config_hash", config_hash)


@contextlib.contextmanager
def _editing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a database with our tables, which is one file again when the block ends."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            own_tables.create(connection)
            yield connection
            connection.commit()
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise OSError(f"{path}: cannot be written as a COLMAP database ({error})") from error


def _write_features(db: NewDatabase, image_id: int, name: str, features: FeatureSet) -> Extent:
    held = features.held(name)
    if held is None:  # keypoints alone
        xy = features.keypoints(name)
        db.write_features(image_id, to_colmap(Keypoints(xy, np.ones(len(xy)), np.zeros(len(xy)))), None, OTHER_TYPE)
        return Extent.of(xy)
    photo = features.read(name)
    n = len(photo)
    scales = np.ones(n) if photo.scales is None else photo.scales
    oris = np.zeros(n) if photo.oris is None else photo.oris
    try:
        columns = to_colmap(Keypoints(photo.keypoints, scales, oris, photo.affine))
    except ValueError as error:
        raise ValueError(f"{features.path(name)}: {name!r}: {error}") from error
    stored = np.ascontiguousarray(photo.descriptors, held.spec.stored_dtype)
    data = stored.view(np.uint8).reshape(n, held.spec.stored_width * held.spec.stored_dtype.itemsize)
    db.write_features(image_id, columns, data, type_of(held.spec))
    return Extent.of(photo.keypoints)


# --- Matches -------------------------------------------------------------------------------------------------


def canonical_pairs(file: MatchFile, features: FeatureSet, taken: set[str]) -> tuple[list[Pair], Counter[str]]:
    """The pairs of a match file, each once and in the order of the names.

    Args:
        file: the matches, opened with the names of `features`.
        features: what they are of.
        taken: the photos to take.

    Returns:
        The pairs, and how many were left out by reason.

    Raises:
        ValueError: photos that `features` lacks, or names that are one and the same in a match file.
    """
    check_names(features.names)
    listed = file.pairs()
    features.check_names([name for pair in listed for name in pair], f"match file {file.path}")
    left_out: Counter[str] = Counter(matches=0, self_pairs=0, duplicate_pairs=0, pairs_of_other_photos=0)
    pairs: dict[Pair, None] = {}
    for a, b in listed:
        pair = (a, b) if a <= b else (b, a)
        if a == b:
            left_out["self_pairs"] += 1
        elif not {a, b} <= taken:
            left_out["pairs_of_other_photos"] += 1
        elif pair in pairs:
            left_out["duplicate_pairs"] += 1
        else:
            pairs[pair] = None
    return list(pairs), left_out


def _read_matches(file: MatchFile, a: str, b: str, extents: Mapping[str, Extent]) -> np.ndarray:
    indices = file.indices(a, b, (extents[a], extents[b]))
    check_rows(indices, [(n, extents[n].rows) for n in (a, b)], f"{file.path}: matches of {a!r} and {b!r}")
    return indices


def _replace_matches(connection: sqlite3.Connection, source: Path, matches: Path) -> Counter[str]:
    """Puts the matches of a file, checked against the keypoints of `source`, in the place of a copy's own, pair by
    pair; counts as `canonical_pairs`."""
    with FeatureSet([source], strict=False) as features, MatchFile(matches, features.names) as file:
        pairs, left_out = canonical_pairs(file, features, set(features.names))
        extents = {name: Extent.of(features.keypoints(name)) for name in {name for pair in pairs for name in pair}}
        found = ((a, b, _read_matches(file, a, b, extents)) for a, b in console.track(pairs, "matches", "pairs"))
        left_out["matches"] = copied_matches.replace(connection, found)
    return left_out
