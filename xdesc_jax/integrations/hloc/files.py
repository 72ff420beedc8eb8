"""hloc's files, both ways: pair lists, feature files and match files.

In: what one has in memory. Out: files that hloc reads; and what hloc wrote, in memory. The formats have their owners
(`matching.pairs`, `features.store`, `matching.matches`); here they are put together for programs around hloc, whose own
limits are told: names without blanks, photos that '/' and '-' tell apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.files.whole import atomic
from xdesc_jax.matching.matches import MatchFile, MatchWriter, check_names
from xdesc_jax.matching.pairs import Pair, pair_line
from xdesc_jax.matching.pairs import read_pairs as read_listed
from xdesc_jax.matching.parts import PairMatches


def read_pairs(path: Path | str, names: Collection[str] = ()) -> list[Pair]:
    """The pairs of a list in its order; `names` of photos tell names with blanks apart.

    Raises:
        FileNotFoundError, ValueError: as `matching.pairs.read_pairs`.
    """
    known = sorted(names)
    return list(read_listed(Path(path), known, known))


def write_pairs(path: Path | str, pairs: Iterable[Pair]) -> Path:
    """Writes a pair list, atomically.

    Raises:
        ValueError: a name with a blank, which hloc takes for two.
    """
    lines = []
    for pair in pairs:
        if odd := [name for name in pair if any(c.isspace() for c in name)]:
            raise ValueError(f"{path}: photo name {odd[0]!r} holds a blank, which hloc's lists cannot")
        lines.append(pair_line(*pair))
    with atomic(Path(path)) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
    return Path(path)


def read_features(
    path: Path | str, descriptor: str | DescriptorSpec | None = None
) -> Iterator[tuple[str, ImageFeatures]]:
    """Photo by photo of a feature file; `descriptor` says what hloc's own files hold, which do not.

    Raises:
        FileNotFoundError, ValueError: as `FeatureStore`.
    """
    with FeatureStore(path, fallback=get_spec(descriptor) if isinstance(descriptor, str) else descriptor) as store:
        yield from store


def write_features(
    path: Path | str, photos: Iterable[tuple[str, ImageFeatures]], descriptor: str | DescriptorSpec
) -> Path:
    """Writes a feature file, whole or not at all.

    Raises:
        ValueError: arrays that disagree, or a photo twice.
    """
    spec = get_spec(descriptor) if isinstance(descriptor, str) else descriptor
    with StoreWriter(path, spec) as writer:
        for name, photo in photos:
            writer.write(name, photo)
    return Path(path)


def read_matches(path: Path | str, names: Collection[str] = ()) -> Iterator[PairMatches]:
    """Pair by pair of a match file; `names` of photos bring back the '/' in names, where hloc has written it.

    Raises:
        FileNotFoundError, ValueError: as `MatchFile`.
    """
    with MatchFile(path, names) as file:
        for a, b in file.pairs():
            indices, scores = file.read(a, b)
            rows0 = file.rows(a, b)
            if rows0 is None:  # matches alone: as many as they need
                rows0 = int(indices[:, 0].max(initial=-1)) + 1
            yield PairMatches(a, b, rows0, indices, scores)


def write_matches(path: Path | str, matches: Iterable[PairMatches]) -> Path:
    """Writes a match file, whole or not at all.

    Raises:
        ValueError: a pair twice, or two photos that hloc takes for one.
    """
    names: dict[str, str] = {}
    with MatchWriter(path) as writer:
        for found in matches:
            check_names((found.name0, found.name1), names)
            writer.write(found.name0, found.name1, found.rows0, found.indices, found.scores)
    return Path(path)
