"""What the extractor computes: keypoints and descriptors of a photo in memory, translated where asked for.

In: a configuration and pixels as hloc has them. Out: arrays as hloc's feature files hold them. Imports no torch.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import pretrained
from xdesc_jax.descriptors import DescriptorSpec, from_stored, get_spec, pack_bits
from xdesc_jax.features.extract import check_ready, extract_photo, extractors_of
from xdesc_jax.features.frames import of_features
from xdesc_jax.features.photo import ExtractSettings
from xdesc_jax.features.store import ImageFeatures
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.translation.translator import Translator

DEFAULTS: dict[str, Any] = {
    "descriptor": "colmap-sift",  # a registered name, as `xdesc extract --descriptors` takes it
    "keypoints": "colmap",  # 'colmap', 'opencv', or the name of a network that finds its own
    "max_keypoints": None,  # the strongest; None for all
    "nms": 0.0,  # px
    "weights": (),  # NAME=FILE
    "device": "auto",  # of networks
    "target": None,  # what the rows are translated to; 'embedding' for the joint space
    "translator": None,  # name or file of a model, for `target`
}


class PhotoExtractor:
    """Extracts photos in memory.

    Args:
        settings: of one descriptor.
        translator: the model; None where nothing is translated.
        target: what the rows become; None for as they are.

    Raises:
        ValueError: settings that cannot be carried out, or a target without a model or that it has not.
    """

    def __init__(self, settings: ExtractSettings, translator: Translator | None = None, target: str | None = None):
        if (translator is None) != (target is None):
            missing = "'translator'" if translator is None else "'target'"
            raise ValueError(f"the configuration has no {missing}: 'target' and 'translator' go together")
        check_ready(settings)
        (self.source,) = settings.descriptors
        self._settings, self._translator, self._target = settings, translator, target
        self._stack = contextlib.ExitStack()
        self._networks = self._stack.enter_context(extractors_of(settings)) if settings.networks else None
        if translator is not None and target is not None:
            translator.route(self.source, target)

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> PhotoExtractor:
        """By hloc's configuration of a model, with the keys of `DEFAULTS`.

        Raises:
            ValueError: a key that there is none of.
            FileNotFoundError: no such model.
        """
        conf = checked(conf, DEFAULTS)
        settings = ExtractSettings(
            (conf["descriptor"],), conf["keypoints"], max_keypoints=conf["max_keypoints"], nms=conf["nms"],
            weights=parse_weights(tuple(conf["weights"])), device=conf["device"],
        )  # fmt: skip
        model = conf["translator"]
        return cls(settings, Translator.load(pretrained.resolve(model)) if model is not None else None, conf["target"])

    @property
    def spec(self) -> DescriptorSpec:
        """What the rows are."""
        if self._translator is not None and self._target is not None:
            return self._translator.spec(self._target)
        return get_spec(self.source)

    def __call__(self, image: np.ndarray) -> dict[str, np.ndarray]:
        """Extracts one photo.

        Args:
            image: [1 | 3, H, W] in 0..1, gray or RGB.

        Returns:
            keypoints [N, 2] float32, the centre of the first pixel at (0, 0); descriptors [D, N], float32 of unit
            length where the descriptor is, or packed bits, uint8; scales and oris [N] where the keypoints have them;
            scores [N] where the detector gives some. Keypoints without a descriptor are left out.

        Raises:
            ValueError: pixels of another shape or range.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "photo.ppm"
            path.write_bytes(_netpbm(image))
            found = extract_photo(path, self._settings, extractors=self._networks)
        photo = found.image_features(self.source)
        kept = np.flatnonzero(photo.valid)
        rows = self._rows(photo, kept)
        result = {"keypoints": photo.keypoints[kept].astype(np.float32), "descriptors": np.ascontiguousarray(rows.T)}
        for name in ("scales", "oris", "scores"):
            if (values := getattr(photo, name)) is not None:
                result[name] = values[kept].astype(np.float32)
        return result

    def close(self) -> None:
        """Ends the process of networks, where there is one."""
        self._stack.close()

    def _rows(self, photo: ImageFeatures, kept: np.ndarray) -> np.ndarray:
        spec, stored = get_spec(self.source), photo.descriptors[kept]
        if self._translator is None or self._target is None:
            return stored if spec.binary else from_stored(stored, spec, "the photo")
        frames = of_features(photo)
        rows = self._translator.translate(
            stored, self.source, self._target, packed=spec.binary, positions=photo.keypoints[kept],
            frames=None if frames is None else frames[kept],
        )  # fmt: skip
        return pack_bits(rows) if rows.dtype == np.bool_ else rows


def checked(conf: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with all keys; raises ValueError with the first that there is none of."""
    given = {key: value for key, value in conf.items() if key != "name"}
    if unknown := [key for key in given if key not in defaults]:
        raise ValueError(f"the configuration has {unknown[0]!r}, expected {', '.join(defaults)}")
    return {**defaults, **given}


def _netpbm(image: np.ndarray) -> bytes:
    """Pixels as the bytes of an uncompressed file, which any reader of photos takes."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"the image has shape {list(image.shape)}, expected [1 | 3, H, W]")
    if not (np.isfinite(image).all() and image.min(initial=0) >= -1e-3 and image.max(initial=1) <= 1 + 1e-3):
        raise ValueError(f"the image has values from {image.min():g} to {image.max():g}, expected 0 to 1")
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    height, width, channels = pixels.shape
    return b"P%d\n%d %d\n255\n" % (5 if channels == 1 else 6, width, height) + pixels.tobytes()
