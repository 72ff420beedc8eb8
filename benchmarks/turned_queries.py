"""Correct matches of turned and zoomed queries with a map whose rows are rendered in views, and with one as it lies.

Run: python benchmarks/turned_queries.py SCENES --map colmap-sift.h5 --own own/xfeat.h5 --model mixed --cache FOLDER \
         [--views roll=0,90,180,270 scale=0.5,1,2] [--scenes graf bikes] [--photo 3]

In: scenes with H_1_k; the map's feature file, whose descriptor turns with its keypoints; and a feature file of the
target's own detector. Photo k is turned (clockwise) or zoomed, the more so in each line, and the target's keypoints are
detected in it anew; what that gives is kept in the cache. Prints correct mutual nearest neighbours with photo 1, as
`cross_detector` counts them: without a ratio test, at 3 px of photo k as it was. Columns:

    ->            photo 1 translated to the target, as it lies; and in the view that agrees best
    |             both in the joint space; the same, and the view
    native        photo 1 in the target's own rows, which no view can be rendered of

Views are chosen as `xdesc localize --views` does it, at the ratio of the model.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from benchmarks.cross_detector import Side, correct, opened, pairs_of, side, translated
from xdesc_jax import cli
from xdesc_jax.evaluate.scenes import find_scenes
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.features.warp import project
from xdesc_jax.localization.rendered import Sides, best
from xdesc_jax.matching.routes import Route
from xdesc_jax.networks.views import AS_IT_LIES, View, parse
from xdesc_jax.translation.ratios import DEFAULT
from xdesc_jax.translation.translator import EMBEDDING, Translator

ROLLS, ZOOMS = (0.0, 30.0, 60.0, 90.0, 180.0), (0.5, 0.7, 1.4, 2.0)
SHOWN = [View(roll) for roll in ROLLS] + [View(scale=zoom) for zoom in ZOOMS]
MAX_KEYPOINTS = 2000


def rendered(photo: np.ndarray, view: View) -> tuple[np.ndarray, np.ndarray]:
    """A photo [H, W, 3], zoomed and then turned on a canvas that holds all of it; and the homography to it."""
    height, width = photo.shape[:2]
    size = round(width * view.scale), round(height * view.scale)
    small = cv2.resize(photo, size, interpolation=cv2.INTER_AREA if view.scale < 1 else cv2.INTER_CUBIC)
    zoom = np.diag([size[0] / width, size[1] / height, 1.0])
    zoom[:2, 2] = (np.diag(zoom)[:2] - 1) / 2  # pixels' centres are whole numbers
    turn = math.radians(view.roll_deg)
    rotation = np.array([[math.cos(turn), -math.sin(turn), 0], [math.sin(turn), math.cos(turn), 0], [0, 0, 1]])
    corners = project(rotation, np.array([[0, 0], [size[0] - 1, 0], [0, size[1] - 1], [size[0] - 1, size[1] - 1]]))
    rotation[:2, 2] = -corners.min(axis=0).round(6)
    canvas = np.ceil(np.ptp(corners, axis=0).round(6)).astype(int) + 1
    mean = photo.mean(axis=(0, 1)).tolist()
    turned = cv2.warpAffine(small, rotation[:2], canvas.tolist(), borderMode=cv2.BORDER_CONSTANT, borderValue=mean)
    return turned, rotation @ zoom


def extracted(photos: dict[str, Path], target: str, cache: Path) -> dict[tuple[str, View], np.ndarray]:
    """Renders the queries of each scene and extracts their features into `cache`; gives their homographies."""
    homographies = {}
    for scene, path in photos.items():
        photo = cv2.imread(str(path))
        for view in SHOWN:
            turned, homographies[scene, view] = rendered(photo, view)
            file = cache / "photos" / scene / f"{view.name}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.is_file():
                cv2.imwrite(str(file), turned)
    words = ["extract", str(cache / "photos"), str(cache / target), "--keypoints", target, "--descriptors", target]
    if cli.main([*words, "--max-keypoints", str(MAX_KEYPOINTS)]) != 0:
        raise SystemExit(f"no features of {cache / 'photos'}")
    return homographies


def chosen(query: Side, photos: Sequence[tuple[View, Side]], route: Route) -> tuple[View, Side]:
    """The view of the map's photo that agrees best with a query."""
    view, _ = best([Sides(view, query[1], rows) for view, (_, rows) in photos], route)
    return view, dict(photos)[view]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="SCENES")
    parser.add_argument("--map", type=Path, required=True)
    parser.add_argument("--own", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--views", nargs="+", default=["roll=0,90,180,270", "scale=0.5,1,2"])
    parser.add_argument("--scenes", nargs="+")
    parser.add_argument("--photo", type=int, default=3)
    options = parser.parse_args()
    views, model = parse(options.views), opened(options.model)
    pairs = pairs_of(find_scenes(options.folder), options.photo)
    pairs = {name: pair for name, pair in pairs.items() if options.scenes is None or name in options.scenes}
    known, own = FeatureStore(options.map), FeatureStore(options.own)
    source, target = known.spec.name, own.spec.name
    homographies = extracted({n: options.folder / p.database for n, p in pairs.items()}, target, options.cache)
    print(f"{source} map, {target} queries; {len(views)} views: {' '.join(options.views)}")
    print(f"{'':8}{'roll':>6}{'zoom':>6}{'->':>8}{'views':>8}{'|':>8}{'views':>8}{'native':>8}  view")
    with FeatureStore(options.cache / target / f"{target}.h5") as queries:
        for name, pair in pairs.items():
            photo, native = known.read(pair.query), side(own, pair.query)
            seen = {
                to: [(v, translated(model, photo, source, to, v)) for v in (AS_IT_LIES, *views)]
                for to in (target, EMBEDDING)
            }
            for shown in SHOWN:
                entry = f"{name}/{shown.name}.png"
                positions, rows = side(queries, entry)
                back = project(np.linalg.inv(homographies[name, shown]), positions)
                counts, used = [], AS_IT_LIES
                for to, photos in seen.items():
                    query = (back, translated(model, queries.read(entry), target)[1] if to == EMBEDDING else rows)
                    (_, plain), *others = photos
                    used, best_side = chosen(query, others, route(model, source, target, to))
                    counts += [correct(pair, plain, query), correct(pair, best_side, query)]
                counts.append(correct(pair, native, (back, rows)))
                line = "".join(f"{count:>8}" for count in counts)
                print(f"{name:8}{shown.roll_deg:>6g}{shown.scale:>6g}{line}  {used.name}", flush=True)


def route(model: Translator, source: str, target: str, to: str) -> Route:
    """How the two are compared: at the model's ratio, where it has one."""
    ratio = model.ratio(source, target, joint=to == EMBEDDING)
    return Route(model.spec(to), ratio if ratio is not None else DEFAULT, "the model's")


if __name__ == "__main__":
    main()
