"""Which photos are matched, by a rule in place of a list: 'retrieval', 'sequential:10', 'gps:20', or several with '+'.

In: the rule, features, and what it needs: positions, vectors of photos. Out: `Pairs`. With 'sequential:N+retrieval:K' a
video is closed where it comes back: each photo is matched with the next N, and with the K most alike of those that are
more than N places away.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.global_features import GlobalFeatures
from xdesc_jax.matching.gps import near_pairs, photo_positions
from xdesc_jax.matching.pairs import Pairs
from xdesc_jax.matching.retrieval import retrieved_pairs
from xdesc_jax.matching.sequence import sequential_pairs
from xdesc_jax.matching.vlad import VladIndex

_PART = re.compile(r"(sequential|gps):(\d+)|(retrieval)(?::(\d+))?")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A rule.

    Attributes:
        sequential: photos behind each that it is matched with; 0 for none.
        gps: nearest photos; 0 for none.
        retrieval: most similar photos; None for none, 0 for as many as --top says.
    """

    sequential: int = 0
    gps: int = 0
    retrieval: int | None = None

    @property
    def retrieves(self) -> bool:
        return self.retrieval is not None


def parse(text: str) -> Choice | None:
    """The rule that a text is; None where it is none, and so a list's path.

    Raises:
        ValueError: a number of 0, or one part twice.
    """
    parts = [_PART.fullmatch(part) for part in text.split("+")]
    found: dict[str, int] = {}
    for part in parts:
        if part is None:
            return None
        name, count = part[1] or part[3], int(part[2] or part[4] or 0)
        if name in found:
            raise ValueError(f"pairs {text!r}: {name!r} stands there twice")
        if count < 1 and not (part[3] and part[4] is None):
            raise ValueError(f"pairs {text!r}: {name!r} of {count} photos, expected at least 1")
        found[name] = count
    return Choice(found.get("sequential", 0), found.get("gps", 0), found.get("retrieval"))


def uses_positions(text: str) -> bool:
    """Whether a text is a rule by positions."""
    return (choice := parse(text)) is not None and choice.gps > 0


def choose(
    choice: Choice,
    first: FeatureSet,
    second: FeatureSet | None,
    *,
    photos: Path | None = None,
    global_features: Sequence[Path] = (),
    top: int = 20,
    retrieved: Callable[[], Pairs] | None = None,
) -> Pairs:
    """The pairs of a rule.

    Args:
        choice: the rule.
        first: the photos.
        second: the second photos of each pair; None for the same.
        photos: folder of the photos, for the positions in their EXIF.
        global_features: files of one vector a photo, for retrieval.
        top: photos retrieved for each, where the rule does not say.
        retrieved: gives the pairs of retrieval by embeddings, where there are no `global_features`.

    Raises:
        ValueError: a sequence of two sets of photos, no positions, or photos without a vector.
    """
    found = []
    if choice.sequential:
        if second is not None:
            raise ValueError("pairs 'sequential' are of one set of photos; with --other give 'gps' or 'retrieval'")
        found.append(sequential_pairs(first.names, choice.sequential))
    if choice.gps:
        at = photo_positions([first] if second is None else [first, second], photos)
        found.append(near_pairs(first.names, None if second is None else second.names, at, choice.gps))
    if choice.retrieval is not None:
        count = choice.retrieval or top
        if global_features:
            names = (first.names, None if second is None else second.names)
            found.append(similar_pairs(*names, GlobalFeatures(global_features), count, choice.sequential))
        else:
            assert retrieved is not None
            found.append(retrieved())
    if len(found) == 1:
        return found[0]
    others = first.names if second is None else second.names
    place0, place1 = ({name: row for row, name in enumerate(names)} for names in (first.names, others))
    rows = [[place0[a], place1[b]] for pairs in found for a, b in pairs]
    both = np.array(rows, np.int32).reshape(-1, 2)
    return Pairs(first.names, others, both[:, 0], both[:, 1])


def similar_pairs(
    names: Sequence[str], others: Sequence[str] | None, features: GlobalFeatures, top: int, apart: int = 0
) -> Pairs:
    """Each photo with the `top` ones whose vectors are most alike.

    Args:
        names: the photos.
        others: those that are retrieved; None for the same, each pair once.
        features: their vectors.
        top: how many.
        apart: none within so many places of the same sequence (`sequence.Places`).

    Raises:
        ValueError: photos without a vector.
    """
    vectors = features.of(names, "the features")
    known = names if others is None else others
    index = VladIndex(np.zeros((0, 0), np.float32), known, features.of(known, "the features"))
    return retrieved_pairs(names, vectors, index, top, ordered=others is not None, apart=apart)
