"""What networks are told of a keypoint's frame, and which are."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.networks import frames, mlp

TURNED, UPRIGHT, OTHER = DescriptorSpec("a", 5), DescriptorSpec("b", 4, frame="image"), DescriptorSpec("c", 6)
SPECS = {spec.name: spec for spec in (TURNED, UPRIGHT, OTHER)}


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_a_frame_becomes_harmonics_of_its_angle_and_the_logarithm_of_its_sigma(xp):
    given = np.array([[1.7, 0.4], [12.0, -2.9], [0.5, 3.1]], np.float32)
    found = np.asarray(frames.encode(xp.asarray(given), 3, xp))
    expected = [
        [math.cos(k * a) for k in (1, 2, 3)] + [math.sin(k * a) for k in (1, 2, 3)] + [(math.log2(s) - 1.5) / 2]
        for s, a in given.tolist()
    ]
    assert found.dtype == np.float32 and found.shape == (3, frames.width(3))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_networks_between_the_two_frames_are_told_it_and_no_others():
    def taking(space, names):
        return {name for name in names if frames.takes_frames(name, SPECS, space)}

    both = [f"{role}/{name}" for role in ("encoder", "decoder") for name in SPECS]
    assert taking("image", both) == {"encoder/a", "decoder/a", "encoder/c", "decoder/c"}
    assert taking("keypoint", both) == set()
    pairs = [f"pair/{s}/{t}" for s in SPECS for t in SPECS if s != t]
    assert taking("image", pairs) == {"pair/a/b", "pair/b/a", "pair/c/b", "pair/b/c"}


def test_a_model_is_of_frame_image_where_a_descriptor_is():
    assert frames.space_of({"a": TURNED, "c": OTHER}) == "keypoint"
    assert frames.space_of(SPECS) == "image" and frames.space_of({"a": TURNED}, "image") == "image"
    with pytest.raises(ValueError, match=r"'b' sees photos as they lie .* is of frame 'keypoint'"):
        mlp.build_networks(SPECS, ModelConfig(frame="keypoint"))


def test_widths_of_inputs_count_the_frame():
    networks = mlp.build_networks(SPECS, ModelConfig(embedding_width=7, harmonics=2))
    assert networks.frame == "image"
    found = {name: networks.input_widths[name] for name in networks.modules}
    assert found == {
        "encoder/a": 5 + 5, "decoder/a": 7 + 5, "encoder/b": 4, "decoder/b": 7, "encoder/c": 6 + 5, "decoder/c": 7 + 5,
    }  # fmt: skip


def test_of_several_sources_each_row_gets_the_frame_of_its_keypoint():
    """The rows of one source stand behind those of another, as a decoder takes them."""
    networks = mlp.build_networks(SPECS, ModelConfig(embedding_width=7, harmonics=2))
    seen = jnp.asarray([[1.0, 0.1], [2.0, 0.2], [4.0, 0.3]])
    found = np.asarray(mlp.with_frames(networks, "decoder/a", jnp.zeros((6, 7)), seen))
    np.testing.assert_allclose(found[:, -1], [-0.75, -0.25, 0.25] * 2, atol=1e-6)
    np.testing.assert_allclose(found[:, 7], np.cos([0.1, 0.2, 0.3] * 2), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.ones((3, 2)), r"shape \(3, 2\), expected \(4, 2\)"),
        (np.array([[1, 0], [1, 0], [0, 0], [1, 0]]), r"keypoint 2 is \[0.0, 0.0\], expected a sigma over 0"),
        (np.array([[1, 0], [1, np.nan], [2, 0], [1, 0]]), r"keypoint 1 is \[1.0, nan\]"),
        (np.array([[1, 0], [1, 3], [2, 0], [1, 271]]), r"orientation of keypoint 3 is 271, expected radians: are they"),
    ],
)
def test_what_cannot_be_a_frame_is_refused_with_its_keypoint(given, told):
    with pytest.raises(ValueError, match=rf"^photo.jpg: .*{told}"):
        frames.check(given, 4, "photo.jpg")
