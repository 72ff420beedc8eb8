"""One small scene as other programs write it, each by its own description: axes, origins, units and distortion.

In: the true scene, and a format with a camera model. Out: its files, and where each photo sees each point, by the
format's own equations in plain loops; nothing here is shared with the readers.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

SIZE = (1002, 501)  # px
FOCAL = 720.5  # px
NAMES = ("left/a 1.jpg", "left/b.jpg", "right/a 1.jpg", "right/é.png")
FLIP = np.diag([1.0, -1.0, -1.0])


@dataclasses.dataclass(frozen=True)
class True_:
    """What is true: [V] rotations, world to camera (x right, y down, z forward), positions [V, 3] and points [P, 3]."""

    rotations: list[np.ndarray]
    centers: list[np.ndarray]
    points: np.ndarray

    def in_camera(self, view: int) -> list[list[float]]:
        """The points before a camera."""
        return ((self.points - self.centers[view]) @ self.rotations[view].T).tolist()


def true_scene(points: int = 23) -> True_:
    """Four cameras about some points, turned and rolled."""
    rng = np.random.default_rng(5)
    rotations, centers = [], []
    for angle in (0.1, 0.4, 0.9, -0.5):
        center = np.array([5 * math.sin(angle), 0.6 * angle, -5 * math.cos(angle)])
        forward = -center / np.linalg.norm(center)
        right = np.cross([0.1 * angle, 1.0, 0.2], forward)
        right /= np.linalg.norm(right)
        rotations.append(np.stack([right, np.cross(forward, right), forward]))
        centers.append(center)
    return True_(rotations, centers, rng.uniform(-1.2, 1.2, (points, 3)))


# --- Equations of lenses, one ideal position at a time -----------------------------------------------------


def brown(x: float, y: float, k1=0.0, k2=0.0, p1=0.0, p2=0.0, k3=0.0) -> tuple[float, float]:
    """As OpenCV writes it."""
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
    return x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x), y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y


def fisheye(x: float, y: float, k1=0.0, k2=0.0, k3=0.0, k4=0.0) -> tuple[float, float]:
    r = math.hypot(x, y)
    theta = math.atan(r)
    bent = theta * (1 + k1 * theta**2 + k2 * theta**4 + k3 * theta**6 + k4 * theta**8)
    return x / r * bent, y / r * bent


def around(p: list[float]) -> tuple[float, float]:
    """Longitude and latitude (downwards) in turns."""
    return math.atan2(p[0], p[2]) / (2 * math.pi), math.atan2(p[1], math.hypot(p[0], p[2])) / (2 * math.pi)


Positions = dict[tuple[int, int], tuple[float, float]]  # (view, point) -> px from the corner of the first pixel


# --- transforms.json ---------------------------------------------------------------------------------------


def transforms(folder: Path, true: True_, kind: str) -> tuple[Path, Positions]:
    width, height = SIZE
    fx, fy, cx, cy = FOCAL, 1.01 * FOCAL, 510.25, 311.5
    intrinsics: dict[str, object] = {"fl_x": fx, "fl_y": fy, "cx": cx, "cy": cy, "w": width, "h": height}
    bend: Callable[[float, float], tuple[float, float]] = lambda x, y: (x, y)  # noqa: E731
    if kind == "angle":
        intrinsics = {"camera_angle_x": 2 * math.atan(width / 2 / FOCAL), "w": float(width), "h": height}
        fx, fy, cx, cy = FOCAL, FOCAL, width / 2, height / 2
    elif kind == "opencv":
        terms = {"k1": -0.11, "k2": 0.03, "p1": 0.004, "p2": -0.002}
        intrinsics |= {"camera_model": "OPENCV", **terms}
        bend = lambda x, y: brown(x, y, -0.11, 0.03, 0.004, -0.002)  # noqa: E731
    elif kind == "k3":
        intrinsics |= {"k1": -0.11, "k2": 0.03, "k3": -0.02, "k4": 0, "p1": 0.001, "p2": 0.002}
        bend = lambda x, y: brown(x, y, -0.11, 0.03, 0.001, 0.002, -0.02)  # noqa: E731
    elif kind == "fisheye":
        intrinsics |= {"is_fisheye": True, "k1": 0.05, "k2": -0.02, "k3": 0.01, "k4": -0.003}
        bend = lambda x, y: fisheye(x, y, 0.05, -0.02, 0.01, -0.003)  # noqa: E731
    frames, seen = [], {}
    for view, name in enumerate(NAMES):
        to_world = np.eye(4)
        to_world[:3, :3] = true.rotations[view].T @ FLIP
        to_world[:3, 3] = true.centers[view]
        frames.append({"file_path": f"./images/{name}", "sharpness": 20.0, "transform_matrix": to_world.tolist()})
        for i, p in enumerate(((true.points - to_world[:3, 3]) @ to_world[:3, :3]).tolist()):  # looks along -z
            x, y = bend(p[0] / -p[2], -p[1] / -p[2])
            seen[view, i] = (fx * x + cx, fy * y + cy)
    content = {"aabb_scale": 4, "frames": frames}
    if kind == "frames":
        for frame in frames:
            frame |= intrinsics
    else:
        content |= intrinsics
    path = folder / "transforms.json"
    path.write_text(json.dumps(content, indent=2))
    return path, seen


# --- OpenSfM -----------------------------------------------------------------------------------------------


def axis_angle(rotation: np.ndarray) -> list[float]:
    angle = math.acos((np.trace(rotation) - 1) / 2)
    axis = np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]])
    return (axis / (2 * math.sin(angle)) * angle).tolist()


def opensfm(folder: Path, true: True_, kind: str, version: int = 2) -> tuple[Path, Positions]:
    width, height = SIZE
    longer = max(SIZE)
    f = FOCAL / longer
    camera: dict[str, object] = {"projection_type": kind, "width": width, "height": height}
    two = {"focal_x": f, "focal_y": 0.98 * f, "c_x": 0.01, "c_y": -0.02}

    def project(p: list[float]) -> tuple[float, float]:
        x, y = p[0] / p[2], p[1] / p[2]
        if kind == "perspective":
            x, y = brown(x, y, -0.1, 0.02)
            return f * x, f * y
        if kind == "fisheye":
            x, y = fisheye(x, y, 0.03, -0.01)
            return f * x, f * y
        if kind == "spherical":
            return around(p)
        if kind == "brown":
            x, y = brown(x, y, -0.1, 0.02, 0.003, -0.004, 0.01)
        elif kind == "fisheye_opencv":
            x, y = fisheye(x, y, 0.03, -0.01, 0.004, -0.002)
        else:
            x, y = brown(x, y, -0.1, 0.02 if kind == "radial" else 0.0)
        return f * x + 0.01, 0.98 * f * y - 0.02

    camera |= {
        "perspective": {"focal": f, "k1": -0.1, "k2": 0.02},
        "fisheye": {"focal": f, "k1": 0.03, "k2": -0.01},
        "spherical": {},
        "brown": {**two, "k1": -0.1, "k2": 0.02, "p1": 0.003, "p2": -0.004, "k3": 0.01},
        "fisheye_opencv": {**two, "k1": 0.03, "k2": -0.01, "k3": 0.004, "k4": -0.002},
        "radial": {**two, "k1": -0.1, "k2": 0.02},
        "simple_radial": {**two, "k1": -0.1},
    }[kind]
    shots, lines, seen = {}, [], {}
    for view, name in enumerate(NAMES):
        rotation = true.rotations[view]
        translation = (-rotation @ true.centers[view]).tolist()
        shots[name] = {"rotation": axis_angle(rotation), "translation": translation, "camera": "v2 lens"}
        for i, p in enumerate(true.in_camera(view)):
            x, y = project(p)
            seen[view, i] = (x * longer + width / 2, y * longer + height / 2)
            words = [name, f"t{i}", 3 * i + view, repr(x), repr(y), "0.004", 9, 8, 7, -1, -1]
            words = {0: [*words[:5], *words[6:9]], 1: words[:9], 2: words}[version]
            lines.append("\t".join(map(str, words)))
    points = {f"t{i}": {"color": [9, 8, 7], "coordinates": p.tolist()} for i, p in enumerate(true.points)}
    best = {"cameras": {"v2 lens": camera}, "shots": shots, "points": points}
    other = {"cameras": {"v2 lens": camera}, "shots": {"x.jpg": shots[NAMES[0]]}, "points": {}}
    path = folder / "reconstruction.json"
    path.write_text(json.dumps([other, best] if version == 1 else [best]))
    lines.append("\t".join([NAMES[0], "unused", "999", *lines[0].split("\t")[3:]]))  # a track that is no point
    header = [f"OPENSFM_TRACKS_VERSION_v{version}"] if version else []
    (folder / "tracks.csv").write_text("\n".join([*header, *lines]) + "\n")
    return path, seen


# --- OpenMVG -----------------------------------------------------------------------------------------------


def openmvg(folder: Path, true: True_, kind: str) -> tuple[Path, Positions]:
    width, height = SIZE
    cx, cy = 505.25, 318.5  # from the centre of the first pixel
    distortion, bend = {
        "pinhole": ({}, lambda x, y: (x, y)),
        "pinhole_radial_k1": ({"disto_k1": [-0.08]}, lambda x, y: brown(x, y, -0.08)),
        "pinhole_radial_k3": (
            {"disto_k3": [-0.08, 0.02, -0.01]}, lambda x, y: brown(x, y, -0.08, 0.02, k3=-0.01)
        ),
        "pinhole_brown_t2": (
            {"disto_t2": [-0.08, 0.02, -0.01, 0.003, -0.002]},
            lambda x, y: brown(x, y, -0.08, 0.02, 0.003, -0.002, -0.01),
        ),
        "fisheye": ({"fisheye": [0.03, -0.01, 0.004, -0.002]}, lambda x, y: fisheye(x, y, 0.03, -0.01, 0.004, -0.002)),
        "spherical": ({}, None),
    }[kind]  # fmt: skip
    data: dict[str, object] = {"width": width, "height": height}
    if kind == "spherical":
        data = {"value0": data}
    else:
        data |= {"focal_length": FOCAL, "principal_point": [cx, cy], **distortion}
    # The type's name stands at its first use; the second lens has its number alone.
    first = {"polymorphic_id": 2147483649, "polymorphic_name": kind, "ptr_wrapper": {"id": 1, "data": data}}
    second = {"polymorphic_id": 1, "ptr_wrapper": {"id": 2, "data": data}}
    intrinsics = [{"key": 4, "value": first}, {"key": 5, "value": second}]
    views, extrinsics, seen = [], [], {}
    for view, name in enumerate((*NAMES, "not posed.jpg")):
        about = {"local_path": "", "filename": name, "width": width, "height": height, "id_view": 10 + view}
        about |= {"id_intrinsic": 4 + view % 2, "id_pose": 20 + view}
        views.append({"key": 10 + view, "value": {"polymorphic_id": 1 << 30, "ptr_wrapper": {"id": 3, "data": about}}})
        if view == len(NAMES):
            continue
        pose = {"rotation": true.rotations[view].tolist(), "center": true.centers[view].tolist()}
        extrinsics.append({"key": 20 + view, "value": pose})
        for i, p in enumerate(true.in_camera(view)):
            if kind == "spherical":
                x, y = around(p)
                seen[view, i] = (x * width + width / 2, y * width + height / 2)
            else:
                x, y = bend(p[0] / p[2], p[1] / p[2])
                seen[view, i] = (FOCAL * x + cx + 0.5, FOCAL * y + cy + 0.5)
    half = 0.0 if kind == "spherical" else 0.5
    structure = [
        {"key": 7 * i, "value": {"X": p.tolist(), "observations": [
            {"key": 10 + v, "value": {"id_feat": 3 * i + v, "x": [seen[v, i][0] - half, seen[v, i][1] - half]}}
            for v in range(len(NAMES))
        ]}}
        for i, p in enumerate(true.points)
    ]  # fmt: skip
    content = {"sfm_data_version": "0.3", "root_path": "/photos", "views": views, "intrinsics": intrinsics}
    path = folder / "sfm_data.json"
    path.write_text(json.dumps({**content, "extrinsics": extrinsics, "structure": structure, "control_points": []}))
    return path, seen


# --- Bundler -----------------------------------------------------------------------------------------------


def bundler(folder: Path, true: True_, kind: str = "") -> tuple[Path, Positions]:
    k1, k2 = -0.09, 0.03
    lines = ["# Bundle file v0.3", f"{len(NAMES) + 1} {len(true.points)}"]
    seen: Positions = {}
    measured = {}
    for view in range(len(NAMES)):
        rotation = FLIP @ true.rotations[view]
        translation = -rotation @ true.centers[view]
        lines += [f"{FOCAL!r} {k1} {k2}", *(" ".join(map(repr, row.tolist())) for row in rotation)]
        lines.append(" ".join(map(repr, translation.tolist())))
        for i, point in enumerate(true.points):
            p = (rotation @ point + translation).tolist()
            x, y = -p[0] / p[2], -p[1] / p[2]
            r2 = x * x + y * y
            factor = FOCAL * (1 + k1 * r2 + k2 * r2 * r2)
            measured[view, i] = (factor * x, factor * y)
            seen[view, i] = (SIZE[0] / 2 + factor * x, SIZE[1] / 2 - factor * y)
    lines += ["0 0 0"] * 5  # of a photo that was not reconstructed
    for i, point in enumerate(true.points):
        views = " ".join(f"{v} {3 * i + v} {measured[v, i][0]!r} {measured[v, i][1]!r}" for v in range(len(NAMES)))
        lines += [" ".join(map(repr, point.tolist())), "9 8 7", f"{len(NAMES)} {views}"]
    (folder / "bundle").mkdir(exist_ok=True)
    path = folder / "bundle" / "bundle.out"
    path.write_text("\n".join(lines) + "\n")
    listed = [f"./images/{name}" for name in (*NAMES, "right/lost.jpg")]
    (folder / "list.txt").write_text("\n".join(f"{n} 0 532.5" if i % 2 else n for i, n in enumerate(listed)) + "\n")
    return path, seen


# --- NVM ---------------------------------------------------------------------------------------------------


def quaternion(rotation: np.ndarray) -> list[float]:
    """w, x, y, z of a rotation of less than half a turn."""
    w = math.sqrt(1 + np.trace(rotation)) / 2
    r = rotation
    return [w, *((r[2, 1] - r[1, 2]) / (4 * w), (r[0, 2] - r[2, 0]) / (4 * w), (r[1, 0] - r[0, 1]) / (4 * w))]


def nvm(folder: Path, true: True_, kind: str) -> tuple[Path, Positions]:
    r = {"plain": 0.0, "bent": -0.06, "spread": 0.08, "fixed": 0.0}[kind]
    fx, cx, fy, cy = (
        (FOCAL, 507.0, 1.02 * FOCAL, 322.5) if kind == "fixed" else (FOCAL, SIZE[0] / 2, FOCAL, SIZE[1] / 2)
    )
    head = f"NVM_V3 FixedK {fx} {cx} {fy} {cy}" if kind == "fixed" else "NVM_V3 "
    lines, seen, measured = [head, "", str(len(NAMES))], {}, {}
    for view, name in enumerate(NAMES):
        numbers = [FOCAL, *quaternion(true.rotations[view]), *true.centers[view].tolist(), r, 0]
        path = f"images/{name}".replace(" ", '"')
        lines.append(f"{path}\t{' '.join(map(repr, map(float, numbers)))}")
        for i, p in enumerate(true.in_camera(view)):
            x, y = p[0] / p[2], p[1] / p[2]
            u = math.hypot(x, y)
            m = u
            for _ in range(60):  # Newton on m (1 + r m^2) = u
                m -= (m + r * m**3 - u) / (1 + 3 * r * m * m)
            measured[view, i] = (fx * x * m / u, fy * y * m / u)
            seen[view, i] = (cx + measured[view, i][0], cy + measured[view, i][1])
    lines += ["", str(len(true.points))]
    for i, point in enumerate(true.points):
        views = " ".join(f"{v} {3 * i + v} {measured[v, i][0]!r} {measured[v, i][1]!r}" for v in range(len(NAMES)))
        lines.append(f"{' '.join(map(repr, point.tolist()))} 9 8 7 {len(NAMES)} {views} ")
    unregistered = f"images/lost.jpg\t{FOCAL} 1 0 0 0 0 0 0 0 0"
    lines += ["", "1", unregistered, "0", "", "0", "", "#the last part of NVM file points to the PLY files", "0"]
    path = folder / "scene.nvm"
    path.write_text("\n".join(lines) + "\n")
    return path, seen


WRITERS = {"transforms": transforms, "opensfm": opensfm, "openmvg": openmvg, "bundler": bundler, "nvm": nvm}
