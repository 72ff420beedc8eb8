"""`xdesc localize --workers 2` against one worker, on a scene of photos with a reference model.

    python benchmarks/localize_workers.py SCENE [--workers 1 2] [--threads 0 1] [--rounds 3] [--keypoints 2000]

SCENE holds `images/` and `reference/`, a COLMAP model. Every photo is localised in the map of all others: SIFT at
COLMAP's keypoints, triangulated at the reference's poses. Each number of workers is timed in a process of its own, in
turn; what is timed is the stage without the process' start. `--threads` are those of numpy's products, 0 for as many
as its library takes: on few cores they are busy with one worker's products already. Beside the medians and their ratio
to the first stand the seconds that the queries spent on matching and on poses, added up over the workers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # runs without being installed

BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def prepared(scene: Path, folder: Path, keypoints: int) -> list[str]:
    """Makes the map of a scene; the arguments of `xdesc localize` but for the output."""
    from xdesc_jax.cli import main
    from xdesc_jax.features.images import list_photos

    features, matches, reference = folder / "sift.h5", folder / "matches.h5", scene / "reference"
    stages = (
        ("extract", scene / "images", folder, "--descriptors", "sift", "--max-keypoints", keypoints),
        ("match", features, matches, "--pairs", "exhaustive"),
        ("reconstruct", features, folder / "map", "--matches", matches, "--given-poses", reference),
    )
    for words in stages:
        if main([*map(str, words), "--quiet"]):
            raise SystemExit(f"xdesc {words[0]} failed")
    queries = folder / "queries.txt"
    queries.write_text("".join(f'"{name}"\n' for name in list_photos(scene / "images")))
    model = folder / "map" / "models" / "0"
    words = [model, "--features", features, "--queries", queries, "--intrinsics", reference, "--pairs", "exhaustive"]
    return list(map(str, words))


def one(words: list[str]) -> dict[str, float]:
    """Seconds of the stage, run here, and of its parts; the number of queries that were localised."""
    from xdesc_jax.cli import main
    from xdesc_jax.colmap.bindings.api import pycolmap  # noqa: F401  loaded before the clock starts

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        start = time.perf_counter()
        if main(["localize", words[0], str(out), *words[1:], "--quiet"]):
            raise SystemExit("xdesc localize failed")
        taken = time.perf_counter() - start
        found = json.loads((out / "results.json").read_text())["queries"]
    spent = {part: sum(query["seconds"][part] for query in found.values()) for part in ("matching", "pose")}
    return {"stage": taken, **spent, "localized": sum(query["status"] == "localized" for query in found.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", type=Path, nargs="?")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keypoints", type=int, default=2000)
    parser.add_argument("--threads", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--one", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one)))
        return
    if given.scene is None:
        parser.error("name a SCENE")
    forms = list(itertools.product(given.threads, given.workers))
    taken: dict[tuple[int, int], list[dict[str, float]]] = {form: [] for form in forms}
    with tempfile.TemporaryDirectory() as folder:
        words = prepared(given.scene, Path(folder), given.keypoints)
        for _ in range(given.rounds):
            for (threads, workers), rounds in taken.items():
                script = [sys.executable, __file__, "--one", *words, "--workers", str(workers)]
                bound = dict.fromkeys(BLAS, str(threads)) if threads else {}
                done = subprocess.run(script, env=os.environ | bound, stdout=subprocess.PIPE, text=True, check=True)
                rounds.append(json.loads(done.stdout.splitlines()[-1]))
    print(
        f"{'threads':>7} {'workers':>7} {'stage s':>8} {'ratio':>6} {'matching s':>11} {'pose s':>7} {'found':>6}  each"
    )
    first = statistics.median(r["stage"] for r in taken[forms[0]])
    for (threads, workers), rounds in taken.items():
        found = {part: statistics.median(r[part] for r in rounds) for part in rounds[0]}
        print(
            f"{threads or '-':>7} {workers:>7} {found['stage']:>8.2f} {found['stage'] / first:>6.2f} "
            f"{found['matching']:>11.2f} {found['pose']:>7.2f} {found['localized']:>6.0f}  "
            + " ".join(f"{r['stage']:.2f}" for r in rounds)
        )


if __name__ == "__main__":
    main()
