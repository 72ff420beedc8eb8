"""What grows with the photos, rows and pairs of a collection, against the plain way to do it.

    python benchmarks/scale.py [--what model update inputs ...] [--factor 1] [--rounds 3]

The peers: COLMAP's objects one observation at a time (`model`: 1 M observations, and `update`: 0.2 M of them observed
anew), a digest of all bytes (`inputs`: 1 GB), h5py's `visititems` (`store`: 3000 photos), a stable sort of each row of
cosines (`retrieve`: 1024 queries of 60 000 photos), tuples of names (`pairs`: 0.5 M pairs of 3000 photos), arrays as
they are (`matches`: 1500 pairs with 150 matches of 4000 keypoints), all distances (`spacing`: 4000 cameras), numpy's
permutation of all rows (`deal`: a worker that has 200 of 50 000 photos of 1000 rows), a file opened for each photo and
shard (`spread`: 1000 photos of 500 rows, 500 shards), and for each shard and column (`read`: 2 columns of 2000 shards
of 250 rows). `--factor` multiplies these sizes. Each way runs in a process of its own, in turn, `--rounds` times, and
both give the same result (`deal`: one of as many rows, in another order). Prints the median seconds of the processor
and the peak memory of both, the peer's time over ours (target above 1), and for `matches`, which pays a little time for
it, the bytes on the disk (target a tenth). With `--factor 10`, `model` is to stay under 20 s.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # runs without being installed

OBSERVED, TRACK = 2000, 5  # observations a photo and a point
WAYS = ("peer", "ours")


def told(*arrays: Any) -> str:
    """A digest of a result, in which both ways agree."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:12]


# --- A sparse model ------------------------------------------------------------------------------------------


def make_model(folder: Path, factor: float) -> None:
    """Photos in a row with as many keypoints that observe nothing; point p is seen by photos far from each other."""
    photos = round(500 * factor)
    observations, points = photos * OBSERVED, photos * OBSERVED // TRACK
    rng, of = np.random.default_rng(0), np.arange(observations) % points
    (folder / "cameras.bin").write_bytes(struct.pack("<QIiQQ4d", 1, 1, 2, 1024, 768, 1000, 512, 384, 0.05))
    keypoints = np.zeros(2 * OBSERVED, np.dtype([("xy", "<f8", 2), ("point", "<i8")]))
    with (folder / "images.bin").open("wb") as file:
        file.write(struct.pack("<Q", photos))
        for photo in range(photos):
            keypoints["xy"], keypoints["point"] = rng.uniform(0, 700, (2 * OBSERVED, 2)), -1
            keypoints["point"][::2] = of[photo * OBSERVED : (photo + 1) * OBSERVED] + 1
            head = struct.pack("<I7dI", photo + 1, 1, 0, 0, 0, 0.1 * (photo % 7), 0, 0, 1)
            file.write(head + f"{photo:07}.jpg".encode() + b"\0" + struct.pack("<Q", len(keypoints)))
            file.write(keypoints.tobytes())
    fields = [("id", "<i8"), ("xyz", "<f8", 3), ("rgb", "u1", 3), ("error", "<f8"), ("count", "<i8")]
    rows = np.zeros(points, np.dtype([*fields, ("track", "<u4", (TRACK, 2))]))
    seen = np.arange(TRACK) * points + np.arange(points)[:, None]
    rows["id"], rows["xyz"], rows["count"] = np.arange(points) + 1, rng.uniform(-1, 1, (points, 3)) + (0, 0, 5), TRACK
    rows["track"][:, :, 0], rows["track"][:, :, 1] = seen // OBSERVED + 1, 2 * (seen % OBSERVED)
    (folder / "points3D.bin").write_bytes(struct.pack("<Q", points) + rows.tobytes())


def model(folder: Path, way: str) -> str:
    from xdesc_jax.colmap.bindings.api import open_model, read_model

    if way == "ours":
        found = read_model(folder)
        return told(found.points, found.point, found.view, found.keypoint, found.xy)
    colmap = open_model(folder)
    row_of = {point_id: row for row, point_id in enumerate(sorted(colmap.points3D))}
    points = np.array([colmap.points3D[point_id].xyz for point_id in row_of])
    columns = []
    for view, image in enumerate(sorted((colmap.images[i] for i in colmap.reg_image_ids()), key=lambda i: i.name)):
        rows = np.array(image.get_observation_point2D_idxs())
        seen = [image.point2D(int(row)) for row in rows]
        of = np.array([row_of[p.point3D_id] for p in seen])
        columns.append([of, np.full(len(of), view), rows, np.array([p.xy for p in seen])])
    point, views, keypoint, xy = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.lexsort((keypoint, views, point))
    return told(points, point[order], views[order], keypoint[order], xy[order])


