import jax
import numpy as np
import pytest

from tests.support.descriptor_reference import TFEAT, convolve, fixture, fixture_patches, golden, needs_shared
from xdesc_jax.features import tfeat


def random_arrays(seed=0):
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in tfeat.SHAPES.items():
        fan_in = np.prod(shape[1:]) if len(shape) > 1 else 10
        arrays[name] = (rng.normal(size=shape) / np.sqrt(fan_in)).astype(np.float32)
    return arrays


def numpy_tfeat(a, patches):
    x = patches[:, None].astype(np.float64)
    x = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    x = np.tanh(convolve(x, a["features.1.weight"]) + a["features.1.bias"][:, None, None])
    x = np.maximum(x[:, :, ::2], x[:, :, 1::2])
    x = np.maximum(x[..., ::2], x[..., 1::2])
    x = np.tanh(convolve(x, a["features.4.weight"]) + a["features.4.bias"][:, None, None])
    return np.tanh(x.reshape(len(x), -1) @ a["descr.0.weight"].T + a["descr.0.bias"])


def test_equals_a_numpy_forward_pass(tmp_path):
    arrays = random_arrays()
    np.savez(tmp_path / "tfeat.npz", **arrays)
    patches = golden("patches")
    rows = jax.jit(tfeat.describe)(tfeat.load(tmp_path / "tfeat.npz"), patches)
    np.testing.assert_allclose(rows, numpy_tfeat(arrays, patches), rtol=0, atol=1e-5)


@needs_shared
def test_equals_the_reference_with_the_published_weights():
    rows = jax.jit(tfeat.describe)(tfeat.load(TFEAT), fixture_patches())
    np.testing.assert_allclose(rows, fixture("tfeat_out"), rtol=0, atol=1e-5)


def test_a_file_of_another_network_is_refused(tmp_path):
    arrays = random_arrays()
    arrays["descr.1.weight"] = arrays.pop("descr.0.weight")
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(ValueError, match=r"other.npz: .*missing 'descr.0.weight'; unexpected 'descr.1.weight'"):
        tfeat.load(tmp_path / "other.npz")
