"""Frames as files and libraries write them down, and that they turn with the photo."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.framed_translators import HARMONICS, SPECS, WIDTH
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features import frames
from xdesc_jax.features.keypoints import Keypoints, detect_colmap, similarity, to_colmap
from xdesc_jax.features.store import ImageFeatures
from xdesc_jax.networks.frames import width
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.translator import Translator

cv2 = pytest.importorskip("cv2", reason="needs the features extra")

from tests.support.textures import texture  # noqa: E402

SCALES, ORIS = np.array([0.7, 2.5, 9.0], np.float32), np.array([0.3, -3.0, 1.9], np.float32)
FRAMES = np.stack([SCALES, ORIS], axis=1)


def features(**shape):
    return ImageFeatures(np.zeros((3, 2)), np.zeros((3, 4)), np.ones(3, bool), (9, 9), **shape)


def test_scales_and_orientations_or_a_shape_are_a_frame():
    np.testing.assert_array_equal(frames.of_features(features(scales=SCALES, oris=ORIS)), FRAMES)
    turned = similarity(SCALES, ORIS).astype(np.float32)
    np.testing.assert_allclose(frames.of_features(features(affine=turned)), FRAMES, atol=1e-5)
    assert frames.of_features(features(scales=SCALES)) is None and frames.of_features(features()) is None


def test_columns_of_colmap_are_read_as_colmap_means_them():
    points = Keypoints(np.ones((3, 2)), SCALES, ORIS)
    np.testing.assert_allclose(frames.of_colmap(to_colmap(points)), FRAMES, atol=1e-5)
    four = np.column_stack([np.ones((3, 2)), FRAMES]).astype(np.float32)
    np.testing.assert_array_equal(frames.of_colmap(four), FRAMES)


@pytest.mark.parametrize(
    "columns", [np.ones((3, 2)), np.tile([5, 6, 1, 0], (3, 1)), np.tile([5, 6, 1, 0, 0, 1], (3, 1))]
)
def test_keypoints_of_which_colmap_says_nothing_have_none(columns):
    assert frames.of_colmap(columns.astype(np.float32)) is None


def test_opencv_counts_diameters_and_degrees():
    np.testing.assert_allclose(frames.of_opencv(2 * SCALES, np.rad2deg(ORIS)), FRAMES, atol=1e-6)
    np.testing.assert_allclose(frames.of_opencv(18 * SCALES, np.rad2deg(ORIS), frames.ORB_SIGMAS), FRAMES, atol=1e-6)


def quarter(xy, height):
    """Positions in the photo turned a quarter clockwise: (x, y) -> (H - 1 - y, x)."""
    return np.stack([height - 1 - xy[:, 1], xy[:, 0]], axis=1)


def colmap(gray):
    points, rows = detect_colmap(np.repeat(gray[:, :, None], 3, axis=2))
    return points.xy, np.stack([points.scales, points.oris], axis=1), rows / 512


def opencv(gray):
    found, rows = cv2.SIFT.create().detectAndCompute(gray, None)
    xy = np.array([k.pt for k in found], np.float32)
    return xy, frames.of_opencv(np.array([k.size for k in found]), np.array([k.angle for k in found])), rows / 512


@pytest.mark.parametrize("detect", [colmap, opencv], ids=["colmap", "opencv"])
def test_embeddings_follow_a_photo_that_is_turned(detect):
    """A keypoint of the turned photo has the row that it had and a frame turned by 90 degrees, and so its embedding is
    that of the first photo's row with its frame turned by 90 degrees; with the frame as it was, it is another."""
    gray = texture(90, 120, seed=3)
    (xy, before, x), (turned_xy, after, y) = detect(gray), detect(np.ascontiguousarray(np.rot90(gray, -1)))
    apart = np.linalg.norm(quarter(xy, 90)[:, None] - turned_xy[None], axis=2)
    turn = before[:, None, 1] + np.pi / 2 - after[None, :, 1]
    apart = apart + 5 * np.abs(np.angle(np.exp(1j * turn))) + np.abs(np.log(before[:, None, 0] / after[None, :, 0]))
    near = apart.argmin(axis=1)
    same = apart.min(axis=1) < 0.9  # OpenCV puts keypoints of a doubled photo a quarter of a pixel off
    assert same.sum() > 20 and same.mean() > 0.5
    sift = DescriptorSpec("turned", 128, output="relu")
    rng = np.random.default_rng(0)
    encoder = [(rng.normal(0, 0.3, (128 + width(HARMONICS), WIDTH)).astype(np.float32), np.zeros(WIDTH, np.float32))]
    bundle = Bundle(
        "encoder_decoder", {"turned": sift, "upright": SPECS["upright"]}, WIDTH, {"encoder/turned": encoder},
        frame="image", harmonics=HARMONICS,
    )  # fmt: skip

    def embedded(rows, seen):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return Translator(bundle).embed(unit.astype(np.float32), "turned", frames=seen)

    wanted = embedded(y[near[same]], after[near[same]])
    by_turning = before[same] + np.array([0, np.pi / 2], np.float32)
    by_turning[:, 1] = np.angle(np.exp(1j * by_turning[:, 1]))
    follows = (embedded(x[same], by_turning) * wanted).sum(axis=1)
    stays = (embedded(x[same], before[same]) * wanted).sum(axis=1)
    assert np.median(follows) > 0.99 and np.median(stays) < 0.7
