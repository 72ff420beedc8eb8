"""The folder of InLoc, as the benchmark gives it: photos of laser scans, queries of a phone.

In: the folder. Out: what is missing, whether it is the official set, and its parts. Building and scan stand in the
names.

    database/cutouts/DUC1/000/DUC_cutout_000_0_0.jpg       a photo of scan 000, and beside it .jpg.mat with XYZcut: the
                                                           scan's 3D point at each pixel
    database/alignments/DUC1/transformations/DUC_trans_000.txt   scan to floor: two 4 x 4 matrices, before and after
                                                           refinement
    query/iphone7/IMG_0731.JPG
"""

from __future__ import annotations

import dataclasses
from pathlib import Path, PurePosixPath

import numpy as np

from xdesc_jax.colmap.camera_models import number
from xdesc_jax.colmap.model import Camera
from xdesc_jax.evaluate.benchmarks.protocol import Checked, fingerprint
from xdesc_jax.files.text_list import read_lines

CUTOUTS, QUERIES = "database/cutouts", "query/iphone7"
PHOTOS, QUERY_COUNTS = 9972, (329, 356)  # queries: those that the server scores, and all of the phone
# iPhone 7: photos of 4032 px have a focal length of 28 mm on a film of 36 mm.
SIDE_PX, FOCAL_PX = 4032, 4032 * 28 / 36
_ENDS = {".jpg", ".jpeg", ".png"}


@dataclasses.dataclass(frozen=True)
class InLoc:
    """What a folder holds.

    Attributes:
        root: the folder.
        photos: of scans, names below the folder, sorted.
        queries: names, likewise.
    """

    root: Path
    photos: list[str]
    queries: list[str]

    def scan(self, photo: str) -> Path:
        """The .mat with the points of a photo."""
        return self.root / f"{photo}.mat"

    def alignment(self, photo: str) -> Path:
        """The text that takes a photo's scan to the building's coordinates."""
        path = PurePosixPath(photo)
        floor, scan, building = path.parts[-3], path.parts[-2], path.name.partition("_")[0]
        return self.root / f"database/alignments/{floor}/transformations/{building}_trans_{scan}.txt"

    def cameras(self, sizes: dict[str, tuple[int, int]]) -> dict[str, Camera]:
        """The phone's camera for each query, of photos at any scale.

        Args:
            sizes: query -> width and height in px.

        Raises:
            ValueError: a size that is not known.
        """
        found = {}
        for name, (width, height) in sizes.items():
            if min(width, height) <= 0:
                raise ValueError(f"{name}: the size of the photo is not known, so its camera cannot be told")
            focal = FOCAL_PX * max(width, height) / SIDE_PX
            found[name] = Camera("SIMPLE_PINHOLE", width, height, (focal, width / 2, height / 2))
        return found


def parts(root: Path) -> InLoc:
    """The photos of a folder."""
    listed = {}
    for place in (CUTOUTS, QUERIES):
        found = (root / place).rglob("*")
        listed[place] = sorted(p.relative_to(root).as_posix() for p in found if p.suffix.lower() in _ENDS)
    return InLoc(root, listed[CUTOUTS], listed[QUERIES])


def check(root: Path) -> Checked:
    """What a folder of InLoc holds (see `protocol.Checked`)."""
    found = parts(root)
    problems = [f"no photo in {p}" for p, names in ((CUTOUTS, found.photos), (QUERIES, found.queries)) if not names]
    scans = [found.scan(name) for name in found.photos]
    deep = [name for name in found.photos if len(PurePosixPath(name).parts) >= 5]
    problems += [f"{name} is not in a folder FLOOR/SCAN" for name in sorted(set(found.photos) - set(deep))]
    aligned = sorted({found.alignment(name) for name in deep})
    problems += [f"{path.relative_to(root).as_posix()} is missing" for path in (*scans, *aligned) if not path.is_file()]
    counts = (len(found.photos), len(found.queries))
    other = []
    if counts[0] != PHOTOS or counts[1] not in QUERY_COUNTS:
        queries = " or ".join(map(str, QUERY_COUNTS))
        other.append(f"{counts[0]} photos and {counts[1]} queries, where the set has {PHOTOS} and {queries}")
    files = [*(root / name for name in (*found.photos, *found.queries)), *scans, *aligned]
    text = f"{counts[0]} photos of {len(aligned)} scans, {counts[1]} queries"
    return Checked(root, text, tuple(problems), tuple(other), "" if problems else fingerprint(files, root))


def read_alignment(path: Path) -> np.ndarray:
    """The matrix [4, 4] that takes points of a scan to the building, after refinement.

    The file has titles, and rows of four numbers; the last four rows are that matrix.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it has no such rows.
    """
    rows = []
    for line in read_lines(path, "alignment of a scan"):
        values = [number(word) for word in line.text.split()]
        if len(values) == 4 and np.isfinite(values).all():
            rows.append(values)
    if len(rows) < 4 or not np.allclose(rows[-1], [0, 0, 0, 1]):
        raise ValueError(f"{path}: expected matrices of four rows of four numbers, the last 0 0 0 1; found {rows[-4:]}")
    return np.array(rows[-4:])


def read_scan(path: Path) -> np.ndarray:
    """The scan's point at each pixel of a photo, [H, W, 3] float64 in the scan's own coordinates; NaN where none is.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is no MATLAB file with such an array.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such scan")
    try:
        found = loadmat(path, variable_names=["XYZcut"])
    except (MatReadError, ValueError, OSError, NotImplementedError, TypeError) as error:
        raise ValueError(f"{path}: not a readable MATLAB file ({error})") from error
    points = found.get("XYZcut")
    if points is None or points.ndim != 3 or points.shape[2] != 3 or points.dtype.kind not in "fiu":
        raise ValueError(f"{path}: XYZcut is {getattr(points, 'shape', 'missing')}, expected [H, W, 3] numbers")
    return np.asarray(points, np.float64)


def points_at(scan: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """3D points of positions in a photo: between pixels, and of the nearest pixel where a neighbour has none.

    Args:
        scan: [H, W, 3], NaN where the scan saw nothing.
        xy: [N, 2] px, origin at the centre of the first pixel.

    Returns:
        [N, 3]; NaN where the nearest pixel has no point either, or outside of the photo.
    """
    height, width = scan.shape[:2]
    xy = np.asarray(xy, np.float64).reshape(-1, 2)
    inside = ((xy >= -0.5) & (xy <= np.array([width, height]) - 0.5)).all(axis=1)
    x, y = (np.clip(xy[:, i], 0, side - 1) for i, side in enumerate((width, height)))
    left, top = np.minimum(x.astype(int), max(0, width - 2)), np.minimum(y.astype(int), max(0, height - 2))
    right, below = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    u, v = (x - left)[:, None], (y - top)[:, None]
    above = scan[top, left] * (1 - u) + scan[top, right] * u
    found = above * (1 - v) + (scan[below, left] * (1 - u) + scan[below, right] * u) * v
    lost = ~np.isfinite(found).all(axis=1)
    found[lost] = scan[np.rint(y[lost]).astype(int), np.rint(x[lost]).astype(int)]
    found[~inside | ~np.isfinite(found).all(axis=1)] = np.nan
    return found
