"""Which keypoints of different photos show one point, so that training can match rows across views.

In: `views.json` of `xdesc views`, or a sparse model of the photos; and the keypoints of each photo. Out: a number for
each keypoint, which those of one point share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.foreign.read import files_of
from xdesc_jax.colmap.model_arrays import NO_POINT
from xdesc_jax.data import views
from xdesc_jax.data.pairs.warped import mutual
from xdesc_jax.features.keypoints import Keypoints, from_colmap, positions
from xdesc_jax.features.warp import carry, project
from xdesc_jax.files.whole import config_hash, input_hash, read_json

OWN_PX = 1.0  # keypoints of a model's photo that lie no further off, row by row, are those that it was made of

Photo = tuple[str, str]  # its name, and that of a set of keypoints
Numbers = dict[Photo, np.ndarray]


def points_across(
    path: Path, photos: Sequence[Photo], read: Callable[[Photo], Keypoints],
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> Numbers:  # fmt: skip
    """Numbers of what the keypoints of photos show.

    Keypoints of a view show the same as those of the photo that they are nearest to, mutually, within 3 px, a factor of
    1.5 in sigma and 30 deg, once these are carried into the view. Those of a model's photo show its points: by row
    where the model was made of these keypoints, else where they are nearest to an observation, mutually, within 3 px.

    Args:
        path: `views.json`, or its folder; or a model, text or binary, or of another program.
        photos: their names, each with that of its set of keypoints.
        read: gives the keypoints of one of them.
        sizes: name -> (width, height) in px, (0, 0) where it is not known; some models of other programs ask for it.

    Returns:
        Of each photo, int32 [N]; `NO_POINT` where a keypoint shows nothing that is known.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is damaged, or says nothing of any of the photos, or no point is shown by two photos.
    """
    path = _file(path)
    fields = read_json(path) if path.is_file() and path.suffix == ".json" else None
    if isinstance(fields, dict) and "files" in fields:  # other programs have models in .json
        found = _of_views(path, fields, photos, read)
    else:
        found = _of_model(path, photos, read, sizes)
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


def identity(path: Path) -> str:
    """What tells `path` from others: a hash of the content of its files, whatever they are called.

    Raises:
        FileNotFoundError: no such file.
    """
    return config_hash([input_hash(file) for file in files_of(_file(path))])


def _file(path: Path) -> Path:
    """`views.json` of a folder that has one; raises FileNotFoundError where there is neither file nor folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such views.json or model")
    return path / views.FILE if (path / views.FILE).is_file() else path


def _of_views(
    path: Path, fields: Mapping[str, Any], photos: Sequence[Photo], read: Callable[[Photo], Keypoints]
) -> Numbers:
    """Numbers of those that the file knows. What is counted are the keypoints of the first view of each photo."""
    homographies, of_photo = _homographies(path, fields)
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


def _homographies(path: Path, fields: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Of each view its homography from the photo, and the photo's name."""
    try:
        files: dict[str, Any] = fields["files"]
        homographies = {name: np.array(file["homography"], np.float64).reshape(3, 3) for name, file in files.items()}
        for name, values in homographies.items():
            if not np.isfinite(values).all() or np.linalg.matrix_rank(values) < 3:
                raise ValueError(f"the homography of {name!r} has no inverse")
        return homographies, {name: str(file["photo"]) for name, file in files.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not what `xdesc views` writes ({type(error).__name__}: {error})") from error


def _carried(keypoints: Keypoints, homography: np.ndarray) -> Keypoints:
    return carry(keypoints, homography) if keypoints.framed else positions(project(homography, keypoints.xy))


def _of_model(
    path: Path, photos: Sequence[Photo], read: Callable[[Photo], Keypoints],
    sizes: Mapping[str, tuple[int, int]] | None,
) -> Numbers:  # fmt: skip
    """Numbers of those that the model has registered: for each set of keypoints, of its points in the order of their
    ids.

    Of several keypoints of a photo that observe one point, the one nearest to where it projects has the number.
    """
    from xdesc_jax.colmap.bindings.api import read_model

    model = read_model(path, sizes)
    registered, found = {name: view for view, name in enumerate(model.names)}, {}
    sets = list(dict.fromkeys(label for _, label in photos))
    assert model.xy is not None
    for photo in photos:
        if photo[0] not in registered:
            continue
        keypoints, seen = read(photo), np.flatnonzero(model.view == registered[photo[0]])
        seen = seen[np.argsort(model.residual_px[seen], kind="stable")]
        seen = seen[np.unique(model.point[seen], return_index=True)[1]]
        at, rows = from_colmap(model.xy[seen]).xy, model.keypoint[seen]
        numbers = model.point[seen] + len(model.points) * sets.index(photo[1])
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
