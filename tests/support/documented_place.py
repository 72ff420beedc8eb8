"""The folder in which the documentation's commands run: what the demo leaves there, small."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data

from pipelines import corner
from pipelines.views import ViewSettings, random_view, write_scene
from tests.support.documentation import Block, chosen
from xdesc_jax import cli, descriptors, pretrained
from xdesc_jax.features.extract import extract
from xdesc_jax.features.images import write_png

KEYPOINTS = 250  # a photo
DESCRIPTORS = ("brief", "sift", "opencv-sift")


@dataclasses.dataclass
class Place:
    """A folder, and which blocks have been run in it.

    Attributes:
        folder: holds `demo/`; commands make `out/` beside it.
        done: the blocks.
        names: page -> what its Python blocks have defined.
    """

    folder: Path
    done: set[Block] = dataclasses.field(default_factory=set)
    names: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Runs a block once, and before it what it comes after; a marked one not at all.

        Raises:
            AssertionError: a command failed.
        """
        if block in self.done or block.needs:
            return
        self.done.add(block)
        for target in block.after:
            for other in chosen(target):
                self.run(other)
        if block.file:
            (self.folder / block.file).write_text(block.text)
        elif block.language == "python":
            code = compile(block.text, block.where, "exec")
            exec(code, self.names.setdefault(block.page, {"__name__": "__documentation__"}))
        elif block.language == "sh":
            for line in block.lines:
                self.command(line, block.where)

    def command(self, line: str, where: str) -> None:
        """Runs one command; what `pip` would install is there already."""
        if line.startswith("xdesc "):
            if "--plugin" in line:
                descriptors.load_plugins.cache_clear()  # read once a process
            words = shlex.split(line)[1:]
            if "--keypoints" in words and words[words.index("--keypoints") + 1].endswith(".h5"):
                words += ["--max-keypoints", "None"]  # those of a file are all kept
            assert cli.main(words) == 0, f"{where}: {line}"
        elif not line.startswith("pip "):
            assert line.split()[0] in ("cp", "mkdir"), f"{where}: {line!r} is neither xdesc, pip, cp nor mkdir"
            subprocess.run(["bash", "-euc", line], cwd=self.folder, check=True)


def make_place(folder: Path) -> Place:
    """A folder with what the demo leaves: three photos, two views each, and the rendered corner."""
    photos, rng, settings = folder / "demo" / "photos", np.random.default_rng(0), ViewSettings()
    for name in ("astronaut", "camera", "coins"):
        photo = getattr(skimage.data, name)()[:300, :400]
        for view in range(2):
            write_png(photos / "train" / name / f"{view + 1}.png", random_view(rng, photo, 0.3 * view, settings)[0])
    write_scene(photos / "warped" / "coffee", skimage.data.coffee()[:300, :400], 2, rng, settings)
    left, right, _ = skimage.data.stereo_motorcycle()
    write_png(photos / "stereo" / "motorcycle" / "left.png", left)
    write_png(photos / "stereo" / "motorcycle" / "right.png", right)
    for part in ("train", "stereo"):
        made = {"descriptors": DESCRIPTORS, "keypoints": "opencv", "max_keypoints": KEYPOINTS}
        extract(photos / part, folder / "demo" / "features" / part, **made)
    corner.save_scene(folder / "demo" / "corner")
    shutil.copy(pretrained.path("opencv"), folder / "demo" / "model.safetensors")
    return Place(folder)
