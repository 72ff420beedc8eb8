"""The stage `xdesc views`: photos -> the same photos turned, scaled and relit, to train on.

In: a folder of photos. Out: a folder of photos, in colour where they are: of `a/b.jpg`, `a/b/0.png` is the photo itself
and `a/b/1.png` ... are views of it, which show nothing from beyond its border; and `views.json` with the homography
from each photo to each file. The folder appears when it is complete; rendering that was stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.data.build import work_folder
from xdesc_jax.features.images import UnreadablePhoto, list_photos, read_rgb, scaled_down, write_png
from xdesc_jax.features.parts import photo_stamp
from xdesc_jax.features.warp import View, WarpSettings, draw_view, render, within
from xdesc_jax.features.workers import each
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.journal import Entry, Journal
from xdesc_jax.files.whole import already_done, atomic, config_hash, recorded, write_json

FILE = "views.json"
VERSION = 1  # of views.json, and of what is drawn
MIN_SIDE_PX = 160  # of a view; in a smaller one networks find little
_DRAWS = 100


@dataclasses.dataclass(frozen=True)
class ViewSettings:
    """How photos are seen again; each view draws its own amounts.

    Raises:
        ValueError: a value out of range.
    """

    views: int = 1
    """Views of each photo, beside the photo itself."""
    side: int | None = None
    """The longer side, in px, that photos are scaled down to first; a view has no longer one. None: as they are."""
    turn: float = 25.0
    """The most that a view is turned, to either side, degrees."""
    free: float = 0.25
    """Share of views that are turned by any angle instead."""
    zoom: tuple[float, float] = (0.5, 1.5)
    """Scale of a view against the photo, drawn log-uniformly."""
    tilt: float = 1.5
    """Largest foreshortening of one direction against the other (1 / cos of the viewing angle)."""
    perspective: float = 0.15
    """Largest change of scale across the photo, relative."""
    exposure: tuple[float, float] = (0.5, 1.4)
    """Gain of pixel values, drawn log-uniformly; what passes 255 is clipped."""
    gamma: float = 0.2
    """Standard deviation of log gamma."""
    balance: float = 0.06
    """Standard deviation of the log gain of each colour."""
    blur: float = 1.2
    """Largest Gaussian blur, sigma in px."""
    noise: float = 4.0
    """Largest pixel noise, standard deviation in gray levels."""
    jpeg: tuple[int, int] = (50, 95)
    """JPEG quality."""
    seed: int = 0
    """Of all draws; those of a photo depend on its name, and on no other photo."""

    def __post_init__(self) -> None:
        for field, least in (("views", 0), ("side", MIN_SIDE_PX), ("seed", 0)):
            value = getattr(self, field)
            if value is not None and value < least:
                raise ValueError(f"{field} is {value}, expected {least} or more")
        if not 0 <= self.free <= 1:
            raise ValueError(f"free is {self.free}, expected 0 to 1")
        if not 0 <= self.turn <= 180:
            raise ValueError(f"turn is {self.turn}, expected 0 to 180 degrees")
        self.warp()

    def warp(self) -> WarpSettings:
        """The same for `draw_view`."""
        return WarpSettings(
            zoom=self.zoom, max_tilt=self.tilt, upright_share=1 - self.free, upright_deg=self.turn,
            max_perspective=self.perspective, max_blur_px=self.blur, max_noise=self.noise, gamma=self.gamma,
            exposure=self.exposure, jpeg=self.jpeg, balance=self.balance,
        )  # fmt: skip


SETTINGS = ViewSettings()


def views(
    photos: Path,
    out: Path,
    *,
    settings: ViewSettings = SETTINGS,
    processes: int = 1,
    overwrite: bool = False,
    strict: bool = False,
) -> Path:
    """Renders photos as they would be from elsewhere, in other light, to train on with networks that see photos.

    Of the photo a/b.jpg, OUT/a/b/0.png is the photo itself, scaled down, and OUT/a/b/1.png and so on are its views:
    turned, zoomed, tilted, relit, blurred, noisy, compressed, and cropped to what the photo shows. OUT/views.json has
    the homography from the photo to each of them (px, origin at the centre of the first pixel).

    Args:
        photos: folder of photos, with any sub-folders.
        out: the folder to make; it takes the place of a photo folder everywhere.
        settings: how the views differ.
        processes: that render.
        overwrite: make the folder anew even if it is there.
        strict: stop at a photo that cannot be read or is too small, instead of leaving it out.

    Returns:
        `out`.

    Raises:
        ValueError: settings out of range, two photos whose views would have one name, PHOTOS in OUT or OUT itself, no
            photo that can be read, or with `strict` one that cannot.
        FileExistsError: `out` holds something else.
        InUse: another process makes it.
    """
    if processes < 1:
        raise ValueError(f"processes is {processes}, expected at least 1")
    skipped: dict[str, str] = {}
    names = list_photos(photos, strict=strict, skipped=skipped)
    _check_folders(photos, out, names, settings.views)
    told = {"photos": f"{photos} ({console.counted(len(names), 'photo')})", "": settings, "processes": processes}
    console.settings(f"xdesc views -> {out}", told | {"strict": strict}, views)
    with console.status("reading the photos"):
        listing = [(name, photo_stamp(photos / name)) for name in names]
    config = {"version": VERSION, "photos": config_hash(listing), "settings": dataclasses.asdict(settings)}
    digest = config_hash(config)
    if out.exists() and not (out / FILE).exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(f"{out}: exists and has no {FILE}; choose another output")
    empty = out.exists() and not (out / FILE).exists()
    earlier = recorded(out / FILE)
    differs = partial(changes, out / FILE, earlier, config, kept=None)
    if already_done(out, earlier, digest, overwrite or empty, differs=differs):
        console.up_to_date(out)
        return out
    work = work_folder(out)
    with claimed(beside(out), "xdesc views", out):
        if overwrite:
            shutil.rmtree(work, ignore_errors=True)
        found = _rendered(photos, names, work, settings, digest, processes)
        made: dict[str, Entry] = {}
        for name, result in console.track(found, "rendering", "photos", len(names)):
            if isinstance(result, UnreadablePhoto):
                if strict:
                    raise result
                console.warn(f"left out: {result}")
                skipped[name] = str(result)
            else:
                made[name] = result
        if not made:
            raise ValueError(f"{photos}: no photo can be used, first of {len(names)}: {skipped[names[0]]}")
        _publish(out, work, {"config_hash": digest, **config, **_summary(photos, made, skipped)})
    console.result(out, figures=out / FILE)
    return out


def _check_folders(photos: Path, out: Path, names: list[str], count: int) -> None:
    """Raises ValueError where something would be lost: photos below OUT, or two photos with the same folder."""
    if photos.resolve().is_relative_to(out.resolve()):
        raise ValueError(f"{out}: would replace the photos in {photos}; choose another output")
    folders: dict[str, str] = {}
    for name in names:
        other = folders.setdefault(_folder(name), name)
        if other != name:
            raise ValueError(f"{photos}: views of {other!r} and {name!r} would both be {out / _folder(name)}")
    files = {f"{folder}/{file}": name for folder, name in folders.items() for file in _files(count)}
    files[FILE] = "all photos"
    for folder, name in folders.items():
        for path in (folder, *map(str, PurePosixPath(folder).parents)):
            if path in files:
                raise ValueError(f"{photos}: a file of {files[path]!r} and a folder of {name!r} would be {out / path}")


def _folder(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def _files(count: int) -> list[str]:
    return [f"{k}.png" for k in range(count + 1)]


Found = Entry | UnreadablePhoto


def _rendered(
    photos: Path, names: list[str], work: Path, settings: ViewSettings, digest: str, processes: int
) -> Iterator[tuple[str, Found]]:
    """(photo, what was made of it or why nothing was), first of those that a stopped run has finished."""
    folder = work / "views"
    with Journal(work / "journal", digest) as journal:
        if not len(journal):
            shutil.rmtree(folder, ignore_errors=True)  # of other settings
        done = [name for name in names if name in journal]
        for name in done:
            yield name, journal[name]
        left = [name for name in names if name not in journal]
        jobs = [(name, photos, folder, settings) for name in left]
        with contextlib.closing(each(_render_photo, jobs, processes)) as results:
            for name, found in zip(left, results, strict=True):
                if not isinstance(found, UnreadablePhoto):
                    journal.add(name, found)
                yield name, found


def _render_photo(name: str, photos: Path, out: Path, settings: ViewSettings) -> Found:
    """Writes the files of one photo.

    Returns:
        `size` (width, height) of the photo, and `files`: name -> size and homography from the photo.
    """
    try:
        rgb = read_rgb(photos / name)
        pixels = rgb[..., 0] if (rgb == rgb[..., :1]).all() else rgb
        photo = scaled_down(pixels, settings.side)
        size = (photo.shape[1], photo.shape[0])
        drawn = [draw(name, k, size, settings) for k in range(1, settings.views + 1)]
    except TooSmall as error:
        return UnreadablePhoto(f"{photos / name}: {error}")
    except UnreadablePhoto as error:
        return error
    ratio = np.divide(size, pixels.shape[1::-1])
    # Corners, not centres, of the first pixels coincide.
    scaling = np.array([[ratio[0], 0, ratio[0] / 2 - 0.5], [0, ratio[1], ratio[1] / 2 - 0.5], [0, 0, 1]])
    pictures = [photo, *(render(photo, view) for view in drawn)]
    homographies = [scaling, *(view.homography @ scaling for view in drawn)]
    files = {}
    for file, picture, homography in zip(_files(settings.views), pictures, homographies, strict=True):
        path = f"{_folder(name)}/{file}"
        write_png(out / path, picture)
        files[path] = {"size": picture.shape[1::-1], "homography": (homography / homography[2, 2]).tolist()}
    return {"size": pixels.shape[1::-1], "files": files}


class TooSmall(ValueError):
    """No view of a photo is large enough."""


def draw(name: str, k: int, size: tuple[int, int], settings: ViewSettings) -> View:
    """The k-th view of a photo, a function of its name, its size and the settings.

    Args:
        name: the photo's.
        k: from 1.
        size: (width, height) of the photo, px, scaled down.
        settings: how views differ.

    Raises:
        TooSmall: none of many draws shows enough of the photo.
    """
    rng = np.random.default_rng([settings.seed, int(config_hash(name), 16), k])
    for _ in range(_DRAWS):
        view = within(draw_view(rng, size, settings.warp()), size, max(size))
        if min(view.size) >= MIN_SIDE_PX:
            return view
    raise TooSmall(
        f"none of {_DRAWS} views of a photo of {size[0]} x {size[1]} px has {MIN_SIDE_PX} px on its shorter side"
    )


def _summary(photos: Path, made: dict[str, Entry], skipped: dict[str, str]) -> dict[str, Any]:
    """What views.json says beside the settings; printed, too."""
    files = {
        file: {"photo": name, **about} for name in sorted(made) for file, about in made[name]["files"].items()
    }  # fmt: skip
    megapixels = sum(about["size"][0] * about["size"][1] for about in files.values()) / 1e6
    row = (len(made), len(files) - len(made), megapixels, len(skipped))
    console.table("rendered views", ("photos", "views", "megapixels", "left out"), [row])
    sizes = {name: made[name]["size"] for name in sorted(made)}
    return {"photos_folder": photos, "photo_sizes": sizes, "files": files, "skipped": skipped}


def _publish(out: Path, work: Path, about: dict[str, Any]) -> None:
    for left in (work / "views").rglob(".*.partial"):
        left.unlink()  # of a run that was killed while it wrote
    write_json(work / "views" / FILE, about)
    with atomic(out) as folder:
        os.replace(work / "views", folder)
    shutil.rmtree(work)
