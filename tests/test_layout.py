"""The tower: which folder may import which, who owns a package, and how large folders and files may be."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.root import ROOT

PACKAGE = ROOT / "xdesc_jax"
# From the ground up. A folder, or a module of the root, imports from floors below its own alone, also inside
# functions and for types. `__main__` and the face of the package, `__init__`, stand outside.
TOWER = [
    {"console", "plugins"},
    {"descriptors", "files"},
    {"config", "pretrained", "colmap", "reports"},
    {"networks"},
    {"features"},
    {"translation"},
    {"matching"},
    {"evaluate", "localization"},
    {"inspection", "mapping"},
    {"integrations"},
    {"evaluate/benchmarks"},
    {"data"},
    {"train"},
    {"train/descriptors", "train/translators"},
    {"export", "sweep"},
    {"command_line"},
    {"cli"},
]
OWNERS = {
    "tensorflow": ("data/",),
    "tensorflow_datasets": ("data/",),
    "apache_beam": ("data/beam.py", "data/beam_steps.py"),
    "orbax": ("train/checkpoint.py",),
    "pycolmap": ("colmap/bindings/api.py",),
    "h5py": ("files/hdf5.py", "features/store.py", "matching/matches.py"),
    "safetensors": ("translation/bundle.py", "features/weights.py", "files/tensors.py"),
    "platformdirs": ("features/official.py",),
    "torch": ("files/pytorch.py", "features/extractors/", "integrations/hloc/contract.py"),
    "hloc": ("integrations/hloc/contract.py",),
    "kornia": ("features/extractors/",),
    "poselib": ("evaluate/relative_ransac.py",),
    "huggingface_hub": ("pretrained/hub.py",),
    "onnx": ("export/onnx_format.py",),
    "onnxruntime": ("export/onnx_format.py",),
    "tensorboardX": ("train/log.py",),
    "matplotlib": (
        "reports/chart.py",
        "evaluate/drawing.py",
        "evaluate/benchmarks/drawing.py",
        "evaluate/map_drawing.py",
        "inspection/match_drawing.py",
        "inspection/query_drawing.py",
    ),
    "sklearn": ("evaluate/benchmarks/joint_space.py",),
    "pyarrow": ("sweep/results.py",),
    "jinja2": ("reports/page.py",),
    "plotly": ("sweep/drawing.py",),
}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    names = {p: ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for p in files()}
    return {name: path for path, name in names.items()}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imported(path: Path) -> set[str]:
    """Dotted names of all that a file imports anywhere; of `from a import b` both a and a.b."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(module: str) -> str | None:
    """The part of the tower that a module belongs to; None for the package's face."""
    parts = module.split(".")[1:]
    if not parts or parts == ["__main__"]:
        return None
    nested = "/".join(parts[:2])
    return nested if any(nested in floor for floor in TOWER) else parts[0]


def links() -> dict[str, set[str]]:
    """Which modules of the package each one imports."""
    known = modules()
    return {name: (imported(path) & known.keys()) - {"xdesc_jax", name} for name, path in known.items()}


def test_a_folder_imports_from_floors_below_its_own_alone():
    floors = {name: number for number, floor in enumerate(TOWER) for name in floor}
    upward = []
    for module, others in links().items():
        here = room(module)
        if here is None:
            continue
        assert here in floors, f"{module}: {here!r} has no floor in TOWER"
        for other in others:
            there = room(other)
            if there != here and floors[there] >= floors[here]:
                upward.append(f"{module} -> {other}")
    assert upward == []


def test_no_module_imports_itself_through_others():
    graph = links()
    reached: dict[str, set[str]] = defaultdict(set)
    for start in graph:
        stack = list(graph[start])
        while stack:
            name = stack.pop()
            if name not in reached[start]:
                reached[start].add(name)
                stack += graph[name]
    assert sorted(name for name in graph if name in reached[name]) == []


def test_the_root_and_the_folders_can_be_taken_in_at_a_glance():
    assert len(list(PACKAGE.glob("*.py"))) <= 6
    sizes = {str(d.relative_to(ROOT)): len(list(d.glob("*.py"))) for d in PACKAGE.rglob("*") if d.is_dir()}
    assert {name: n for name, n in sizes.items() if n > 25} == {}


@pytest.mark.parametrize("package", OWNERS)
def test_one_part_owns_a_package(package):
    users = {str(p.relative_to(PACKAGE)) for p in files() if package in {name.split(".")[0] for name in imported(p)}}
    assert users, f"nothing imports {package}"
    assert {user for user in users if not user.startswith(OWNERS[package])} == set()


def test_one_module_says_pmap_or_mesh():
    for path in files():
        attributes = {n.attr for n in nodes(path) if isinstance(n, ast.Attribute)}
        names = attributes | {n.id for n in nodes(path) if isinstance(n, ast.Name)}
        assert path.match("train/parallel.py") or not names & {"pmap", "Mesh", "NamedSharding"}, path


def test_what_is_private_to_jax_is_left_alone():
    for path in [*files(), *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        private = [n for n in imported(path) if n.startswith(("jax.", "jaxlib.")) and "._" in n]
        assert not private, f"{path}: {private}"
        attributes = {ast.unparse(n) for n in nodes(path) if isinstance(n, ast.Attribute) and n.attr == "_src"}
        assert "jax._src" not in attributes, path


def test_files_stay_short():
    lengths = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in files()}
    assert {name: n for name, n in lengths.items() if n > 400} == {}
