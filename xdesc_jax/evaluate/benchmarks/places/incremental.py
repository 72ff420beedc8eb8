"""Maps by devices of several descriptors: matching, verification and incremental mapping with known intrinsics.

In: photos, feature files of all of them for each descriptor, and which photo holds what. Out: the model of one method,
as in the paper's table 2. What is finished is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from xdesc_jax.evaluate.benchmarks.places.maps import write_pair_list
from xdesc_jax.evaluate.divided import split, write_lines, write_split
from xdesc_jax.matching.pairs import all_pairs

Method = Literal["standard", "own quarter", "embed", "progressive"]
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Mapper:
    """What all methods share.

    Attributes:
        out: folder of matches, splits and models.
        names: the photos.
        stores: descriptor -> feature file of all photos.
        intrinsics: COLMAP model with their cameras.
        model: the translator; None where nothing is translated.
        ratio: of matching.
        order: descriptors from the worst to the best, for 'progressive'; empty for the model's own.
        threads: of mapping.
    """

    out: Path
    names: Sequence[str]
    stores: Mapping[str, Path]
    intrinsics: Path
    model: Path | None
    ratio: float | Literal["auto"] | None
    order: tuple[str, ...]
    threads: int

    def kinds(self, seed: int) -> dict[str, str]:
        """Photo -> descriptor, in the split of a seed."""
        return split(self.names, list(self.stores), seed)

    def folder(self, method: Method, descriptor: str, seed: int) -> Path:
        """Where the database and the models of a method lie."""
        return self.out / "models" / f"{method} {descriptor} {seed}".replace(" ", "-")

    def run(self, method: Method, descriptor: str, seed: int) -> Path:
        """Matches and maps the photos of a method.

        Args:
            method: 'standard', all photos hold one descriptor; 'own quarter', only those of the split that hold it;
                'embed' and 'progressive', all photos of the split, in the joint space or by an order.
            descriptor: the one; 'all' for the last two.
            seed: of the split, of verification and of mapping.

        Returns:
            Folder of the largest model.

        Raises:
            NotReconstructed: nothing connects.
        """
        from xdesc_jax.colmap.bindings.settings import MappingSettings
        from xdesc_jax.mapping.reconstruct import reconstruct
        from xdesc_jax.matching.match import match

        kind_of, photos, out = self.kinds(seed), list(self.names), self.out
        if method == "own quarter":
            photos = [name for name in photos if kind_of[name] == descriptor]
        if descriptor == ALL:
            files = write_split(self.stores, kind_of, out / "splits" / str(seed))
            mode: Literal["embed", "progressive"] = "embed" if method == "embed" else "progressive"
            matches = match(
                tuple(files), out / "matches" / f"{mode}-{seed}.h5", pairs="exhaustive", mode=mode, model=self.model,
                order=self.order if mode == "progressive" else (), ratio=self.ratio,
            )  # fmt: skip
        else:  # of the matches of all photos, those of its own
            files = [self.stores[descriptor]]
            listed = write_pair_list(out / "matches" / "pairs.txt", list(all_pairs(sorted(self.names))))
            matches = match(
                tuple(files), out / "matches" / f"{descriptor}.h5", pairs=str(listed), ratio=self.ratio
            )  # fmt: skip
        folder = self.folder(method, descriptor, seed)
        reconstruct(
            tuple(files), folder, matches=matches, intrinsics=self.intrinsics,
            only=write_lines(out / "photos" / f"{folder.name}.txt", photos),
            settings=MappingSettings(seed=seed, threads=self.threads),
        )  # fmt: skip
        return folder / "models" / "0"
