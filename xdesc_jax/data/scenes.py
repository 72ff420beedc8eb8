"""The stage `xdesc scenes`: single photos to scenes with known homographies, to evaluate on photos of one's own.

In: a folder of photos. Out: one folder a scene, as `xdesc evaluate homography` takes it: the photo as `1.png`,
warped views of growing difficulty behind it, and `H_1_k` from the first to the k-th.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.data.plan import split_photos
from xdesc_jax.data.schema import VALIDATION
from xdesc_jax.features.images import list_photos, read_gray, write_png
from xdesc_jax.features.parts import photo_stamp
from xdesc_jax.features.warp import WarpSettings, draw_view, render
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.whole import already_done, atomic, config_hash, recorded, write_json

FILE = "scenes.json"
WARP = WarpSettings()


def scenes(
    out: Path,
    *,
    photos: Path,
    views: int = 5,
    limit: int | None = 24,
    validation_share: float | None = 0.1,
    seed: int = 0,
    warp: WarpSettings = WARP,
    overwrite: bool = False,
) -> Path:
    """Makes scenes for `xdesc evaluate homography` of single photos.

    Args:
        out: the folder to make, with one folder a scene.
        photos: folder of photos, with any sub-folders.
        views: warped views of each photo; the k-th differs k / views as much as it may.
        limit: the most scenes, drawn from the photos; None: all.
        validation_share: take the photos that `xdesc records` and `xdesc pairs` keep out of training with the same
            share and seed; None: any photo.
        seed: of that split, of the draw and of the views.
        warp: how far views may differ.
        overwrite: make the folder anew even if it is there.

    Raises:
        ValueError: no photo, one that cannot be read, none kept out of training, or settings out of range.
        FileExistsError: `out` was made with other settings or photos.
        InUse: another process makes it.
    """
    if views < 1 or (limit is not None and limit < 1):
        raise ValueError(f"views is {views} and limit {limit}, expected at least 1")
    names = sorted(list_photos(photos))
    if validation_share is not None:
        split = split_photos(names, validation_share, seed)
        kept_out = [name for name in names if split[name] == VALIDATION]
        if not kept_out:
            raise ValueError(
                f"{photos}: none of its {len(names)} photos is kept out of training with a validation share of "
                f"{validation_share}; pass --validation-share None to take any"
            )
        names = kept_out
    if limit is not None and len(names) > limit:
        names = sorted(np.random.default_rng(seed).choice(names, limit, replace=False).tolist())
    told = {"photos": f"{photos} ({console.counted(len(names), 'photo')} of it)", "views": views, "limit": limit}
    told |= {"validation_share": validation_share, "seed": seed, "warp": warp}
    console.settings(f"xdesc scenes -> {out}", told, scenes)
    with console.status("reading the photos"):
        contents = config_hash([photo_stamp(photos / name) for name in names])
    config = {"photos": names, "contents": contents, "views": views, "seed": seed, "warp": dataclasses.asdict(warp)}
    found = recorded(out / FILE)
    differs = partial(changes, out / FILE, found, config, kept=None)
    if already_done(out, found, config_hash(config), overwrite, differs=differs):
        console.up_to_date(out)
        return out
    with claimed(beside(out), "xdesc scenes", out), atomic(out) as folder:
        folder.mkdir()
        for number, name in enumerate(console.track(names, "warping", "photos")):
            rng = np.random.default_rng([seed, int(config_hash(name), 16)])
            _write(folder / f"{number:03d}-{Path(name).stem}", read_gray(photos / name), views, warp, rng)
        write_json(folder / FILE, {"config_hash": config_hash(config), **config})
    console.result(out, figures=out / FILE)
    return out


def _write(folder: Path, gray: np.ndarray, views: int, warp: WarpSettings, rng: np.random.Generator) -> None:
    write_png(folder / "1.png", gray)
    for k in range(1, views + 1):
        view = draw_view(rng, (gray.shape[1], gray.shape[0]), warp, effort=k / views)
        write_png(folder / f"{k + 1}.png", render(gray, view))
        np.savetxt(folder / f"H_1_{k + 1}", view.homography / view.homography[2, 2])
