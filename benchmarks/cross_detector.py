"""Correct matches between descriptors and detectors on homography scenes, beside what the target's own rows reach.

Run: python benchmarks/cross_detector.py SCENES --map colmap-sift.h5 --at-map xfeat.h5 --own own/xfeat.h5 \
         --model model.safetensors [--device small.safetensors] [--photo 3]

In: scenes with H_1_k, and feature files of `xdesc extract`: of the map's descriptor; of targets at the keypoints of the
map; and of targets at keypoints of their own. Photo 1 is the map's, photo k the query. Prints correct mutual nearest
neighbours at 3 px, without a ratio test, in each scene:

    native            the map's descriptor with itself
    at map keypoints  the target's own rows on both sides; photo 1 translated to it; both photos embedded (->, |)
    own keypoints     the same against keypoints of the target's own detector; and its own on both sides

With --device, photo k is embedded by that model, too, of the same joint space, as a device with small encoders would.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.descriptors import from_stored, pack_bits
from xdesc_jax.evaluate.measures import CORRECT_PX, GroundTruth
from xdesc_jax.evaluate.scenes import PhotoPair, Scene, find_scenes
from xdesc_jax.features.frames import of_features
from xdesc_jax.features.store import FeatureStore, ImageFeatures
from xdesc_jax.matching.nearest import match
from xdesc_jax.networks.views import AS_IT_LIES, View, seen
from xdesc_jax.translation.translator import EMBEDDING, Translator

Line = Callable[[str, Sequence[object]], None]
Side = tuple[np.ndarray, np.ndarray]  # positions [N, 2], canonical rows [N, D] or packed bits


def side(store: FeatureStore, name: str) -> Side:
    """The valid keypoints and rows of a photo."""
    photo = store.read(name)
    rows = photo.descriptors[photo.valid]  # bits stay packed, as matching takes them
    return photo.keypoints[photo.valid], rows if store.spec.binary else from_stored(rows, store.spec, str(store.path))


def translated(
    translator: Translator, photo: ImageFeatures, source: str, target: str = EMBEDDING, view: View = AS_IT_LIES
) -> Side:
    """The rows of a photo as the model makes them; in another view, at the positions that they have in the photo."""
    frames, positions = of_features(photo), photo.keypoints[photo.valid]
    at: np.ndarray | None = positions
    if frames is not None:
        frames, at = seen(frames[photo.valid], positions, view)
    rows, packed = photo.descriptors[photo.valid], translator.spec(source).binary
    made = translator.translate(rows, source, target, packed=packed, frames=frames, positions=at)
    return positions, pack_bits(made) if made.dtype == np.bool_ else made


def opened(model: str) -> Translator:
    """A model file, or one that ships with the package."""
    return Translator.load(model) if Path(model).is_file() else Translator.from_pretrained(model)


def correct(pair: PhotoPair, query: Side, database: Side) -> int:
    """Mutual nearest neighbours that lie within 3 px of where they belong."""
    truth = GroundTruth.of(query[0], database[0], pair.correspondence)
    rows, columns = match(query[1], database[1], binary=query[1].dtype == np.uint8).indices.T
    return int((truth.errors(rows, columns) <= CORRECT_PX).sum())


def pairs_of(scenes: list[Scene], photo: int) -> dict[str, PhotoPair]:
    found = {scene.name: [p for p in scene.pairs if Path(p.database).stem == str(photo)] for scene in scenes}
    return {name: pairs[0] for name, pairs in found.items() if pairs}


def sides(pair: PhotoPair, query: FeatureStore, database: FeatureStore) -> tuple[Side, Side]:
    return side(query, pair.query), side(database, pair.database)


def compare(
    label: str, pairs: dict[str, PhotoPair], models: Sequence[Translator], known: FeatureStore, store: FeatureStore,
    line: Line,
) -> None:  # fmt: skip
    """The map's photo translated to what `store` holds, and both embedded; the queries by each of the models."""
    model = models[0]
    source, target = known.spec.name, store.spec.name
    if target not in model.names:
        return
    photos = [(p, known.read(p.query), store.read(p.database)) for p in pairs.values()]
    found = [correct(p, translated(model, a, source, target), side(store, p.database)) for p, a, _ in photos]
    line(f"{label}: {source} -> {target}", found)
    if model.space_id is None:
        return
    of_map = [translated(model, a, source) for _, a, _ in photos]
    for by, words in zip(models, ("", " of the device"), strict=False):
        joint = [correct(p, of, translated(by, b, target)) for (p, _, b), of in zip(photos, of_map, strict=True)]
        line(f"{label}: {source} | {target}{words}", joint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path)
    parser.add_argument("--map", type=Path, required=True)
    parser.add_argument("--at-map", type=Path, nargs="*", default=[])
    parser.add_argument("--own", type=Path, nargs="*", default=[])
    parser.add_argument("--model", type=str)
    parser.add_argument("--device", type=str)
    parser.add_argument("--photo", type=int, default=3)
    options = parser.parse_args()
    pairs = pairs_of(find_scenes(options.scenes), options.photo)
    models = [opened(name) for name in (options.model, options.device) if name]
    if len({model.space_id for model in models}) > 1:
        parser.error(f"{options.device} is of another joint space than {options.model}")

    def line(label: str, values: Sequence[object]) -> None:
        print(f"{label:58}" + "".join(f"{value!s:>10}" for value in values))

    line("", list(pairs))
    known = FeatureStore(options.map)
    source = known.spec.name
    line(f"native {source}", [correct(p, side(known, p.query), side(known, p.database)) for p in pairs.values()])
    for path in options.at_map:
        store = FeatureStore(path)
        target = store.spec.name
        line(f"at map keypoints: {target}", [correct(p, *sides(p, store, store)) for p in pairs.values()])
        if models:
            compare("at map keypoints", pairs, models, known, store, line)
        for file in options.own:
            detected = FeatureStore(file)
            if detected.spec.name == target:
                limit = [correct(p, *sides(p, store, detected)) for p in pairs.values()]
                line(f"own keypoints: {target} at map keypoints with it", limit)
                if models:
                    compare("own keypoints", pairs, models, known, detected, line)
                line(f"own keypoints: {target}", [correct(p, *sides(p, detected, detected)) for p in pairs.values()])


if __name__ == "__main__":
    main()
