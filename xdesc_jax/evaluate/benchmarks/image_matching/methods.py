"""How photos of the Image Matching challenge are matched: native, translated, or in the joint space.

In: descriptors and their feature files. Out: the rows of the benchmark, and matches of a scene's pairs in each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from xdesc_jax import console
from xdesc_jax.evaluate.benchmarks.tables import FOUR, PAPER_NAMES
from xdesc_jax.evaluate.divided import split, write_split
from xdesc_jax.evaluate.photos import check_keypoints
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.whole import atomic
from xdesc_jax.matching.match import match
from xdesc_jax.translation.translator import Translator

Kind = Literal["standard", "directional", "embed"]
KINDS: tuple[Kind, ...] = ("standard", "directional", "embed")
MODES = {"standard": "native", "directional": "translated", "embed": "joint"}


@dataclasses.dataclass(frozen=True)
class Method:
    """A row.

    Attributes:
        kind: `standard`: all photos have one descriptor. `directional`, of two: of each pair photo 0 has the second,
            and photo 1 the first, translated. `embed`: photos are divided among all, and matched in the joint space.
        descriptors: of the photos.
    """

    kind: Kind
    descriptors: tuple[str, ...]

    @property
    def label(self) -> str:
        return {"standard": "", "directional": " -> ", "embed": " | "}[self.kind].join(self.descriptors)

    @property
    def paper(self) -> str:
        """The paper's row; '' where it has none."""
        names = [PAPER_NAMES.get(name, "") for name in self.descriptors]
        if not all(names) or len(set(names)) < len(names):
            return ""
        if self.kind != "embed":
            return f"{self.kind}: {' -> '.join(names)}"
        ordered = "All" if len(names) == len(FOUR) else ", ".join(sorted(names, key=FOUR.index))
        return f"embed: {ordered}, 1/{len(names)}"


def methods(descriptors: Sequence[str], translator: Translator | None, kinds: Sequence[Kind]) -> list[Method]:
    """The rows: each descriptor; each translated to those behind it; each two, and all, in the joint space.

    Raises:
        ValueError: there are none.
    """
    known = [name for name in descriptors if translator is not None and name in translator.names]
    twos = list(itertools.combinations(known, 2))
    found = [Method("standard", (name,)) for name in descriptors]
    found += [Method("directional", two) for two in twos]
    if translator is not None and translator.space_id is not None:
        found += [Method("embed", group) for group in (*twos, *([tuple(known)] if len(known) > 2 else []))]
    if not (found := [method for method in found if method.kind in kinds]):
        raise ValueError(
            f"no rows of kinds {', '.join(kinds)} with {', '.join(descriptors)}; translated ones need --model"
        )
    return found


def check_shared_keypoints(plan: Sequence[Method], stores: Mapping[str, Path], photos: Sequence[str]) -> None:
    """Raises ValueError where files that rows are translated between differ in keypoints.

    Of such a row, matches of both photos are taken for positions of one file.
    """
    names = dict.fromkeys(name for method in plan if method.kind == "directional" for name in method.descriptors)
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(FeatureStore(stores[name])) for name in names]
        for photo in photos:
            held = [(store.path, store.keypoints(photo)) for store in found if photo in store]
            for path, xy in held[1:]:
                check_keypoints(photo, path, xy, *held[0])


def files_of(method: Method, stores: Mapping[str, Path], photos: Sequence[str], out: Path, seed: int) -> list[Path]:
    """Feature files of a scene's photos, each of which is in one of them.

    Args:
        method: the row.
        stores: descriptor -> file of all photos.
        photos: of the scene.
        out: folder for the files of divided photos.
        seed: of the division.
    """
    if method.kind != "embed":
        return [stores[method.descriptors[-1]]]
    return write_split(stores, split(photos, method.descriptors, seed), out)


def matched(
    method: Method, stores: Mapping[str, Path], files: Sequence[Path], pairs: Sequence[tuple[str, str]], out: Path,
    model: Path | None, ratio: float, overwrite: bool,
) -> Path:  # fmt: skip
    """The match file of some pairs in a row.

    Args:
        method: the row.
        stores: descriptor -> file of all photos.
        files: see `files_of`.
        pairs: to match.
        out: the file to make; one that is there is kept.
        model: the translator.
        ratio: largest first-to-second distance ratio; 1 takes all mutual neighbours.
        overwrite: make it anew.
    """
    listed = out.with_suffix(".txt")
    directional = method.kind == "directional"
    with atomic(listed) as temporary:
        lines = (f"{b}\t{a}\n" if directional else f"{a}\t{b}\n" for a, b in dict.fromkeys(pairs))
        temporary.write_text("".join(lines), encoding="utf-8")
    with console.inner():
        if directional:
            source, target = method.descriptors
            return match(
                (stores[source],), out, pairs=str(listed), other=(stores[target],), mode="directional", model=model,
                target=target, ratio=ratio, overwrite=overwrite,
            )  # fmt: skip
        joint = method.kind == "embed"
        return match(
            tuple(files), out, pairs=str(listed), mode="embed" if joint else "native", model=model if joint else None,
            ratio=ratio, overwrite=overwrite,
        )  # fmt: skip
