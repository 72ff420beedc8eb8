"""The matches of a user's photos, as they are shown: read, checked, and with the ratio of each.

In: feature files and COLMAP databases, and a match file or a database's own matches. Out: pairs with their counts, and
for one pair the keypoints of both photos, the matched rows, and how sure each match is.

The ratio of a match is the distance of its two rows over that to the nearest other row of the other photo, on the L2
scale, the larger of both directions: what `xdesc match` compares with its threshold. It is computed anew from the
descriptors, so matches of any origin have one where their rows compare. Runs on the base install.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap import database_matches
from xdesc_jax.colmap.database import DatabaseReader, is_database
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.store import FeatureStore, infer_spec
from xdesc_jax.inspection.kinds import NOT_SAID
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import Extent, MatchFile, check_rows
from xdesc_jax.matching.named_files import NamedFiles
from xdesc_jax.matching.nearest import metric_ratio, nearest2
from xdesc_jax.matching.routes import Router, Rows
from xdesc_jax.translation.translator import Translator

OWN_SCORES = "1 - d² / (2 |a|² + 2 |b|²), 1 for equal rows; of bits, the share of equal ones"
OTHER_SCORES = "as the matcher that wrote them gave them"

Source = MatchFile | DatabaseReader


@dataclasses.dataclass(frozen=True)
class ListedPair:
    """Two photos and how many matches they have.

    Attributes:
        name0, name1: the photos.
        matches: those that are shown; of a verified pair, the inliers.
        verified: whether geometric verification kept the pair; None where the file has no verification.
        refused: matches that the verification of a pair left out.
    """

    name0: str
    name1: str
    matches: int
    verified: bool | None = None
    refused: int = 0

    @property
    def names(self) -> tuple[str, str]:
        """Both photos."""
        return self.name0, self.name1


@dataclasses.dataclass(frozen=True)
class ShownPair:
    """The matches of two photos, with what is shown of them.

    Attributes:
        pair: which, with their counts.
        files: of the features of each photo.
        sizes: (width, height) in px that the features of each photo say; (0, 0) where they do not.
        keypoints: of each photo, [N, 2] px, origin at the centre of the first pixel.
        indices: [M, 2] int, row of the first and row of the second photo.
        refused: [R, 2] int, matches that geometric verification left out.
        scores: [M], as the match file holds them; None where it is a database.
        ratios: [M], NaN where a row never matches (zero or not finite); None where the rows do not compare.
        compared: the descriptor that the ratios are of; or, where there are none, why.
    """

    pair: ListedPair
    files: tuple[Path, Path]
    sizes: tuple[tuple[int, int], tuple[int, int]]
    keypoints: tuple[np.ndarray, np.ndarray]
    indices: np.ndarray
    refused: np.ndarray
    scores: np.ndarray | None
    ratios: np.ndarray | None
    compared: str


class ShownMatches:
    """The matches of a file with the features that they are of.

    Args:
        first, second: features of the first and of the second photos of each pair; may be one and the same.
        matches: the match file; None where `first` is one database, whose own matches are shown.
        router: says in which descriptor rows are compared.
        translator: where the router's mode translates.
        min_score: matches of a match file with a lower score are left out.

    Attributes:
        path: the file with the matches.
        pairs: all of them, those with most matches first.
        mode: how the file says that it was matched; None where it does not.
        scores_are: what the scores of the file are; None where it has none.

    Raises:
        ValueError: photos that the features lack, a damaged file, or scores asked of a database.
    """

    def __init__(
        self, first: FeatureSet, second: FeatureSet, matches: Source, router: Router,
        translator: Translator | None = None, min_score: float | None = None,
    ):  # fmt: skip
        self.path, self._first, self._second = matches.path, first, second
        self._matches, self._router, self._min_score = matches, router, min_score
        self._rows = (Rows(first, translator), Rows(second, translator))
        self.mode = str(matches.attributes["mode"]) if "mode" in matches.attributes else None
        if isinstance(matches, DatabaseReader):
            if min_score is not None:
                raise ValueError(f"{matches.path}: a database holds no scores, so --min-score {min_score} says nothing")
            self.scores_are = None
            listed = [self._stored(pair) for pair in database_matches.stored_pairs(matches)]
        else:
            self.scores_are = OWN_SCORES if "config_hash" in matches.attributes else OTHER_SCORES
            listed = [ListedPair(a, b, self._count(matches, a, b)) for a, b in self._names(matches)]
        self.pairs = sorted(listed, key=lambda pair: (-pair.matches, pair.names))

    def _names(self, file: MatchFile) -> list[tuple[str, str]]:
        """The pairs of a match file, whose names the features have."""
        found = file.pairs()
        for side, features in enumerate((self._first, self._second)):
            given = [pair[side] for pair in found]
            if len(found) and not any(name in features for name in given):
                files = ", ".join(map(str, features.paths))
                raise ValueError(
                    f"{file.path}: is of other photos than {files}: it matches {sorted(set(given))[:5]}, "
                    f"they hold {features.names[:5]}"
                )
            features.check_names(given, f"match file {file.path}")
        return found

    def _count(self, file: MatchFile, name0: str, name1: str) -> int:
        _, scores = file.read(name0, name1)
        return len(scores) if self._min_score is None else int((scores >= self._min_score).sum())

    def _stored(self, pair: database_matches.StoredPair) -> ListedPair:
        if not pair.inliers:
            return ListedPair(pair.name0, pair.name1, pair.matches, verified=False)
        return ListedPair(pair.name0, pair.name1, pair.inliers, True, max(0, pair.matches - pair.inliers))

    def find(self, name0: str, name1: str) -> ListedPair:
        """A pair, in whichever order it is named.

        Raises:
            ValueError: photos that were not matched with each other.
        """
        for pair in self.pairs:
            if {name0, name1} == set(pair.names):
                return pair
        self._first.check_names([n for n in (name0, name1) if n not in self._second], "--pair")
        shown = [" and ".join(map(repr, pair.names)) for pair in self.pairs[:3]]
        raise ValueError(
            f"{self.path}: holds no matches of {name0!r} and {name1!r}; it has "
            f"{console.counted(len(self.pairs), 'pair')}, first {', '.join(shown) or 'none'}"
        )

    def read(self, pair: ListedPair) -> ShownPair:
        """What is shown of a pair.

        Raises:
            ValueError: rows that the photos do not have, or a file that is damaged.
        """
        sides = ((self._first, pair.name0), (self._second, pair.name1))
        keypoints = (self._first.keypoints(pair.name0), self._second.keypoints(pair.name1))
        indices, scores, refused = self._read(pair, (Extent.of(keypoints[0]), Extent.of(keypoints[1])))
        where = f"{self.path}: matches of {pair.name0!r} and {pair.name1!r}"
        counts = [(name, len(xy)) for name, xy in zip(pair.names, keypoints, strict=True)]
        check_rows(indices, counts, where)
        check_rows(refused, counts, where)
        ratios, compared = self._ratios(pair, indices)
        return ShownPair(
            pair, (self._first.path(pair.name0), self._second.path(pair.name1)),
            (sides[0][0].image_size(pair.name0), sides[1][0].image_size(pair.name1)),
            keypoints, indices, refused, scores, ratios, compared,
        )  # fmt: skip

    def _read(
        self, pair: ListedPair, extents: tuple[Extent, Extent]
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        none = np.zeros((0, 2), np.int64)
        if isinstance(self._matches, MatchFile):
            indices, scores = self._matches.read(*pair.names, extents)
            kept = np.ones(len(scores), bool) if self._min_score is None else scores >= self._min_score
            return indices[kept].astype(np.int64), scores[kept], none
        raw = database_matches.read_rows(self._matches, database_matches.MATCHES, *pair.names)
        if not pair.verified:
            return raw, None, none
        kept_rows = database_matches.read_rows(self._matches, database_matches.VERIFIED, *pair.names)
        inliers = set(map(tuple, kept_rows.tolist()))
        return kept_rows, None, raw[[tuple(row) not in inliers for row in raw.tolist()]].reshape(-1, 2)

    def _ratios(self, pair: ListedPair, indices: np.ndarray) -> tuple[np.ndarray | None, str]:
        """The ratio of each match and in which descriptor; None and why where the rows do not compare."""
        try:
            held = self._first.held(pair.name0), self._second.held(pair.name1)
            if held[0] is None or held[1] is None:
                return None, "a photo has no descriptors"
            target = self._router.route(held[0], held[1]).target
            rows = self._rows[0](pair.name0, target), self._rows[1](pair.name1, target)
        except ValueError as error:
            return None, str(error)
        return match_ratios(*rows, indices, binary=target.binary), target.name


def match_ratios(a: np.ndarray, b: np.ndarray, indices: np.ndarray, *, binary: bool) -> np.ndarray:
    """Distance of each match over that to the nearest other row, the larger of both directions.

    Args:
        a: [N, D] canonical rows of the first photo, or [N, bytes] uint8 packed bits with `binary`.
        b: [M, D] rows of the second.
        indices: [K, 2] rows that match.
        binary: compare bits by Hamming distance, whose root is the L2 distance.

    Returns:
        [K] float32 on the L2 scale: 0 for equal rows and where there is no other row, NaN where a row never matches.
    """
    i, j = np.asarray(indices, np.int64).reshape(-1, 2).T
    if not len(i):
        return np.zeros(0, np.float32)
    distance = _distances(a[i], b[j], binary)
    forward, backward = _others(a, i, b, j, binary), _others(b, j, a, i, binary)
    ratio = np.maximum(metric_ratio(distance, forward, binary), metric_ratio(distance, backward, binary))
    never = ~(_usable(a[i]) & _usable(b[j]))
    return np.where(never, np.float32(np.nan), ratio)


def _distances(a: np.ndarray, b: np.ndarray, binary: bool) -> np.ndarray:
    """L2 or Hamming distance of each row to its match."""
    if binary:
        return np.unpackbits(a ^ b, axis=1).sum(axis=1, dtype=np.int64).astype(np.float32)
    return np.linalg.norm(a.astype(np.float64) - b, axis=1).astype(np.float32)


def _others(a: np.ndarray, i: np.ndarray, b: np.ndarray, j: np.ndarray, binary: bool) -> np.ndarray:
    """Distance of rows i of a to the nearest row of b that is not j; inf where there is none."""
    rows, back = np.unique(i, return_inverse=True)
    found = nearest2(a[rows], b, binary=binary)
    nearest, distance, second = (values[back] for values in (found.index, found.distance, found.second))
    return np.where(nearest == j, second, distance)


def _usable(rows: np.ndarray) -> np.ndarray:
    usable = np.asarray(rows.any(axis=1))
    return usable & np.isfinite(rows).all(axis=1) if rows.dtype.kind == "f" else usable


@contextlib.contextmanager
def opened(
    files: Sequence[Path], descriptor: Sequence[str] = (), translator: Translator | None = None
) -> Iterator[tuple[FeatureSet, FeatureSet, Source]]:
    """Opens features and matches as they are named in one row: features, then the match file; or one database.

    Two feature files that share photos are those of the first and of the second photos of each pair, as `xdesc match
    --other` takes them.

    Args:
        files: as above.
        descriptor: what files hold that do not say, 'NAME', or 'NAME=FILE' of one. Where it is not named either, their
            rows are taken as they are.
        translator: of which these may be names.

    Yields:
        Features of the first and of the second photos, which may be one and the same, and the matches.

    Raises:
        FileNotFoundError: no such file.
        ValueError: files of other kinds than these.
    """
    *features, last = map(Path, files)
    own = not features
    if own and not is_database(last):
        raise ValueError(
            f"{last}: matches are shown with their features: 'A.h5 B.h5 MATCHES.h5', 'A.h5 MATCHES.h5', or one COLMAP "
            "database that holds both"
        )
    if not own and _holds_features(last):
        raise ValueError(f"{last}: holds features, expected the match file at the end, behind the features")
    given = [last] if own else features
    named = _stand_ins(NamedFiles.of(descriptor, given), given)
    with contextlib.ExitStack() as stack:
        first = second = None
        if len(given) == 2:
            sides = [stack.enter_context(FeatureSet([path], named, strict=False, model=translator)) for path in given]
            if set(sides[0].names) & set(sides[1].names):
                first, second = sides
        if first is None or second is None:
            first = second = stack.enter_context(FeatureSet(given, named, strict=False, model=translator))
        source: Source = (
            stack.enter_context(DatabaseReader(last))
            if own
            else stack.enter_context(MatchFile(last, first.names + second.names))
        )
        yield first, second, source


def _holds_features(path: Path) -> bool:
    if is_database(path):
        return True
    with FeatureStore(path, fallback=NOT_SAID) as store:
        return bool(store.names)


def _stand_ins(named: NamedFiles, paths: Sequence[Path]) -> NamedFiles:
    """Descriptors to stand in for what nothing says of feature files, of the width of their rows where it can be told.

    Files of one width are taken to hold the same; nothing says that those of two widths do.
    """
    each = dict(named.each)
    silent: dict[str | DescriptorSpec, list[Path]] = {}
    for path in paths:
        if named.rest is not None or path.resolve() in each or is_database(path):
            continue
        with FeatureStore(path, fallback=NOT_SAID) as store:
            said = store.says_spec
        if not said:
            each[path.resolve()] = NOT_SAID
            with contextlib.suppress(ValueError):
                each[path.resolve()] = infer_spec(path, NOT_SAID.name)
            silent.setdefault(each[path.resolve()], []).append(path)
    for alike in silent.values():
        if len(alike) > 1:
            text = "do not say what they hold, and are taken to hold the same; --descriptor NAME=FILE says it of each"
            console.warn(f"{' and '.join(map(str, alike))} {text}")
    return NamedFiles(named.rest, each)