def update(folder: Path, way: str) -> str:
    """A photo that observes 40 000 points, each of which five photos of the map have seen."""
    from xdesc_jax.colmap.bindings.api import read_model
    from xdesc_jax.colmap.model import Pose
    from xdesc_jax.descriptors import DescriptorSpec
    from xdesc_jax.localization.map import LocalizationMap, MapPhoto
    from xdesc_jax.localization.outcome import PoseSettings
    from xdesc_jax.mapping.bootstrap import UpdatedMap
    from xdesc_jax.matching.feature_set import Held
    from xdesc_jax.matching.routes import Router

    sparse, spec, photos = read_model(folder), DescriptorSpec("own", 1), {}
    bounds = np.argsort(sparse.view, kind="stable").reshape(len(sparse.names), OBSERVED)
    for name, seen in zip(sparse.names, bounds, strict=True):
        point = np.full(2 * OBSERVED, -1)
        point[sparse.keypoint[seen]] = sparse.point[seen]
        photos[name] = MapPhoto(
            Held(spec), spec, np.zeros((2 * OBSERVED, 1), np.float32), point, np.zeros((2 * OBSERVED, 2))
        )
    point = np.arange(len(sparse.points) // 5)
    rows, pose = np.arange(1.0, len(point) + 1, dtype=np.float32)[:, None], Pose(np.eye(3), np.array([0.05, 0, 0]))
    START.append(time.process_time())
    if way == "ours":
        native = Router("native", None)
        built = LocalizationMap(sparse.points, photos, native, None, None, None, (), 0, ())
        made = UpdatedMap(built, sparse, {n: np.zeros(2 * OBSERVED, bool) for n in photos}, PoseSettings())
        made._replace(rows, point, pose)
        return told(*(made.rows(name) for name in sparse.names))
    tracks: dict[int, list[tuple[str, int]]] = {}
    for p, view, keypoint in zip(sparse.point.tolist(), sparse.view.tolist(), sparse.keypoint.tolist(), strict=True):
        tracks.setdefault(p, []).append((sparse.names[view], keypoint))
    centers = {name: pose.center for name, pose in sparse.poses.items()}
    angles = {name: np.full(2 * OBSERVED, np.inf) for name in photos}
    for row, p in enumerate(point.tolist()):
        x = sparse.points[p]
        for name, keypoint in tracks[p]:
            a, b = pose.center - x, centers[name] - x
            angle = float(np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b))
            if angle < angles[name][keypoint]:
                angles[name][keypoint] = angle
                photos[name].rows[keypoint] = rows[row]
    return told(*(photos[name].rows for name in sparse.names))


# --- Files ---------------------------------------------------------------------------------------------------


def make_inputs(folder: Path, factor: float) -> None:
    with (folder / "features.h5").open("wb") as file:
        file.truncate(round(factor * 1e9))


def inputs(folder: Path, way: str) -> str:
    from xdesc_jax.files.whole import content_hash, input_hash

    (input_hash if way == "ours" else content_hash)(folder / "features.h5")
    return ""


def make_store(folder: Path, factor: float) -> None:
    from xdesc_jax.descriptors import get_spec
    from xdesc_jax.features.store import ImageFeatures, StoreWriter

    one, spec = np.ones(1, np.float32), get_spec("brief")
    rows = np.zeros((1, spec.stored_width), spec.stored_dtype)
    photo = ImageFeatures(np.zeros((1, 2), np.float32), rows, one > 0, (640, 480), one, one)
    with StoreWriter(folder / "features.h5", spec) as writer:
        for i in range(round(3000 * factor)):
            writer.write(f"sequence {i % 10}/{i:07}.jpg", photo)


def store(folder: Path, way: str) -> str:
    import h5py

    from xdesc_jax.features.store import FeatureStore

    if way == "ours":
        with FeatureStore(folder / "features.h5") as found:
            return told(np.array(found.names))
    names: list[str] = []
    with h5py.File(folder / "features.h5") as file:
        file.visititems(lambda name, item: names.append(name) if "keypoints" in getattr(item, "keys", list)() else None)
    return told(np.array(sorted(names)))


# --- Pairs and matches -----------------------------------------------------------------------------------------


def make_retrieve(folder: Path, factor: float) -> None:
    from xdesc_jax.descriptors import unit_rows

    rng = np.random.default_rng(0)
    np.save(folder / "vectors.npy", unit_rows(rng.normal(size=(round(60_000 * factor), 64))))


def retrieve(folder: Path, way: str) -> str:
    from xdesc_jax.matching.vlad import VladIndex

    vectors = np.load(folder / "vectors.npy")
    if way == "ours":
        index, _ = VladIndex(np.eye(64), list(map(str, range(len(vectors)))), vectors).nearest(vectors[:1024], 20)
    else:
        index = np.argsort(-(vectors[:1024] @ vectors.T), axis=1, kind="stable")[:, :20]
    return told(index)


