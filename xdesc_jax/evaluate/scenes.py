"""Photo pairs with known correspondence, from folders or from a disparity map.

In: folders in the layout of HPatches-sequences (`1.ppm` ... `6.ppm`, `H_1_2` ... `H_1_6`) or of the Oxford
affine set (`img1.ppm`, `H1to2p`); any photo suffix. Out: `Scene`s: photo 1 is the query, each other photo
the database of one pair. Imports numpy alone.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from xdesc_jax.evaluate.measures import Correspondence

_HOMOGRAPHY = re.compile(r"H_1_(\d+)|H1to(\d+)p")
_PHOTO = re.compile(r"(?:img)?(\d+)\.(?:png|ppm|pgm|jpe?g|tiff?|bmp|webp)", re.IGNORECASE)
# Below this share of the largest singular value the smallest one makes a homography singular; photos of
# some thousand px and strong perspective stay above 1e-8.
_SINGULAR = 1e-12


@dataclasses.dataclass(frozen=True)
class PhotoPair:
    """Two photos, by their names in the feature files.

    Attributes:
        query, database: their names.
        correspondence: maps positions in the first to the second.
        inverse: maps them back; None where that is not known.
    """

    query: str
    database: str
    correspondence: Correspondence
    inverse: Correspondence | None = None


@dataclasses.dataclass(frozen=True)
class Scene:
    """Pairs whose figures are averaged before scenes are."""

    name: str
    pairs: tuple[PhotoPair, ...]

    @property
    def photos(self) -> list[str]:
        """Names of all photos, each once, in order of first use."""
        return list(dict.fromkeys(name for pair in self.pairs for name in (pair.query, pair.database)))


def by_homography(matrix: np.ndarray) -> Correspondence:
    """Positions under `matrix` [3, 3], which maps (x, y, 1) of photo 1 to photo k; inf on the horizon."""

    def correspondence(xy: np.ndarray) -> np.ndarray:
        x = np.concatenate([xy, np.ones((len(xy), 1))], axis=1) @ np.asarray(matrix, np.float64).T
        horizon = x[:, 2:] == 0
        return np.where(horizon, np.inf, x[:, :2] / np.where(horizon, 1, x[:, 2:]))

    return correspondence


def by_disparity(disparity: np.ndarray) -> Correspondence:
    """Positions in the right photo of a rectified pair: x - disparity of the nearest left pixel.

    Args:
        disparity: [H, W] float px of the left photo; NaN or inf where unknown.
    """
    height, width = disparity.shape

    def correspondence(xy: np.ndarray) -> np.ndarray:
        column, row = np.rint(xy).astype(int).T
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        shift = np.full(len(xy), np.nan)
        shift[inside] = disparity[row[inside], column[inside]]
        shift[~np.isfinite(shift)] = np.nan
        return np.stack([xy[:, 0] - shift, np.where(np.isnan(shift), np.nan, xy[:, 1])], axis=1)

    return correspondence


def find_scenes(root: Path | str) -> list[Scene]:
    """The scenes of a folder, sorted by name: each sub-folder with photos, or the folder itself.

    Args:
        root: a folder of scene folders, or one scene. Photo names become relative to it.

    Raises:
        FileNotFoundError: no such folder, a photo without its homography, or the reverse.
        ValueError: no scene in it, a scene without photo 1 or with only one photo, a number of a photo or a
            homography twice, or a homography that is not a regular 3x3 matrix.
    """
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    folders = [root, *sorted(p for p in root.iterdir() if p.is_dir())]
    scenes = [_scene(root, folder) for folder in folders if _numbered_photos(folder)]
    if not scenes:
        raise ValueError(f"{root}: holds no scene (expected folders with 1.png ... 6.png and H_1_2 ... H_1_6)")
    return scenes


def _numbered_photos(folder: Path) -> dict[int, Path]:
    photos: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        found = _PHOTO.fullmatch(path.name)
        if found and path.is_file():
            number = int(found[1])
            if number in photos:
                raise ValueError(f"{folder}: two photos number {number}: {photos[number].name} and {path.name}")
            photos[number] = path
    return photos


def _scene(root: Path, folder: Path) -> Scene:
    photos = _numbered_photos(folder)
    if 1 not in photos or len(photos) < 2:
        raise ValueError(f"{folder}: has photos {sorted(photos)}, expected photo 1 and at least one more")
    matrices = _numbered_homographies(folder)
    for number in sorted(set(photos) - {1} - set(matrices)):
        raise FileNotFoundError(f"{folder}: photo {number} has no homography file H_1_{number} (or H1to{number}p)")
    for number in sorted(set(matrices) - set(photos)):
        raise FileNotFoundError(f"{folder}: {matrices[number].name} has no photo {number}")
    known = {number: read_homography(matrices[number]) for number in sorted(matrices)}
    relative = {number: path.relative_to(root).as_posix() for number, path in photos.items()}
    pairs = [
        PhotoPair(relative[1], relative[number], by_homography(matrix), by_homography(np.linalg.inv(matrix)))
        for number, matrix in known.items()
    ]
    return Scene(folder.resolve().name, tuple(pairs))


def _numbered_homographies(folder: Path) -> dict[int, Path]:
    homographies: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        found = _HOMOGRAPHY.fullmatch(path.name)
        number = int(found[1] or found[2]) if found else 1
        if number == 1:  # photo 1 with itself is no pair
            continue
        if number in homographies:
            both = f"{homographies[number].name} and {path.name}"
            raise ValueError(f"{folder}: two homographies of photo {number}: {both}, expected one")
        homographies[number] = path
    return homographies


def read_homography(path: Path | str) -> np.ndarray:
    """A text file of three rows of three numbers -> [3, 3] float64.

    Raises:
        ValueError: no UTF-8 text, another shape, something that is not a number, or a singular matrix.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}, expected 3 rows of 3 numbers as text") from error
    rows = [line.split() for line in text.splitlines() if line.strip()]
    shape = f"{len(rows)} rows of {sorted({len(r) for r in rows})} values"
    if len(rows) != 3 or any(len(row) != 3 for row in rows):
        raise ValueError(f"{path}: holds {shape}, expected 3 rows of 3 values")
    try:
        matrix = np.array(rows, np.float64)
    except ValueError as error:
        raise ValueError(f"{path}: {error}, expected 3 rows of 3 numbers") from error
    if not np.isfinite(matrix).all():
        raise ValueError(f"{path}: holds a value that is not finite")
    singular_values = np.linalg.svd(matrix, compute_uv=False)
    if singular_values[2] <= _SINGULAR * singular_values[0]:
        raise ValueError(f"{path}: the homography is singular (determinant {np.linalg.det(matrix):.3g})")
    return matrix
