"""Time and memory of translating a COLMAP database, colmap-sift -> hardnet-xdesc, against its rows alone.

Run: python benchmarks/translate_database.py [rows] [repeats] [folder]. A synthetic database of images with 5000
SIFT rows each is translated by the shipped model `colmap`; right after it, as many rows are translated by numpy
alone, in memory. Prints the ratio of the two times (median over the repeats), and the peak memory of the first,
which runs in a process of its own. On a machine with other work the two do not run under the same load, so the
time of the whole over that inside numpy in the same run is printed, too. `folder` (a temporary one where left
out) needs 0.7 GB for 1 M rows.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import pretrained
from xdesc_jax.translation.stream import Stream
from xdesc_jax.translation.translate import translate
from xdesc_jax.translation.translator import Translator

ROWS_PER_IMAGE = 5000
MODEL, SOURCE, TARGET = "colmap", "colmap-sift", "hardnet-xdesc"
SCHEMA = """
CREATE TABLE cameras (camera_id INTEGER PRIMARY KEY, model INTEGER, width INTEGER, height INTEGER, params BLOB);
CREATE TABLE images (image_id INTEGER PRIMARY KEY, name TEXT UNIQUE, camera_id INTEGER);
CREATE TABLE keypoints (image_id INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB);
CREATE TABLE descriptors (image_id INTEGER PRIMARY KEY, type INTEGER, rows INTEGER, cols INTEGER, data BLOB);
CREATE TABLE matches (pair_id INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB);
"""


def sift_rows(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Rows as COLMAP stores them: square roots of L1-normalised histograms, times 512."""
    x = rng.exponential(size=(rows, 128)).astype(np.float32)
    return np.rint(512 * np.sqrt(x / x.sum(axis=1, keepdims=True))).clip(0, 255).astype(np.uint8)


def make_database(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    keypoints = rng.random((ROWS_PER_IMAGE, 6)).astype(np.float32)
    descriptors = sift_rows(rng, ROWS_PER_IMAGE)
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    db.execute("INSERT INTO cameras VALUES (1, 1, 640, 480, x'')")
    for image_id in range(1, -(-rows // ROWS_PER_IMAGE) + 1):
        n = min(ROWS_PER_IMAGE, rows - (image_id - 1) * ROWS_PER_IMAGE)
        db.execute("INSERT INTO images VALUES (?, ?, 1)", (image_id, f"{image_id:06}.jpg"))
        db.execute("INSERT INTO keypoints VALUES (?, ?, 6, ?)", (image_id, n, keypoints[:n].tobytes()))
        shifted = np.roll(descriptors[:n], image_id, axis=0)  # no two images alike
        db.execute("INSERT INTO descriptors VALUES (?, 0, ?, 128, ?)", (image_id, n, shifted.tobytes()))
    db.commit()
    db.close()


def one_translation(database: Path, out: Path) -> None:
    """Translates in this process; prints seconds, those inside numpy, and the process's peak memory in MB."""
    call, inside = Stream.__call__, []

    def timed(*arguments: Any, **named: Any) -> np.ndarray:
        begin = time.perf_counter()
        rows = call(*arguments, **named)
        inside.append(time.perf_counter() - begin)
        return rows

    Stream.__call__ = timed
    start = time.perf_counter()
    translate(database, out, descriptor=SOURCE, target=TARGET, model=Path(MODEL), overwrite=True)
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()  # getrusage would count what the parent used
    print(seconds, sum(inside), int(status.split("VmHWM:")[1].split()[0]) / 1024)


def rows_alone(rows: int) -> float:
    """Seconds to translate as many rows in memory, in one array of at most 500 000 at a time."""
    translator = Translator.load(pretrained.path(MODEL))
    part = sift_rows(np.random.default_rng(0), min(rows, 500_000))
    seconds = 0.0
    for start in range(0, rows, len(part)):
        x = part[: min(len(part), rows - start)]
        begin = time.perf_counter()
        translator.stream(SOURCE, TARGET, storage=True)(x)
        seconds += time.perf_counter() - begin
    return seconds


def main(rows: int, repeats: int, folder: Path) -> None:
    database, out = folder / "map.db", folder / "translated.db"
    make_database(database, rows)
    ratios, inside_ratios, peaks = [], [], []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--one", str(database), str(out)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, inside, peak = map(float, done.stdout.splitlines()[-1].split())
        alone = rows_alone(rows)
        print(f"database {seconds:.1f} s, rows alone {alone:.1f} s, peak {peak:.0f} MB", flush=True)
        ratios.append(seconds / alone)
        inside_ratios.append(seconds / inside)
        peaks.append(peak)
    print(f"time over that of the rows alone: {statistics.median(ratios):.2f} (target 1.3), {rows:,} rows")
    print(f"time over that inside numpy:      {statistics.median(inside_ratios):.2f}")
    print(f"peak memory:                      {max(peaks):.0f} MB (target 1024 for 10 M rows)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one_translation(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("rows", type=int, nargs="?", default=400_000)
        parser.add_argument("repeats", type=int, nargs="?", default=3)
        parser.add_argument("folder", type=Path, nargs="?")
        given = parser.parse_args()
        with tempfile.TemporaryDirectory() as temporary:
            main(given.rows, given.repeats, given.folder or Path(temporary))
