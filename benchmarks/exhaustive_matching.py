"""Speed of exhaustive matching in the joint space against COLMAP's brute-force matching of SIFT.

Run: python benchmarks/exhaustive_matching.py [photos] [rows] [repeats]. Matches all pairs of 25 photos of 4000 rows of
`colmap-sift`: ours after translation to the joint space of the shipped model 'colmap' (mutual neighbours, exact,
symmetric ratio test), COLMAP's on the rows themselves (mutual, ratio and distance tests, no geometric
verification), both on all cores. Prints COLMAP's time over ours (target >= 1), medians of alternating repeats,
and the time of the translation beside. COLMAP's approximate matcher, its default, is printed for comparison.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.descriptors import get_spec, stored, unit_rows
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.nearest import match
from xdesc_jax.matching.routes import Router, Rows
from xdesc_jax.translation.translator import Translator

SHARED = 0.3  # of a photo's rows show what the other photos show


def write_photos(path: Path, photos: int, rows: int) -> None:
    """A database of photos with noisy copies of common rows among rows of their own."""
    rng = np.random.default_rng(0)
    spec = get_spec("colmap-sift")
    common = rng.gamma(0.6, size=(int(SHARED * rows), 128))
    with pycolmap.Database.open(path) as db:
        camera = db.write_camera(pycolmap.Camera(model="SIMPLE_PINHOLE", width=640, height=480, params=[600, 320, 240]))
        for i in range(photos):
            own = rng.gamma(0.6, size=(rows - len(common), 128))
            seen = np.concatenate([common * rng.uniform(0.7, 1.4, common.shape), own])
            image = db.write_image(pycolmap.Image(name=f"{i:03d}.jpg", camera_id=camera))
            db.write_keypoints(image, rng.uniform(0, 480, (rows, 2)).astype(np.float32))
            data = stored(unit_rows(seen[rng.permutation(rows)]), spec)
            kind = pycolmap.FeatureExtractorType.SIFT
            db.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=data))


def colmap(path: Path, brute_force: bool) -> float:
    """Seconds that COLMAP takes for all pairs."""
    with pycolmap.Database.open(path) as db:
        db.clear_matches()
    options = pycolmap.FeatureMatchingOptions()
    options.use_gpu = False
    options.num_threads = os.cpu_count() or 1
    options.skip_geometric_verification = True
    options.sift.cpu_brute_force_matcher = brute_force
    start = time.perf_counter()
    pycolmap.match_exhaustive(path, options, device=pycolmap.Device.cpu)
    return time.perf_counter() - start


def main(photos: int, count: int, repeats: int) -> None:
    translator = Translator.from_pretrained("colmap")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "database.db"
        write_photos(path, photos, count)
        peer = Path(shutil.copy(path, Path(folder) / "peer.db"))
        with FeatureSet([path]) as features:
            held = features.held(features.names[0])
            assert held is not None
            route = Router("embed", translator).route(held, held)
            pairs = list(itertools.combinations(features.names, 2))
            ours, translation, brute, approximate = [], [], [], []
            for _ in range(repeats):
                start = time.perf_counter()
                rows = Rows(features, translator)
                x = {name: rows(name, route.target) for name in features.names}
                translation.append(time.perf_counter() - start)
                start = time.perf_counter()
                for a, b in pairs:
                    match(x[a], x[b], ratio=route.ratio)
                ours.append(time.perf_counter() - start)
                brute.append(colmap(peer, True))
                approximate.append(colmap(peer, False))
    print(f"{photos} photos x {count} rows, {len(pairs)} pairs, {os.cpu_count()} cores, medians of {repeats}")
    for name, times in {
        "ours, in the joint space": ours,
        "translation to it, once": translation,
        "COLMAP, brute force": brute,
        "COLMAP, approximate": approximate,
    }.items():
        print(f"  {name:26s} {statistics.median(times):7.2f} s")
    ratio = statistics.median(b / o for b, o in zip(brute, ours, strict=True))
    both = statistics.median(b / (o + t) for b, o, t in zip(brute, ours, translation, strict=True))
    print(f"  COLMAP's brute force / ours: {ratio:.2f} (target >= 1); with the translation: {both:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=int, nargs="?", default=25)
    parser.add_argument("rows", type=int, nargs="?", default=4000)
    parser.add_argument("repeats", type=int, nargs="?", default=3)
    main(*vars(parser.parse_args()).values())
