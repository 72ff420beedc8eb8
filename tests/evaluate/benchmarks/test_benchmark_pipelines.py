"""A file in `pipelines/` a benchmark, with the paper's choices. What a benchmark does is put in by the test."""

import importlib
import inspect
from pathlib import Path

import pytest

from xdesc_jax.command_line import ablations as command
from xdesc_jax.evaluate.benchmarks import ablations
from xdesc_jax.evaluate.benchmarks.registry import BENCHMARKS

FOUR = ("brief", "sift", "hardnet-xdesc", "sosnet-xdesc")
NETVLAD = {"descriptors": FOUR, "model": Path("colmap"), "keypoints": "colmap"}
# Benchmark -> its pipeline, and what of the benchmark's settings the paper says.
CHOICES = {
    "hpatches-patches": ("hpatches_patches", {"descriptors": FOUR, "split": "full", "pairs": 1_000_000}),
    "hpatches-sequences": ("hpatches_sequences", {"descriptors": FOUR, "keypoints": "colmap"}),
    "image-matching-challenge": (
        "image_matching",
        {"descriptors": FOUR, "keypoints": "opencv", "max_keypoints": 2048, "runs": 3, "tune_on": "reichstag"},
    ),
    "local-feature-evaluation": ("local_features", {**NETVLAD, "ratio": 0.9, "truth": "sosnet-xdesc"}),
    "aachen": ("aachen", {**NETVLAD, "neighbors": 20, "retrieval": 50}),
    "aachen-embedding-size": (
        "embedding_size",
        {"descriptors": FOUR, "query": "sosnet-xdesc", "neighbors": 20, "retrieval": 50},
    ),
    "inloc": ("inloc", {**NETVLAD, "retrieval": 10}),
    "ablations": ("ablations", {"descriptors": FOUR, "training": Path("paper"), "settings": ()}),
    "joint-space": ("joint_space", {"patches": 512, "plotted": 128}),
    "relative-pose": ("relative_pose", {}),
    "cross": ("cross", {"model": Path("mixed")}),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_benchmark_has_a_pipeline_with_the_papers_choices(name, monkeypatch):
    of_pipeline, choices = CHOICES[name]
    module = importlib.import_module(f"pipelines.{of_pipeline}")
    stage = "run_sizes" if name == "aachen-embedding-size" else "run"
    signature, given = inspect.signature(getattr(module.benchmark, stage)), {}
    monkeypatch.setattr(module.benchmark, stage, lambda **settings: given.update(settings))
    function = getattr(module, of_pipeline)
    needed = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    function(**{key: Path(key) for key in needed})
    bound = signature.bind(**given)
    bound.apply_defaults()
    assert bound.arguments["data"] == Path("data") and bound.arguments["out"] == Path("out")
    assert {key: bound.arguments[key] for key in choices} == choices


def test_pipelines_take_the_ablations_trainings_by_the_folders_they_lie_in():
    from pipelines import embedding_size, joint_space

    folders = {name.replace(" ", "-") for name in ablations.settings(command.DESCRIPTORS)}
    assert {*embedding_size.SETTINGS, joint_space.WITH, joint_space.WITHOUT} <= folders
