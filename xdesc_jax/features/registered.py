"""The descriptors that the package knows by itself, each with the function that computes it.

In: nothing. Out: entries of the registry in `descriptors`, which imports this module at its end. Functions
are named as 'module:name' and imported when they are called.
"""

from __future__ import annotations

from typing import Any

from xdesc_jax.descriptors import DescriptorSpec, binary_spec, register


def _sift(name: str, **storage: Any) -> DescriptorSpec:
    return DescriptorSpec(name, 128, hidden=(1024, 1024), output="relu", **storage)


_F = "xdesc_jax.features."
register(binary_spec("brief", 512), _F + "brief:describe")
register(_sift("sift"), _F + "sift:describe")
register(_sift("sift-kornia05"), _F + "sift:describe_kornia05")
register(_sift("colmap-sift", storage_dtype="uint8", storage_scale=512.0), source="detector")
register(_sift("opencv-sift", storage_scale=512.0), _F + "opencv_descriptors:describe_sift", source="photo")
_CV = _F + "opencv_descriptors:describe_"
for _name, _bits in {
    "orb": 256, "brisk": 512, "freak": 512, "latch": 256, "beblid-256": 256, "beblid-512": 512, "teblid-256": 256,
    "teblid-512": 512, "boostdesc-binboost-64": 64, "boostdesc-binboost-128": 128, "boostdesc-binboost-256": 256,
}.items():  # fmt: skip
    register(binary_spec(_name, _bits), _CV + _name.replace("-", "_"), source="photo")
register(DescriptorSpec("daisy", 200, hidden=(1024, 1024), output="relu"), _CV + "daisy", source="photo")
for _name, _width in {"vgg": 120, "boostdesc-lbgm": 64}.items():
    _spec = DescriptorSpec(_name, _width, normalized=False, hidden=(1024, 1024))
    register(_spec, _CV + _name.replace("-", "_"), source="photo")
for _name in ("hardnet", "hardnet-xdesc"):
    register(DescriptorSpec(_name, 128), _F + "l2net:describe_hardnet", load=_F + "l2net:load_hardnet")
for _name in ("sosnet", "sosnet-xdesc"):
    register(DescriptorSpec(_name, 128), _F + "l2net:describe_sosnet", load=_F + "l2net:load_sosnet")
register(DescriptorSpec("tfeat", 128, normalized=False), _F + "tfeat:describe", load=_F + "tfeat:load")
_NETWORKS, _WIDE = _F + "extractors.", (512, 512)
for _name, _width in {"aliked-n16rot": 128, "aliked-n16": 128, "aliked-n32": 128, "aliked-t16": 64}.items():
    register(DescriptorSpec(_name, _width, hidden=_WIDE, frame="image"), _NETWORKS + "aliked:Aliked", source="network")
register(DescriptorSpec("disk", 128, hidden=_WIDE, frame="image"), _NETWORKS + "disk:Disk", source="network")
register(DescriptorSpec("xfeat", 64, hidden=_WIDE, frame="image"), _NETWORKS + "xfeat:XFeat", source="network")
for _name, _width in {"superpoint": 256, "r2d2": 128}.items():  # their rows come from files alone
    register(DescriptorSpec(_name, _width, hidden=_WIDE, frame="image"), source="network")
