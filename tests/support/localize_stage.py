"""The stage `xdesc localize` in the synthetic place, and whether its poses are the true ones."""

import json

import numpy as np

from xdesc_jax.cli import main
from xdesc_jax.colmap.lists import read_poses


def run(place, out, queries, *words, features="own-a"):
    """Exit status of the stage with the map of one descriptor."""
    given = ["localize", place.model, out, "--features", place.features[features], "--queries", queries, *words]
    return main([str(word) for word in given])


def results(out):
    return json.loads((out / "results.json").read_text())


def check_exact(place, out):
    poses = read_poses(out / "poses.txt")
    assert list(poses) == place.queries
    for name, pose in poses.items():
        np.testing.assert_allclose(pose.rotation, place.poses[name].rotation, atol=1e-5)
        np.testing.assert_allclose(pose.center, place.poses[name].center, atol=1e-4)
