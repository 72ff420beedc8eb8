"""Files of one vector a photo, as hloc's `extract_features` writes NetVLAD's and others: `global_descriptor` of each.

In: .h5 files with a group a photo. Out: unit vectors by the photos' names, which compare by cosine. Runs on the base
install.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.database import is_database
from xdesc_jax.console.words import counted
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.files.hdf5 import DAMAGE, GLOBAL_FEATURES, array, content, groups_with, open_file

KEY = "global_descriptor"
_SHOWN = 5


def hold_global(paths: Sequence[Path]) -> bool:
    """Whether the first of some files holds vectors of photos, and no keypoints.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is neither a feature file nor a COLMAP database.
    """
    if is_database(paths[0]):
        return False
    with open_file(Path(paths[0]), "file of global features") as file:
        try:
            return content(file) == GLOBAL_FEATURES
        except DAMAGE as error:
            raise ValueError(f"{paths[0]}: cannot be read, the file is damaged ({error})") from error


class GlobalFeatures:
    """The vectors of all photos in some files.

    Args:
        paths: the files; a photo is in one of them.

    Attributes:
        names: of the photos, sorted.
        vectors: [N, D] float32, unit rows; zero for photos whose vector is, which nothing retrieves.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file without such vectors, a damaged one, vectors of several widths or that are not finite, a
            photo in two files.
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = [Path(path) for path in paths]
        found: dict[str, tuple[Path, np.ndarray]] = {}
        for path in self.paths:
            with open_file(path, "file of global features") as file:
                try:
                    names = groups_with(file, KEY)
                    if not names:
                        told = content(file)
                        raise ValueError(f"{path}: holds no {KEY!r} of any photo: it is {told}")
                    for name in names:
                        if name in found:
                            raise ValueError(f"photo {name!r} is in two files, {found[name][0]} and {path}")
                        found[name] = (path, array(file[name], KEY, np.float32).reshape(-1))
                except (*DAMAGE, TypeError) as error:
                    raise ValueError(f"{path}: cannot be read, the file is damaged ({error})") from error
        first = next(iter(found.values()))[1]
        for name, (path, vector) in found.items():
            if vector.shape != first.shape:
                raise ValueError(f"{path}: {name!r} has {len(vector)} values, others have {len(first)}")
            if not np.isfinite(vector).all():
                raise ValueError(f"{path}: {KEY} of {name!r} is not finite")
        self.names = sorted(found)
        self.vectors = unit_rows(np.stack([found[name][1] for name in self.names]))
        self._place = {name: row for row, name in enumerate(self.names)}

    def take(self, names: Collection[str]) -> None:
        """Leaves out all photos but these."""
        self.names = [name for name in self.names if name in names]
        self.vectors = self.vectors[[self._place[name] for name in self.names]]
        self._place = {name: row for row, name in enumerate(self.names)}

    def of(self, names: Sequence[str], why: str) -> np.ndarray:
        """Vectors of some photos, [N, D]; `why` says who names them.

        Raises:
            ValueError: photos that the files lack.
        """
        if missing := [name for name in names if name not in self._place]:
            files = ", ".join(map(str, self.paths))
            raise ValueError(
                f"{why} names {counted(len(missing), 'photo')} without {KEY!r} in {files}, first {missing[:_SHOWN]}; "
                f"there are {len(self.names)}, first {self.names[:_SHOWN]}"
            )
        return self.vectors[[self._place[name] for name in names]]
