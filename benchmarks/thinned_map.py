"""Correct matches of a map whose photos were thinned: fewer rows, and so fewer neighbours for those that are left.

Run: python benchmarks/thinned_map.py SCENES --map colmap-sift.h5 --own own/xfeat.h5 own/aliked-n16rot.h5 \
         --model mixed [--rows 0.25] [--photo 3]

In: scenes with H_1_k, the map's feature file, and feature files of targets with keypoints of their own detector. Of
photo 1 a share of rows is drawn that is matched, the same in each line; they are translated among all rows of the
photo, among fewer, and alone. Prints correct mutual nearest neighbours with photo k as `cross_detector` counts them:
without a ratio test, at 3 px, medians of a few draws; translated, and both in the joint space.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np

from benchmarks.cross_detector import Side, correct, opened, pairs_of, side, translated
from xdesc_jax.evaluate.scenes import find_scenes
from xdesc_jax.features.store import FeatureStore, ImageFeatures
from xdesc_jax.translation.translator import EMBEDDING, Translator

DRAWS = 3


def part(photo: ImageFeatures, rows: np.ndarray) -> ImageFeatures:
    """Some rows of a photo."""
    of_rows = {field.name: getattr(photo, field.name) for field in dataclasses.fields(photo)}
    length = len(photo)
    kept = {n: x[rows] for n, x in of_rows.items() if isinstance(x, np.ndarray) and len(x) == length}
    return dataclasses.replace(photo, **kept)


def among(
    model: Translator, photo: ImageFeatures, order: np.ndarray, kept: int, share: int, ends: tuple[str, str]
) -> Side:
    """The first `kept` rows in `order`, translated among the first `share`."""
    positions, rows = translated(model, part(photo, order[:share]), *ends)
    return positions[:kept], rows[:kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path)
    parser.add_argument("--map", type=Path, required=True)
    parser.add_argument("--own", type=Path, nargs="+", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=float, default=0.25, help="share of the photo's rows that is matched")
    parser.add_argument("--photo", type=int, default=3)
    options = parser.parse_args()
    pairs, model = pairs_of(find_scenes(options.scenes), options.photo), opened(options.model)
    known = FeatureStore(options.map)
    shares = sorted({1.0, (1 + options.rows) / 2, 0.5, options.rows}, reverse=True)
    shares = [share for share in shares if share >= options.rows]
    print(f"{'rows around':40}" + "".join(f"{share:>12.0%}" for share in shares))
    for path in options.own:
        own = FeatureStore(path)
        for to in (own.spec.name, EMBEDDING):
            for name, pair in pairs.items():
                photo, query = known.read(pair.query), side(own, pair.database)
                photo = part(photo, np.flatnonzero(photo.valid))
                if to == EMBEDDING:
                    query = translated(model, own.read(pair.database), own.spec.name)
                found = []
                for draw in range(DRAWS):
                    order = np.random.default_rng(draw).permutation(len(photo))
                    kept = round(options.rows * len(photo))
                    ends = (known.spec.name, to)
                    sides = [among(model, photo, order, kept, round(s * len(photo)), ends) for s in shares]
                    found.append([correct(pair, own_side, query) for own_side in sides])
                counts = np.median(found, axis=0)
                label = f"{name}: {known.spec.name} {'|' if to == EMBEDDING else '->'} {own.spec.name}"
                print(f"{label:40}" + "".join(f"{count:>12.0f}" for count in counts), flush=True)


if __name__ == "__main__":
    main()
