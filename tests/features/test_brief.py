import hashlib

import jax
import numpy as np

from tests.support.descriptor_reference import fixture_patches, golden, needs_shared
from xdesc_jax.descriptors import pack_bits
from xdesc_jax.features import brief


def loop_brief(patch):
    draws = [int(v * 32 / 5) for v in np.random.RandomState(1).randn(512 * 8)]
    numbers = [v + 15 for v in draws if -15 <= v <= 16][: 4 * 512]
    points = [(numbers[i], numbers[i + 1]) for i in range(0, len(numbers), 2)]
    return [patch[a] < patch[b] for a, b in zip(points[:512], points[512:], strict=True)]


def test_the_pattern_never_changes():
    points = brief.pattern()
    assert points.shape == (2, 512, 2) and points.min() == 0 and points.max() == 31
    digest = hashlib.sha256(points.astype("<i4").tobytes()).hexdigest()
    assert digest == "398a9f4c41c8649768d7e264f3301b5650c13dac2d87af1f40c3c65bcf39efe5"


def test_golden_bits():
    bits = np.asarray(jax.jit(brief.describe)(golden("patches")))
    np.testing.assert_array_equal(pack_bits(bits), golden("brief"))


def test_equals_a_loop_over_pairs():
    patches = np.random.default_rng(3).integers(0, 9, (3, 32, 32)).astype(np.float32)  # many equal pixels
    np.testing.assert_array_equal(brief.describe(patches), [loop_brief(p) for p in patches])


@needs_shared
def test_equals_a_loop_over_pairs_on_the_reference_patches():
    patches = fixture_patches()
    np.testing.assert_array_equal(brief.describe(patches), [loop_brief(p) for p in patches])


def test_a_flat_patch_gives_no_bit():
    assert not brief.describe(np.full((1, 32, 32), 0.7, np.float32)).any()


def test_brightness_and_contrast_do_not_matter():
    gray = np.random.default_rng(0).integers(20, 200, (3, 32, 32)).astype(np.float32)
    np.testing.assert_array_equal(brief.describe(gray / 255), brief.describe((gray + 10) / 255))
    np.testing.assert_array_equal(brief.describe(gray / 255), brief.describe(gray))
