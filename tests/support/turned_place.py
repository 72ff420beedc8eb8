"""A place whose descriptors tell how a point lies in the photo, for queries that are turned and zoomed, for tests."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from tests.support.place import WIDTH, Place, rewrite
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.translation.bundle import Bundle

SEEN = WIDTH + 3  # values of an upright row: the code of its point, and how it lies
SPECS = {"turning": DescriptorSpec("turning", WIDTH), "upright": DescriptorSpec("upright", SEEN, frame="image")}
LIES = 2.0  # weight of how a point lies, of which its code has 1: alone it decides most neighbours


@dataclasses.dataclass(frozen=True)
class TurnedPlace:
    """Files of a place, all of the same keypoints at the same positions; poses are those of `place`.

    Attributes:
        place: the poses and the model.
        turning: rows that turn with their keypoints, and frames; photos as they lie.
        upright: what a network sees there.
        turned: both of the photos turned by 90 degrees clockwise and twice as large.
        model: translates the one to the other, told the frames.
    """

    place: Place
    turning: Path
    upright: Path
    turned: dict[str, Path]
    model: Path


def lying(code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orientation and sigma of points [N]: any, but the same in each photo up to noise."""
    return np.arctan2(code[:, 0] + code[:, 1], code[:, 2] + code[:, 3]), 4 * 2 ** (4 * code[:, 4])


def upright_rows(code: np.ndarray, angle: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """float32 [N, SEEN] of unit length."""
    told = [np.cos(angle), np.sin(angle), (np.log2(sigma) - 1.5) / 2]
    return unit_rows(np.column_stack([code, *(LIES * value for value in told)])).astype(np.float32)


def turned_place(place: Place, folder: Path) -> TurnedPlace:
    """Writes its files."""

    def turning(turn: float, zoom: float):
        def change(_: str, photo: ImageFeatures) -> ImageFeatures:
            angle, sigma = lying(photo.descriptors)
            return dataclasses.replace(photo, oris=(angle + turn).astype("f4"), scales=(zoom * sigma).astype("f4"))

        return change

    def written(name: str, turn: float, zoom: float) -> dict[str, Path]:
        paths = {kind: folder / f"{name}-{kind}.h5" for kind in SPECS}
        framed = rewrite(place.features["own-a"], folder / f"{name}.h5", turning(turn, zoom))
        with FeatureStore(framed) as store, StoreWriter(paths["turning"], SPECS["turning"]) as writer:
            for photo, held in store:
                writer.write(photo, held)
        with FeatureStore(framed) as store, StoreWriter(paths["upright"], SPECS["upright"]) as writer:
            for photo, held in store:
                rows = upright_rows(held.descriptors, held.oris, held.scales)
                writer.write(photo, dataclasses.replace(held, descriptors=rows, oris=None, scales=None))
        return paths

    lies, turned = written("lies", 0, 1), written("turned", np.pi / 2, 2)
    weights = np.diag([1.0] * WIDTH + [LIES] * 3).astype(np.float32)  # a frame is told by three values
    same, zeros = np.eye(SEEN, dtype=np.float32), np.zeros(SEEN, np.float32)
    networks = {
        "encoder/turning": [(weights, zeros)], "encoder/upright": [(same, zeros)], "decoder/upright": [(same, zeros)],
    }  # fmt: skip
    bundle = Bundle("encoder_decoder", SPECS, SEEN, networks, frame="image", harmonics=1)
    return TurnedPlace(place, lies["turning"], lies["upright"], turned, bundle.save(folder / "turning.safetensors"))
