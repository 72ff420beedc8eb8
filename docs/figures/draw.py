"""The figures of `docs/how-it-works.md`, drawn by the package's own functions.

    python docs/figures/draw.py [FOLDER]        by default beside this file

In: the translators that ship, and photos that come with scikit-image. Out: `networks.svg`, `distances.svg`,
`frames.png`, `context.png`.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import warnings
from pathlib import Path

import cv2
import matplotlib
import numpy as np
import skimage.data
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from xdesc_jax import FeatureStore, Translator
from xdesc_jax.features.extract import extract
from xdesc_jax.features.images import write_png
from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.patches import MAG, extract_patches
from xdesc_jax.networks import neighbours
from xdesc_jax.networks.views import View, seen
from xdesc_jax.translation.stream import ZeroRowsWarning

BLUE, ORANGE, GREEN, GRAY, INK = "#2f86d0", "#e69f00", "#12a07a", "#8a8a8a", "#1b1f24"
# Text stays text, and the same drawing gives the same bytes.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "xdesc", "font.size": 9})


def networks() -> Figure:
    """Encoders into the joint space, decoders out of it; the way from BRIEF to SIFT in colour."""
    figure = Figure((7.2, 2.7), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(-0.1, 3.5))
    axes.axis("off")
    rows = (("brief", "512 bits", 2.7), ("sift", "128 values", 1.6), ("hardnet", "128 values", 0.5))
    for name, form, y in rows:
        enters, leaves = name == "brief", name == "sift"
        _box(axes, 0.8, y, f"{name}\n{form}", 1.5, INK if enters else GRAY)
        _box(axes, 3.0, y, f"encoder {name}", 1.7, BLUE if enters else GRAY)
        _box(axes, 7.0, y, f"decoder {name}", 1.7, BLUE if leaves else GRAY)
        _box(axes, 9.2, y, f"{name}\n{form}", 1.5, INK if leaves else GRAY)
        _arrow(axes, (1.55, y), (2.15, y), enters)
        _arrow(axes, (3.85, y), (4.4, 1.6 + 0.25 * (y - 1.6)), enters)
        _arrow(axes, (5.6, 1.6 + 0.25 * (y - 1.6)), (6.15, y), leaves)
        _arrow(axes, (7.85, y), (8.45, y), leaves)
    axes.add_patch(FancyBboxPatch((4.45, 0.75), 1.1, 1.7, "round,pad=0.05", fc="#e7f1fb", ec=BLUE, lw=1.5))
    axes.text(5, 1.6, "joint\nspace\n128 values,\nunit length", ha="center", va="center", color=INK)
    return figure


def distances() -> Figure:
    """Distances of rows of the same and of other points, of the stereo pair's true matches: BRIEF against SIFT."""
    left, right, disparity = skimage.data.stereo_motorcycle()
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder, "photos")
        write_png(photos / "left.png", left)
        write_png(photos / "right.png", right)
        extract(photos, Path(folder), descriptors=("brief", "sift"), keypoints="opencv", max_keypoints=1500)
        read = {}
        for name, photo in (("brief", "left.png"), ("sift", "left.png"), ("sift", "right.png")):
            with FeatureStore(Path(folder, f"{name}.h5")) as store:
                read[name, photo] = store.read(photo)
    a, b = read["brief", "left.png"], read["sift", "right.png"]
    column, row = np.rint(a.keypoints).astype(int).T
    expected = a.keypoints - np.stack([disparity[row, column], np.zeros(len(a))], axis=1)
    off = np.linalg.norm(expected[:, None] - b.keypoints[None], axis=2)
    turn = np.angle(np.exp(1j * (a.oris[:, None] - b.oris[None])))  # type: ignore[index]
    size = np.log2(a.scales[:, None] / b.scales[None])  # type: ignore[index]
    alike = (off < 1.5) & (np.abs(turn) < 0.3) & (np.abs(size) < 0.3)
    same = np.argwhere(alike & a.valid[:, None] & b.valid[None])
    other = np.stack([same[:, 0], np.roll(same[:, 1], len(same) // 2)], axis=1)
    translator = Translator.from_pretrained("opencv")
    rows, target = a.usable_rows(), b.usable_rows()
    panels = {
        "SIFT with SIFT": (read["sift", "left.png"].usable_rows(), target),
        "BRIEF translated to SIFT": (translator.translate(rows, "brief", "sift", packed=True), target),
        "both in the joint space": (
            translator.embed(rows, "brief", packed=True),
            translator.embed(target, "sift"),
        ),
    }
    figure = Figure((7.2, 2.1), layout="constrained")
    bins = np.linspace(0, 1.7, 45)
    for axes, (title, (query, database)) in zip(figure.subplots(1, 3, sharex=True), panels.items(), strict=True):
        for pairs, color, label in ((same, GREEN, "the same point"), (other, GRAY, "another point")):
            between = np.linalg.norm(query[pairs[:, 0]] - database[pairs[:, 1]], axis=1)
            axes.hist(between, bins, color=color, alpha=0.75, label=label)
        axes.set(title=title, xlabel="distance", yticks=[])
        axes.spines[["left", "top", "right"]].set_visible(False)
        axes.title.set_fontsize(9)
    figure.axes[2].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def frames() -> Figure:
    """A keypoint in a photo and in the photo turned: its own patch stays, what lies upright around it does not."""
    photo = cv2.cvtColor(skimage.data.astronaut(), cv2.COLOR_RGB2GRAY)
    turn_deg, keypoint = 60.0, Keypoints(np.array([[228.0, 110.0]]), np.array([6.0]), np.array([0.6]))
    height, width = photo.shape
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -turn_deg, 1.0)
    turned = cv2.warpAffine(photo, matrix, (width, height), borderValue=255)
    frame = np.stack([keypoint.scales, keypoint.oris], axis=1)
    (sigma, angle), *_ = seen(frame, keypoint.xy, View(turn_deg, 1.0))[0]
    moved = Keypoints(keypoint.xy @ matrix[:, :2].T + matrix[:, 2], np.array([sigma]), np.array([angle]))
    figure = Figure((7.2, 2.5), layout="constrained")
    grid = figure.subplots(1, 6, width_ratios=[2, 1, 1, 2, 1, 1])
    for k, (shown, at) in enumerate(((photo, keypoint), (turned, moved))):
        upright = dataclasses.replace(at, oris=np.zeros(1))
        whole, own, flat = grid[3 * k : 3 * k + 3]
        whole.imshow(shown, cmap="gray")
        side = MAG * at.scales[0]
        _square(whole, at.xy[0], side, at.oris[0], BLUE)
        _square(whole, at.xy[0], side, 0.0, ORANGE)
        whole.set_title("a photo" if k == 0 else f"turned by {turn_deg:.0f}\u00b0")
        for axes, cut, color, text in (
            (own, at, BLUE, "patch of\nthe keypoint"),
            (flat, upright, ORANGE, "the photo\nas it lies"),
        ):
            axes.imshow(extract_patches(shown, cut)[0][0], cmap="gray", vmin=0, vmax=255)
            axes.set_title(text, fontsize=8, color=color)
            for spine in axes.spines.values():
                spine.set(color=color, linewidth=2)
    for axes in grid:
        axes.set(xticks=[], yticks=[])
    return figure


def context() -> Figure:
    """The neighbours that the encoder of SIFT in `mixed` looks at."""
    photo = cv2.cvtColor(skimage.data.astronaut(), cv2.COLOR_RGB2GRAY)
    found = cv2.SIFT.create(900).detect(photo)
    xy = np.array([point.pt for point in found])
    frames = np.array([(point.size / 2, np.deg2rad(point.angle)) for point in found])
    looks = Translator.from_pretrained("mixed").bundle.context
    assert looks is not None
    asking = int(np.argmin(np.hypot(*(xy - [228, 110]).T) + 100 * (frames[:, 0] > 3)))
    near = neighbours.find(xy, frames, looks.nearest, looks.larger)[asking]
    figure = Figure((4.6, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(photo, cmap="gray", alpha=0.6, vmin=0, vmax=255)
    parts = (
        (near[: looks.nearest], ORANGE, f"{looks.nearest} nearest"),
        (near[looks.nearest :], GREEN, f"{looks.larger} nearest larger"),
        (np.array([asking]), BLUE, "the keypoint"),
    )
    for rows, color, label in parts:
        for row in rows[rows != neighbours.NONE]:
            axes.add_patch(Circle(tuple(xy[row]), 2 * frames[row, 0], fill=False, ec=color, lw=1.6))
            axes.plot(*zip(xy[asking], xy[row], strict=True), color=color, lw=0.6)
        axes.plot([], [], "o", fillstyle="none", color=color, label=label)
    reach = np.abs(xy[near] - xy[asking]).max() + 25
    axes.set(
        xlim=xy[asking, 0] + [-reach, reach],
        ylim=xy[asking, 1] + [0.75 * reach, -0.75 * reach],
        xticks=[],
        yticks=[],
    )
    figure.legend(loc="outside right center", frameon=False)
    return figure


def _box(axes: Axes, x: float, y: float, text: str, width: float, color: str) -> None:
    corner = (x - width / 2, y - 0.32)
    axes.add_patch(FancyBboxPatch(corner, width, 0.64, "round,pad=0.02", fc="white", ec=color, lw=1.5))
    axes.text(x, y, text, ha="center", va="center", color=color, fontsize=8)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], used: bool) -> None:
    color, width = (BLUE, 1.8) if used else (GRAY, 1.0)
    arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, shrinkA=0, shrinkB=0)
    arrow.set(color=color, linewidth=width)
    axes.add_patch(arrow)


def _square(axes: Axes, center: np.ndarray, side: float, angle: float, color: str) -> None:
    """A square of so many px, its first side along the angle, with a stroke from its centre."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1], [0, 0], [1, 0]]) * side / 2 @ turn.T + center
    axes.plot(*corners[:5].T, color=color, lw=1.5)
    axes.plot(*corners[5:].T, color=color, lw=1.5)


def main(folder: Path) -> None:
    """Draws all figures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", ZeroRowsWarning)  # patches that leave the photo
    for name, figure in (("networks", networks()), ("distances", distances())):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, facecolor="white")
    for name, figure in (("frames", frames()), ("context", context())):
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=130, bbox_inches="tight", metadata={"Software": None}, facecolor="white")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
