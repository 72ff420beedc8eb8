"""Which keypoints of different photos show one point, so that training can match rows across views.

In: `views.json` of `xdesc views`, or a sparse model of the photos; and the keypoints of each photo. Out: a number for
each keypoint, which those of one point share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.model_arrays import NO_POINT
from xdesc_jax.data import views
from xdesc_jax.data.pairs.warped import mutual
from xdesc_jax.features.keypoints import Keypoints, from_colmap, positions
from xdesc_jax.features.warp import carry, project
from xdesc_jax.files.whole import input_hash, read_json

OWN_PX = 1.0  # keypoints of a model's photo that lie no further off, row by row, are those that it was made of

Photo = tuple[str, str]  # its name, and that of a set of keypoints
Numbers = dict[Photo, np.ndarray]


def points_across(path: Path, photos: Sequence[Photo], read: Callable[[Photo], Keypoints]) -> Numbers:
    """Numbers of what the keypoints of photos show.

    Keypoints of a view show the same as those of the photo that they are nearest to, mutually, within 3 px, a factor of
    1.5 in sigma and 30 deg, once these are carried into the view. Those of a model's photo show its points: by row
    where the model was made of these keypoints, else where they are nearest to an observation, mutually, within 3 px.

    Args:
        path: `views.json`, or its folder; or a model, text or binary, or of another program.
        photos: their names, each with that of its set of keypoints.
        read: gives the keypoints of one of them.

    Returns:
        Of each photo, int32 [N]; `NO_POINT` where a keypoint shows nothing that is known.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is damaged, or says nothing of any of the photos, or no point is shown by two photos.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such views.json or model")
    path = _file(path)
    found = (
        _of_views(path, photos, read) if path.is_file() and path.suffix == ".json" else _of_model(path, photos, read)
    )
    if not found:
        raise ValueError(
            f"{path}: says nothing of {photos[0][0]!r}, nor of any other of {len(photos)} photos; names are those that "
            "the features were extracted with"
        )
    shown = [np.unique(numbers[numbers != NO_POINT]) for numbers in found.values()]
    _, times = np.unique(np.concatenate(shown), return_counts=True)
    if not (times > 1).any():
        raise ValueError(f"{path}: no point is shown by keypoints of two photos, of {len(found)} that it knows")
    unknown = {photo: np.full(len(read(photo)), NO_POINT, np.int32) for photo in photos if photo not in found}
    return found | unknown


def identity(path: Path) -> dict[str, str]:
    """What tells `path` from others: names and contents of its files."""
    path = _file(path)
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return {file.name: input_hash(file) for file in files}


def _file(path: Path) -> Path:
    """`views.json` of a folder that has one."""
    return path / views.FILE if (path / views.FILE).is_file() else path


def _of_views(path: Path, photos: Sequence[Photo], read: Callable[[Photo], Keypoints]) -> Numbers:
    """Numbers of those that the file knows. What is counted are the keypoints of the first view of each photo."""
    homographies, of_photo = _homographies(path)
    groups: dict[Photo, list[Photo]] = {}
    for photo in photos:
        if photo[0] in of_photo:
            groups.setdefault((of_photo[photo[0]], photo[1]), []).append(photo)
    found, start = {}, 0
    for first, *others in groups.values():
        keypoints, back = read(first), np.linalg.inv(homographies[first[0]])
        found[first] = np.arange(start, start + len(keypoints), dtype=np.int32)
        start += len(keypoints)
        for other in others:
            expected = _carried(keypoints, homographies[other[0]] @ back)
            found[other] = _numbered(expected, found[first], read(other))
    return found


def _homographies(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Of each view its homography from the photo, and the photo's name."""
    fields = read_json(path)
    try:
        files: dict[str, Any] = fields["files"]
        homographies = {name: np.array(file["homography"], np.float64).reshape(3, 3) for name, file in files.items()}
        return homographies, {name: str(file["photo"]) for name, file in files.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not what `xdesc views` writes ({type(error).__name__}: {error})") from error


def _carried(keypoints: Keypoints, homography: np.ndarray) -> Keypoints:
    return carry(keypoints, homography) if keypoints.framed else positions(project(homography, keypoints.xy))


def _of_model(path: Path, photos: Sequence[Photo], read: Callable[[Photo], Keypoints]) -> Numbers:
    """Numbers of those that the model has registered: of its points, in the order of their ids."""
    from xdesc_jax.colmap.bindings.api import read_model

    model = read_model(path)
    registered, found = {name: view for view, name in enumerate(model.names)}, {}
    assert model.xy is not None
    for photo in photos:
        if photo[0] not in registered:
            continue
        keypoints, seen = read(photo), np.flatnonzero(model.view == registered[photo[0]])
        at, rows, numbers = from_colmap(model.xy[seen]).xy, model.keypoint[seen], model.point[seen]
        if rows.max(initial=-1) < len(keypoints) and (np.abs(keypoints.xy[rows] - at) <= OWN_PX).all():
            found[photo] = np.full(len(keypoints), NO_POINT, np.int32)
            found[photo][rows] = numbers
        else:
            found[photo] = _numbered(positions(at), numbers, positions(keypoints.xy))
    return found


def _numbered(expected: Keypoints, numbers: np.ndarray, found: Keypoints) -> np.ndarray:
    """Numbers of those found, which are those of the expected ones that are the same."""
    here, there = mutual(expected, found)
    numbered = np.full(len(found), NO_POINT, np.int32)
    numbered[there] = numbers[here]
    return numbered
