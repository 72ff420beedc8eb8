import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.support.descriptor_reference import FIXTURES, convolve, fixture, fixture_patches, golden, needs_shared
from xdesc_jax.features import l2net

NAMES = {"hardnet": l2net.HARDNET_NAMES, "sosnet": l2net.SOSNET_NAMES}
DESCRIBE = {"hardnet": l2net.describe_hardnet, "sosnet": l2net.describe_sosnet}
LOAD = {"hardnet": l2net.load_hardnet, "sosnet": l2net.load_sosnet}


def random_arrays(kind, dtype=np.float32):
    """Weights and batch normalisation statistics under the names of the authors' checkpoints."""
    rng = np.random.default_rng(0)
    arrays = {}
    for (convolution, normalisation), n in zip(NAMES[kind], l2net.LAYERS, strict=True):
        shape = (n.outputs, n.inputs, n.size, n.size)
        arrays[f"{convolution}.weight"] = rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))
        arrays[f"{normalisation}.running_mean"] = rng.normal(size=n.outputs) * 0.1
        arrays[f"{normalisation}.running_var"] = rng.uniform(0.5, 1.5, n.outputs)
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    return arrays | {f"{name}.num_batches_tracked": np.int64(7) for _, name in NAMES[kind]}


def numpy_l2net(kind, a, patches):
    """The inference pass in float64, channels first."""
    x = patches[:, None].astype(np.float64)
    mean, count = x.mean((2, 3), keepdims=True), x[0].size
    variance = ((x - mean) ** 2).sum((2, 3), keepdims=True) / (count - 1 if kind == "hardnet" else count)
    x = (x - mean) / (np.sqrt(variance) + 1e-6 if kind == "hardnet" else np.sqrt(variance + 1e-5))
    for i, (convolution, normalisation) in enumerate(NAMES[kind]):
        x = convolve(x, a[f"{convolution}.weight"], stride=2 if i in (2, 4) else 1, padding=0 if i == 6 else 1)
        mean, variance = (a[f"{normalisation}.running_{s}"][:, None, None] for s in ("mean", "var"))
        x = (x - mean) / np.sqrt(variance.astype(np.float64) + 1e-5)
        x = x if i == 6 else np.maximum(x, 0)
    x = x.reshape(len(x), -1)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def net():
    return l2net.init(jax.random.key(0))


@pytest.mark.parametrize("kind", NAMES)
def test_equals_a_numpy_forward_pass(kind, tmp_path):
    arrays = random_arrays(kind)
    np.savez(tmp_path / "w.npz", **arrays)
    patches = golden("patches")[1:]  # an odd number, with the flat patch and the step edge
    rows = jax.jit(DESCRIBE[kind])(LOAD[kind](tmp_path / "w.npz"), patches)
    np.testing.assert_allclose(rows, numpy_l2net(kind, arrays, patches), rtol=0, atol=2e-6)


@needs_shared
@pytest.mark.parametrize("kind", NAMES)
def test_equals_the_reference(kind):
    rows = jax.jit(DESCRIBE[kind])(LOAD[kind](FIXTURES, prefix=f"{kind}."), fixture_patches())
    np.testing.assert_allclose(rows, fixture(f"{kind}_out"), rtol=0, atol=2e-6)


# --- Training --------------------------------------------------------------------------------------------

jitted_train = jax.jit(l2net.apply_train, static_argnames=("axis_name",))


def keys(count, seed=1):
    return jax.random.split(jax.random.key(seed), count)


@pytest.fixture(scope="module")
def patches():
    x = np.random.default_rng(1).random((8, 32, 32)).astype(np.float32)
    return l2net.normalize_hardnet(jnp.asarray(x))


@pytest.fixture(scope="module")
def trained(net, patches):
    return jitted_train(net.kernels, patches, keys(8), dropout=0.0)


def test_initial_parameters_have_their_shapes_and_scale(net):
    assert [k.shape for k in net.kernels] == [(n.size, n.size, n.inputs, n.outputs) for n in l2net.LAYERS]
    assert np.var(net.kernels[5]) == pytest.approx(2 / (9 * 128), rel=0.02)
    assert {s.mean.shape for s in net.statistics} == {(32,), (64,), (128,)}


@pytest.mark.parametrize(("shape", "size", "stride", "padding"), [((9, 7, 3), 3, 1, 1), ((9, 8, 3), 3, 2, 1),
                                                                   ((8, 8, 2), 8, 1, 0)])  # fmt: skip
def test_both_convolutions_agree_in_value_and_gradient(shape, size, stride, padding):
    rng = np.random.default_rng(4)
    x = jnp.asarray(rng.normal(size=(3, *shape)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(size, size, shape[-1], 5)), jnp.float32)

    def both(convolution):
        rows, pull = jax.vjp(lambda x, k: convolution(x, k, stride, padding), x, kernel)
        return rows, pull(jnp.cos(rows))

    expected, found = both(l2net.convolve), both(l2net.convolve_columns)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), found, expected)


def test_batch_statistics_are_those_of_numpy(net, patches, trained):
    first = convolve(np.asarray(patches)[:, None], np.transpose(net.kernels[0], (3, 2, 0, 1)), padding=1)
    seen = trained[1][0]
    np.testing.assert_allclose(seen.mean, first.mean((0, 2, 3)), atol=1e-6)
    np.testing.assert_allclose(seen.variance, first.var((0, 2, 3)), rtol=1e-5)