def make_pairs(folder: Path, factor: float) -> None:
    from xdesc_jax.matching.pairs import pair_line

    ids = np.random.default_rng(0).integers(3000, size=(round(500_000 * factor), 2))
    with (folder / "pairs.txt").open("w") as file:
        file.writelines(pair_line(f"{a:07}.jpg", f"{b:07}.jpg") for a, b in ids.tolist())


def pairs(folder: Path, way: str) -> str:
    from xdesc_jax.files.whole import config_hash
    from xdesc_jax.matching.pairs import distinct, in_blocks, read_pairs

    names = [f"{i:07}.jpg" for i in range(3000)]
    if way == "ours":
        ordered = in_blocks(distinct(read_pairs(folder / "pairs.txt", names, names), ordered=False)[0], 50)
        return ordered.hash() + told(ordered.first, ordered.second)
    lines = (folder / "pairs.txt").read_text().splitlines()
    place = {name: i for i, name in enumerate(names)}
    given = [tuple(sorted(line.split(" "))) for line in lines]
    chosen = list(dict.fromkeys(pair for pair in given if pair[0] != pair[1]))
    chosen.sort(key=lambda p: (place[p[0]] // 50, place[p[1]] // 50, place[p[0]], place[p[1]]))
    ids = np.array([(place[a], place[b]) for a, b in chosen], np.int32)
    return config_hash(sorted(chosen)) + told(*ids.T)


def matches(folder: Path, way: str) -> str:
    import h5py

    from xdesc_jax.matching.matches import MatchFile, MatchWriter, pair_key

    count, rng, result = round(1500 * json.loads((folder / "factor").read_text())), np.random.default_rng(0), []
    names = [f"{i:07}.jpg" for i in range(1000)]
    chosen = list(itertools.islice(itertools.combinations(names, 2), count))
    path = folder / f"{way}.h5"
    with h5py.File(path, "w") if way == "peer" else MatchWriter(path) as file:
        for a, b in chosen:
            found = np.stack([np.sort(rng.choice(4000, 150, replace=False)) for _ in range(2)], axis=1)
            scores = rng.random(150).astype(np.float32)
            if isinstance(file, MatchWriter):
                file.write(a, b, 4000, found, scores)
                continue
            rows, dense = np.full(4000, -1, np.int32), np.zeros(4000, np.float32)
            rows[found[:, 0]], dense[found[:, 0]] = found[:, 1], scores
            group = file.create_group(pair_key(a, b))
            group.attrs.update(name0=a, name1=b)
            group["matches0"], group["matching_scores0"] = rows, dense
    with MatchFile(path) as written:
        for a, b in chosen:
            result += written.read(a, b)
    return told(*result)


# --- Cameras ---------------------------------------------------------------------------------------------------


def spacing(folder: Path, way: str) -> str:
    from xdesc_jax.colmap.model import Pose
    from xdesc_jax.evaluate import poses

    count = round(4000 * json.loads((folder / "factor").read_text()))
    centers = np.random.default_rng(0).uniform(size=(count, 3)) * (1000, 1000, 10)
    if way == "ours":
        found = poses.spacing([Pose(np.eye(3), -center) for center in centers])
    else:
        distance = np.linalg.norm(centers[:, None] - centers, axis=2)
        np.fill_diagonal(distance, np.inf)
        found = np.median(distance.min(axis=1))
    return told(found)


# --- Records ---------------------------------------------------------------------------------------------------


def deal(folder: Path, way: str) -> str:
    from xdesc_jax.data.deal import Deal

    photos = round(50_000 * json.loads((folder / "factor").read_text()))
    rows = Deal(photos * 1000, 16384, 0)
    mine = 1000 * np.random.default_rng(0).choice(photos, 200, replace=False)
    if way == "ours":
        return told(sum(len(rows.shard_of(start, start + 1000)) for start in mine.tolist()))
    sizes = rows.shard_rows
    shards = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
    return told(sum(len(shards[start : start + 1000]) for start in mine.tolist()))


def spread(folder: Path, way: str) -> str:
    from xdesc_jax.data.deal import Deal
    from xdesc_jax.data.schema import Column, row_dtype
    from xdesc_jax.data.spread import Spreader, by_shard, packed

    columns = {"brief": Column(np.dtype(np.uint8), (64,)), "photo": Column(np.dtype(np.int32), ())}
    photos, dtype = round(1000 * json.loads((folder / "factor").read_text())), row_dtype(columns)
    rows = Deal(photos * 500, 1000, 0)
    raw, result, rng = folder / way, hashlib.sha256(), np.random.default_rng(0)
    added = ({"brief": rng.integers(256, size=(500, 64)), "photo": np.full(500, photo)} for photo in range(photos))
    if way == "ours":
        with Spreader(raw, columns, rows) as spreader:
            for photo in added:
                spreader.add(photo)
            for shard in spreader.shards():
                result.update(packed(shard, dtype).data)
        return result.hexdigest()[:12]
    raw.mkdir(exist_ok=True)
    for start, photo in enumerate(added):
        for index, part in by_shard(packed(photo, dtype), rows.shard_of(500 * start, 500 * start + 500)):
            with (raw / f"{index:05d}.rows").open("ab") as file:
                file.write(part.data)
    for index in range(rows.shards):
        result.update(np.fromfile(raw / f"{index:05d}.rows", dtype)[rows.order(index)].data)
        (raw / f"{index:05d}.rows").unlink()
    return result.hexdigest()[:12]


def make_read(folder: Path, factor: float) -> None:
    from xdesc_jax.data.columns import file_name
    from xdesc_jax.data.schema import RecordInfo
    from xdesc_jax.descriptors import get_spec

    shards = round(2000 * factor)
    info = RecordInfo(folder, "npy", {"brief": get_spec("brief")}, {"train": (250,) * shards}, False, (), {}, {})
    for name in ("brief", "photo"):
        column = info.columns[name]
        np.save(folder / file_name("train", name), np.zeros((250 * shards, *column.shape), column.dtype))
    info.save()


def read(folder: Path, way: str) -> str:
    from xdesc_jax.data.columns import ColumnSource, open_column

    source = ColumnSource(folder, "train", 250, ["brief"], window=1)
    order = [shard for window in source._order.windows(0) for shard in window]
    START.append(time.process_time())
    if way == "ours":
        return told(sum(len(piece["brief"]) for piece in source._read_shards(order)))
    found = 0
    for shard in order:
        maps = {name: open_column(source.info, "train", name) for name in ("brief", "photo")}
        found += len({n: np.array(values[250 * shard : 250 * shard + 250]) for n, values in maps.items()}["brief"])
    return told(found)


# --- All of them -----------------------------------------------------------------------------------------------

START: list[float] = []  # of the part that is timed, where something is read before
WORK: dict[str, tuple[Callable[[Path, float], None], Callable[[Path, str], str]]] = {
    "model": (make_model, model), "update": (make_model, update), "inputs": (make_inputs, inputs),
    "store": (make_store, store), "retrieve": (make_retrieve, retrieve), "pairs": (make_pairs, pairs),
    "matches": (lambda *_: None, matches), "spacing": (lambda *_: None, spacing),
    "deal": (lambda *_: None, deal), "spread": (lambda *_: None, spread), "read": (make_read, read),
}  # fmt: skip


def one(what: str, way: str, folder: Path) -> dict[str, Any]:
    """Does the work in this process; imports are not counted."""
    with contextlib.suppress(ModuleNotFoundError):
        from scipy import spatial  # noqa: F401

        import xdesc_jax.mapping.bootstrap  # noqa: F401
    START.append(time.process_time())
    result = WORK[what][1](folder, way)
    seconds = time.process_time() - START[-1]
    status = Path("/proc/self/status").read_text()
    file = folder / f"{way}.h5"
    size = file.stat().st_size / 1e6 if file.exists() else None
    return {"seconds": seconds, "peak": int(status.split("VmHWM:")[1].split()[0]) / 1024, "mb": size, "result": result}


def main() -> None:
    parser = argparse.ArgumentParser(description="What grows with a collection, against the plain way to do it.")
    parser.add_argument("--what", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--factor", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        what, way, folder = given.one
        print(json.dumps(one(what, way, Path(folder))))
        return
    for what in given.what:
        with tempfile.TemporaryDirectory() as temporary:
            (Path(temporary) / "factor").write_text(json.dumps(given.factor))
            WORK[what][0](Path(temporary), given.factor)
            runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for way in WAYS * given.rounds:
                command = [sys.executable, __file__, "--one", what, way, temporary]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                runs[way].append(json.loads(done.stdout.splitlines()[-1]))
        results = {run["result"] for way in WAYS for run in runs[way]}
        assert len(results) == 1, f"{what}: the ways give {results}"
        columns = ("seconds", "peak", "mb")
        peer, ours = ({k: statistics.median(run[k] or 0 for run in runs[way]) for k in columns} for way in WAYS)
        times = f"{peer['seconds'] / max(ours['seconds'], 1e-6):.1f} times"
        print(f"{what:8} peer {peer['seconds']:8.3f} s, ours {ours['seconds']:8.3f} s: {times:>12}", end="")
        print(f"; peak {peer['peak']:5.0f} and {ours['peak']:5.0f} MB", end="")
        print(f"; on the disk {peer['mb']:.1f} and {ours['mb']:.1f} MB" if peer["mb"] else "", flush=True)


if __name__ == "__main__":
    main()
