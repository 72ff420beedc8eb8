"""Everything that is extracted from one photo.

In: a photo, settings, and perhaps keypoints from a file. Out: `PhotoFeatures`: keypoints, patches and
descriptors with the same rows. The first half, `detect_photo`, needs no jax and runs in worker processes;
the second, `describe_photo`, runs jax and calls networks, and stays in the process that writes the results.
"""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path

import numpy as np

from xdesc_jax.descriptors import get_entry, registered, resolve
from xdesc_jax.features import images, keypoints
from xdesc_jax.features.extractors.process import DEVICES, Extractors
from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.patches import extract_patches
from xdesc_jax.features.store import ImageFeatures

DETECTORS = ("colmap", "opencv")
COLMAP_SIFT = "colmap-sift"
NO_PATCHES = np.zeros((0, 32, 32), np.uint8)


def detectors() -> list[str]:
    """The learned descriptors that come with a detector of their own."""
    return [name for name in registered() if (entry := get_entry(name)).source == "network" and entry.describe]


@dataclasses.dataclass(frozen=True)
class ExtractSettings:
    """What is extracted, and how.

    Raises:
        ValueError: an unknown or repeated descriptor, weights for none of them, or a value out of range.
    """

    descriptors: tuple[str, ...]
    """Registered names."""
    keypoints: str = "colmap"
    """'colmap', 'opencv', a network's name, or the path of a feature file or COLMAP database that holds them."""
    first_octave: int = -1
    """Of COLMAP's detector: -1 doubles the photo first, 0 does not."""
    max_keypoints: int | None = None
    """The strongest that are kept, or None for all."""
    weights: dict[str, Path] = dataclasses.field(default_factory=dict)
    """Weight files of learned descriptors, by name."""
    sample: int | None = None
    """Keypoints with a usable patch that are drawn at random, before anything is described; None for all."""
    sample_seed: int = 0
    """Of that draw."""
    device: str = "auto"
    """Where networks compute: 'auto' (CUDA where there is some), 'cpu' or 'cuda'."""
    network_side: int | None = None
    """The longer side, in px, that photos are scaled down to for networks; None for photos as they are."""
    nms: float = 0.0
    """Keypoints closer than so many px to a stronger one are left out; 0 keeps all."""
    patches: bool = False
    """Whether patches are wanted for themselves, beside the descriptors that are computed from them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "descriptors", tuple(self.descriptors))
        if not self.descriptors:
            raise ValueError("no descriptor asked for; name at least one")
        if len(set(self.descriptors)) < len(self.descriptors):
            raise ValueError(f"descriptors {' '.join(self.descriptors)}: each may be named once")
        for name in self.descriptors:
            get_entry(name)
        used = {*self.descriptors, *self.networks}
        if unused := sorted(set(self.weights) - used):
            raise ValueError(f"weights are given for {unused}, asked for are {list(self.descriptors)}")
        if self.device not in DEVICES:
            raise ValueError(f"device is {self.device!r}, expected one of {', '.join(DEVICES)}")
        if self.first_octave < -1:
            raise ValueError(f"first octave is {self.first_octave}, expected -1 or above")
        if self.max_keypoints is not None and self.max_keypoints < 1:
            raise ValueError(f"the limit of keypoints is {self.max_keypoints}, expected at least 1")
        if self.network_side is not None and self.network_side < 1:
            raise ValueError(f"the side that networks see is {self.network_side} px, expected at least 1")
        if self.sample is not None and self.sample < 1:
            raise ValueError(f"the sample of keypoints is {self.sample}, expected at least 1")
        keypoints.check_nms(self.nms)
        if self.given and (self.max_keypoints is not None or self.nms):
            found = f"nms of {self.nms} px" if self.nms else f"a limit of {self.max_keypoints}"
            raise ValueError(
                f"{self.keypoints}: keypoints from a file are all kept, so that rows stay aligned with it; "
                f"found {found}"
            )

    @property
    def given(self) -> bool:
        """Whether the keypoints come from a file."""
        return self.keypoints not in DETECTORS and self.detector is None

    @property
    def detector(self) -> str | None:
        """The network that finds the keypoints, or None."""
        return self.keypoints if self.keypoints in detectors() else None

    @property
    def networks(self) -> list[str]:
        """Names of the networks that compute: those of descriptors, and the detector."""
        return list(dict.fromkeys([*filter(None, [self.detector]), *self.names("network")]))

    @property
    def framed(self) -> bool:
        """Whether scales and orientations of keypoints are read."""
        return self.patches or bool(self.names("patch") or self.names("photo"))

    def names(self, source: str) -> list[str]:
        """The descriptors that are computed from 'patch', 'photo', 'network' or 'detector'."""
        return [name for name in self.descriptors if get_entry(name).source == source]


@dataclasses.dataclass(frozen=True)
class GivenKeypoints:
    """Keypoints of one photo from a file.

    Attributes:
        keypoints: N keypoints.
        image_size: (width, height) of the photo they were found in; (0, 0) where the file does not say.
        colmap_sift: uint8 [N, 128] where the file holds COLMAP's descriptors, else None.
        where: file and photo, for error messages.
    """

    keypoints: Keypoints
    image_size: tuple[int, int]
    colmap_sift: np.ndarray | None
    where: str


@dataclasses.dataclass(frozen=True)
class PhotoFeatures:
    """All that is extracted from one photo; every array has the same N rows.

    Attributes:
        keypoints: N keypoints.
        patches: uint8 [N, 32, 32]; [0, 32, 32] where keypoints have no scales, and, once all is described, where the
            settings do not want them.
        descriptors: name -> [N, stored_width] in the stored form; rows not valid are zero.
        valid: bool [N], the same for all descriptors.
        image_size: (width, height) in px.
        scores: [N] float32 of a learned detector, or None.
    """

    keypoints: Keypoints
    patches: np.ndarray
    descriptors: dict[str, np.ndarray]
    valid: np.ndarray
    image_size: tuple[int, int]
    scores: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.keypoints)

    def image_features(self, name: str) -> ImageFeatures:
        """One descriptor as feature files hold it."""
        points = self.keypoints
        shape: dict[str, np.ndarray] = {}
        if points.affine is not None:
            shape = {"affine": points.affine}
        elif points.framed:
            shape = {"scales": points.scales, "oris": points.oris}
        rows = self.descriptors[name]
        return ImageFeatures(points.xy, rows, self.valid, self.image_size, scores=self.scores, **shape)


def extract_photo(
    path: Path | str,
    settings: ExtractSettings,
    given: GivenKeypoints | None = None,
    extractors: Extractors | None = None,
) -> PhotoFeatures:
    """Extracts one photo.

    Args:
        path: the photo.
        settings: what is extracted.
        given: the photo's keypoints, where `settings.keypoints` is a file (see `given.KeypointFile`).
        extractors: that run the networks of the settings, where there are some.

    Raises:
        UnreadablePhoto: the photo cannot be read, or is too small for a network.
        ValueError: the keypoints do not fit the photo, or `colmap-sift` cannot be had.
    """
    return describe_photo(path, detect_photo(path, settings, given), settings, extractors)


def detect_photo(path: Path | str, settings: ExtractSettings, given: GivenKeypoints | None = None) -> PhotoFeatures:
    """Keypoints, patches, and those descriptors that come from the detector or the photo; nothing before a network has
    found the keypoints."""
    if settings.detector is not None:
        return PhotoFeatures(keypoints.empty(), NO_PATCHES, {}, np.zeros(0, bool), (0, 0))
    rgb = images.read_rgb(path) if settings.keypoints == "colmap" else None
    gray = images.read_gray(path)
    image_size = (gray.shape[1], gray.shape[0])
    colmap_sift = None
    if settings.given:
        points, colmap_sift = _fitting(given, image_size, path)
    elif rgb is not None:
        points, colmap_sift = keypoints.detect_colmap(rgb, settings.first_octave, settings.max_keypoints, settings.nms)
    else:
        points = keypoints.detect_opencv(gray, settings.max_keypoints, settings.nms)
    patches, valid = extract_patches(gray, points) if points.framed else (NO_PATCHES, np.ones(len(points), bool))
    descriptors = {}
    if COLMAP_SIFT in settings.descriptors:
        descriptors[COLMAP_SIFT] = _checked_sift(colmap_sift, points, given)
    found = _sampled(PhotoFeatures(points, patches, descriptors, valid, image_size), settings)
    for name in settings.names("photo"):
        describe = get_entry(name).describe
        assert describe is not None  # see `extract.check_ready`
        found.descriptors[name], described = resolve(describe)(gray, found.keypoints)
        found = dataclasses.replace(found, valid=found.valid & described)
    return found


def describe_photo(
    path: Path | str, features: PhotoFeatures, settings: ExtractSettings, extractors: Extractors | None
) -> PhotoFeatures:
    """Adds to what `detect_photo` gave the descriptors of networks and of patches; clears the rows that are not valid,
    and leaves out patches that are not wanted for themselves.

    Raises:
        UnreadablePhoto: the photo cannot be read any more, or is too small for a network.
        ValueError, OSError: as `Extractors.describe`.
    """
    if settings.networks:
        assert extractors is not None
        features = _with_networks(path, features, settings, extractors)
    descriptors = dict(features.descriptors)
    if names := settings.names("patch"):
        from xdesc_jax.features.describe import describe_patches

        weights = {name: file for name, file in settings.weights.items() if name in names}
        descriptors.update(describe_patches(names, features.patches, weights))
    cleared = {}
    for name in settings.descriptors:
        cleared[name] = descriptors[name].copy()
        cleared[name][~features.valid] = 0
    patches = features.patches if settings.patches else NO_PATCHES
    return dataclasses.replace(features, descriptors=cleared, patches=patches)


def _with_networks(
    path: Path | str, features: PhotoFeatures, settings: ExtractSettings, extractors: Extractors
) -> PhotoFeatures:
    """Adds the rows of networks, and the keypoints where one finds them."""
    rgb = images.read_rgb(path)
    seen = images.scaled_down(rgb, settings.network_side)
    ratio = np.divide(rgb.shape[1::-1], seen.shape[1::-1], dtype=np.float64)  # photo px of one that networks see
    if (detector := settings.detector) is not None:
        xy, scores, rows = extractors.detect(detector, seen, path)
        xy = (xy + 0.5) * ratio - 0.5  # corners, not centres, of first pixels coincide
        kept = keypoints.chosen(xy, scores, settings.max_keypoints, settings.nms)
        every = np.ones(len(kept), bool)
        found = {detector: rows[kept]}
        size = (rgb.shape[1], rgb.shape[0])
        features = PhotoFeatures(keypoints.positions(xy[kept]), NO_PATCHES, found, every, size, scores[kept])
        features = _sampled(features, settings)
    descriptors, valid = dict(features.descriptors), features.valid
    for name in settings.names("network"):
        if name != detector:
            places = (features.keypoints.xy + 0.5) / ratio - 0.5
            descriptors[name], inside = extractors.describe(name, seen, places.astype(np.float32), path)
            valid = valid & inside
    return dataclasses.replace(features, descriptors=descriptors, valid=valid)


def _sampled(features: PhotoFeatures, settings: ExtractSettings) -> PhotoFeatures:
    """The rows that the settings draw, of what was found so far."""
    if settings.sample is None:
        return features
    rows = _draw(features.keypoints, features.valid, settings.sample, settings.sample_seed)
    return dataclasses.replace(
        features,
        keypoints=features.keypoints.take(rows),
        patches=features.patches[rows] if features.keypoints.framed else features.patches,
        descriptors={name: found[rows] for name, found in features.descriptors.items()},
        valid=features.valid[rows],
        scores=None if features.scores is None else features.scores[rows],
    )


def _draw(points: Keypoints, valid: np.ndarray, count: int, seed: int) -> np.ndarray:
    """At most `count` of the valid rows, ascending; a function of the seed and the keypoints."""
    rows = np.flatnonzero(valid)
    if len(rows) <= count:
        return rows
    rng = np.random.default_rng([seed, zlib.crc32(points.xy.tobytes())])
    return np.sort(rng.choice(rows, count, replace=False))


def _fitting(
    given: GivenKeypoints | None, image_size: tuple[int, int], path: Path | str
) -> tuple[Keypoints, np.ndarray | None]:
    if given is None:
        raise ValueError(f"{path}: the settings take keypoints from a file, but none are given")
    if given.image_size not in ((0, 0), image_size):
        raise ValueError(
            f"{given.where}: keypoints of a photo of {given.image_size[0]} x {given.image_size[1]} px, "
            f"but {path} has {image_size[0]} x {image_size[1]} px"
        )
    return given.keypoints, given.colmap_sift


def _checked_sift(colmap_sift: np.ndarray | None, points: Keypoints, given: GivenKeypoints | None) -> np.ndarray:
    if colmap_sift is None and len(points) == 0:
        return np.zeros((0, 128), np.uint8)
    if colmap_sift is None or len(colmap_sift) != len(points):
        found = "none" if colmap_sift is None else f"{len(colmap_sift)} descriptors"
        where = f"{given.where}: " if given else ""
        raise ValueError(f"{where}{COLMAP_SIFT} asked for {len(points)} keypoints, found {found}")
    return colmap_sift