def test_training_normalises_the_output_over_the_batch(trained):
    rows = np.asarray(trained[0])
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(rows.std(0), 1, atol=1e-2)


def test_inference_with_the_batch_statistics_equals_training(net, patches, trained):
    rows, seen = trained
    inferred = jax.jit(l2net.apply)(l2net.L2Net(net.kernels, seen), patches)
    np.testing.assert_allclose(inferred, rows, atol=1e-4)


def test_a_batch_spread_over_devices_gives_the_same_rows_and_statistics(net, patches, trained):
    def share(x, own):
        return l2net.apply_train(net.kernels, x, own, dropout=0.0, axis_name="devices")

    rows, seen = jax.jit(jax.vmap(share, axis_name="devices"))(patches.reshape(4, 2, 32, 32), keys(8).reshape(4, 2))
    np.testing.assert_allclose(rows.reshape(8, 128), trained[0], atol=1e-4)
    for device in range(4):
        jax.tree.map(lambda a, b, d=device: np.testing.assert_allclose(a[d], b, atol=1e-5), seen, trained[1])


def test_padding_does_not_count(net, patches, trained):
    padded = jnp.concatenate([patches, jnp.ones((3, 32, 32))])
    mask = jnp.arange(11) < 8
    rows, seen = jitted_train(net.kernels, padded, keys(11), mask=mask, dropout=0.0)
    np.testing.assert_allclose(rows[:8], trained[0], atol=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), seen, trained[1])


def test_running_statistics_move_by_a_tenth(net, trained):
    moved = l2net.update(net.statistics, trained[1])
    np.testing.assert_allclose(moved[3].mean, 0.1 * trained[1][3].mean, rtol=1e-6)
    np.testing.assert_allclose(moved[3].variance, 0.9 + 0.1 * trained[1][3].variance, rtol=1e-6)


def test_dropout_drops_its_share_and_keeps_the_mean():
    dropped = np.asarray(l2net._drop(jnp.ones((100, 100)), keys(100), 0.3))
    assert (dropped == 0).mean() == pytest.approx(0.3, abs=0.02)
    assert dropped.mean() == pytest.approx(1, abs=0.03)


def test_dropout_depends_on_the_key_alone(net, patches, trained):
    first, again, other = (jitted_train(net.kernels, patches, keys(8, k), dropout=0.3)[0] for k in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1 and np.abs(first - trained[0]).max() > 0.1


def test_gradients_are_finite_with_flat_patches(net):
    flat = jnp.asarray(golden("patches"))[-3:]

    @jax.jit
    @jax.grad
    def gradient(kernels):
        rows, _ = l2net.apply_train(kernels, l2net.normalize_hardnet(flat), keys(3))
        return l2net.unit_hardnet(rows)[:, ::2].sum()

    for kernel in gradient(net.kernels):
        assert np.isfinite(kernel).all() and np.abs(kernel).max() > 0


# --- Weight files ----------------------------------------------------------------------------------------


def test_float16_safetensors_are_read_as_float32(tmp_path):
    arrays = random_arrays("hardnet", np.float16)
    safetensors.numpy.save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, tmp_path / "w.safetensors")
    net = l2net.load_hardnet(tmp_path / "w.safetensors")
    assert {leaf.dtype for leaf in jax.tree.leaves(net)} == {jnp.dtype(jnp.float32)}
    expected = np.float32(arrays["features.6.weight"]).transpose(2, 3, 1, 0)
    np.testing.assert_array_equal(net.kernels[2], expected)


def test_a_sosnet_file_is_refused_as_hardnet(tmp_path):
    np.savez(tmp_path / "sosnet.npz", **random_arrays("sosnet"))
    with pytest.raises(ValueError, match=r"sosnet.npz: .* missing 'features.0.weight', .* 'layers.1.weight'"):
        l2net.load_hardnet(tmp_path / "sosnet.npz")


@pytest.mark.parametrize("kind", NAMES)
def test_weights_are_written_as_they_are_read_and_read_whatever_the_network(kind, tmp_path):
    arrays = {n: a for n, a in random_arrays(kind).items() if not n.endswith("num_batches_tracked")}
    np.savez(tmp_path / "w.npz", **arrays)
    written = l2net.arrays_of(l2net.load_either(tmp_path / "w.npz"), NAMES[kind])
    assert written.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(written[name], array)


def test_a_wrong_shape_is_named(tmp_path):
    arrays = random_arrays("sosnet")
    arrays["layers.20.weight"] = arrays["layers.20.weight"][..., :7]
    np.savez(tmp_path / "w.npz", **arrays)
    with pytest.raises(
        ValueError, match=r"'layers.20.weight' has shape \(128, 128, 8, 7\), expected \(128, 128, 8, 8\)"
    ):
        l2net.load_sosnet(tmp_path / "w.npz")


def test_a_negative_variance_is_refused(tmp_path):
    arrays = random_arrays("hardnet")
    arrays["features.4.running_var"][3] = -0.1
    np.savez(tmp_path / "w.npz", **arrays)
    with pytest.raises(ValueError, match="w.npz: 'features.4.running_var' holds a negative value"):
        l2net.load_hardnet(tmp_path / "w.npz")
