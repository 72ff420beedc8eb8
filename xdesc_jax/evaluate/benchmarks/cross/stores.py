"""Feature files of the benchmark across descriptors.

In: pairs of photos, descriptors, and conditions. Out: a feature file of each descriptor, by condition and keypoints, of
the photos that pairs have and no others; simulated photos lie beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.evaluate.benchmarks.cross.data import Pair
from xdesc_jax.evaluate.benchmarks.cross.plan import OWN, SAME, Keypoints
from xdesc_jax.evaluate.benchmarks.cross.simulated import Condition, simulated
from xdesc_jax.evaluate.benchmarks.feature_rows import extracted_by_detector, of_network
from xdesc_jax.features.images import read_rgb, write_png
from xdesc_jax.files import dry_run
from xdesc_jax.matching.learned import LIGHTGLUE

Stores = Mapping[tuple[Condition, Keypoints], Mapping[str, Path]]


def extracted(
    root: Path, pairs: Sequence[Pair], out: Path, names: Sequence[str], conditions: Sequence[Condition],
    max_keypoints: int, weights: tuple[str, ...], processes: int, overwrite: bool,
) -> dict[tuple[Condition, Keypoints], dict[str, Path]]:  # fmt: skip
    """Feature files by condition and keypoints: each detector's own, and of the photos as they are shared ones.

    Args:
        root: folder of the photos.
        pairs: which photos; those of other conditions than 'plain' are the device's alone.
        out: folder of the run; `photos` and `features` in it are made.
        names: descriptors.
        conditions: of the device's photos, besides 'plain'.
        max_keypoints, weights, processes, overwrite: as `benchmark.run` takes them.
    """
    from xdesc_jax.evaluate.stages.homography import extracted_stores

    stores: dict[tuple[Condition, Keypoints], dict[str, Path]] = {}
    own = tuple(word for word in weights if word not in of_matchers(weights))
    how: dict[str, Any] = {"max_keypoints": max_keypoints, "weights": own, "processes": processes}
    asked: tuple[Condition, ...] = ("plain", *(c for c in conditions if c != "plain"))
    for condition in asked:
        photos = photos_of(root, pairs, out / "photos" / condition, condition)
        stores[condition, OWN] = extracted_by_detector(
            photos, out / "features" / condition, names, keypoints="colmap", overwrite=overwrite, **how
        )
    if any(of_network(name) for name in names):  # else they are those of the detector that all have
        stores["plain", SAME] = extracted_stores(
            photos_of(root, pairs, out / "photos" / "plain", "plain"), out / "features" / "shared", names,
            keypoints="colmap", overwrite=overwrite, **how,
        )  # fmt: skip
    return stores


def of_matchers(weights: Sequence[str]) -> tuple[str, ...]:
    """Those NAME=FILE words that name weights of LightGlue, and not of a descriptor."""
    return tuple(word for word in weights if word.startswith(f"{LIGHTGLUE}-"))


def suffix_of(condition: Condition) -> str:
    """What stands behind the name of a device's photo in its feature file."""
    return "" if condition == "plain" else ".png"


def photos_of(root: Path, pairs: Sequence[Pair], folder: Path, condition: Condition) -> Path:
    """A folder of the photos of pairs under a condition: links to those that are as they are, else simulated ones.

    What is there stays, but for links to photos that no pair has. A dry run makes none: it takes what an earlier run
    left, or all photos below `root`.
    """
    if dry_run.active():
        return folder if folder.is_dir() else root
    if condition == "plain":
        _link(root, folder, {name for pair in pairs for name in (pair.known, pair.device)})
        return folder
    names = {name: folder / f"{name}{suffix_of(condition)}" for name in sorted({pair.device for pair in pairs})}
    left = [name for name, path in names.items() if not path.exists()]
    for name in console.track(left, f"simulating {condition}", "photos"):
        write_png(names[name], simulated(read_rgb(root / name), condition, name))
    return folder


def _link(root: Path, folder: Path, names: set[str]) -> None:
    """Makes `folder` hold links to these photos below `root`, and to no others."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and path.relative_to(folder).as_posix() not in names:
            path.unlink()
    for name in sorted(names):
        link, photo = folder / name, (root / name).resolve()
        if link.is_symlink() and link.readlink() != photo:
            link.unlink()
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(photo)
