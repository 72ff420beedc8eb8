import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.features.test_l2net import random_arrays as l2net_arrays
from tests.features.test_tfeat import random_arrays as tfeat_arrays
from xdesc_jax import descriptors, pretrained
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, pack_bits, register
from xdesc_jax.features import brief, describe, sift
from xdesc_jax.features.weights import write_arrays

NAMES = ("brief", "sift", "sift-kornia05", "hardnet", "sosnet", "tfeat", "hardnet-xdesc")


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is forgotten behind it."""
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(describe, "BATCH", 8)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    arrays = {"hardnet": l2net_arrays("hardnet"), "sosnet": l2net_arrays("sosnet"), "tfeat": tfeat_arrays()}
    for name, content in arrays.items():
        np.savez(folder / f"{name}.npz", **content)
    paths = {name: folder / f"{name}.npz" for name in arrays}
    return paths | {"hardnet-xdesc": paths["hardnet"]}


@pytest.fixture(scope="module")
def patches():
    x = np.random.default_rng(0).integers(0, 256, (13, 32, 32), dtype=np.uint8)
    x[3], x[4], x[5] = 0, 255, 77  # flat ones
    return x


def mean_rows(patches):
    """An own descriptor: mean gray of each row of pixels."""
    return jnp.mean(patches, axis=2)


def test_all_descriptors_in_their_stored_form(patches, weights):
    rows = describe.describe_patches(NAMES, patches, weights)
    assert list(rows) == list(NAMES)
    for name, found in rows.items():
        spec = descriptors.get_spec(name)
        assert found.shape == (13, spec.stored_width) and found.dtype == spec.stored_dtype
        assert np.isfinite(found).all()
        if spec.normalized:
            norms = np.linalg.norm(found, axis=1)
            flat = [3, 4, 5] if name == "sift" else []
            np.testing.assert_allclose(norms[flat], 0)
            np.testing.assert_allclose(np.delete(norms, flat), 1, atol=1e-5)


def test_rows_equal_the_functions_they_come_from(patches):
    rows = describe.describe_patches(["brief", "sift"], patches)
    np.testing.assert_array_equal(rows["brief"], pack_bits(np.asarray(brief.describe(patches.astype(np.float32)))))
    np.testing.assert_allclose(rows["sift"], sift.describe(patches.astype(np.float32) / 255), atol=1e-6)


def test_permuted_patches_give_permuted_rows(patches, weights):
    order = np.random.default_rng(1).permutation(len(patches))
    rows = describe.describe_patches(NAMES, patches, weights)
    permuted = describe.describe_patches(NAMES, patches[order], weights)
    for name in NAMES:
        np.testing.assert_allclose(permuted[name], rows[name][order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("count", [1, 7, 8, 9])
def test_any_number_of_patches_gives_the_same_rows(patches, count):
    rows = describe.describe_patches(["brief", "sift"], patches)
    some = describe.describe_patches(["brief", "sift"], patches[:count])
    for name in rows:
        np.testing.assert_allclose(some[name], rows[name][:count], rtol=0, atol=1e-6)


def test_no_patches_give_no_rows():
    rows = describe.describe_patches(["brief", "sift"], np.empty((0, 32, 32), np.uint8))
    assert rows["brief"].shape == (0, 64) and rows["brief"].dtype == np.uint8
    assert rows["sift"].shape == (0, 128) and rows["sift"].dtype == np.float32


def test_photos_of_any_size_share_one_compilation(patches):
    traced = []

    def own(x):
        traced.append(x.shape)
        return mean_rows(x)

    register(DescriptorSpec("own", 32, normalized=False), own)
    for count in (3, 8, 13):
        describe.describe_patches(["own"], patches[:count])
    assert set(traced) == {(8, 32, 32)} and len(traced) == 2  # once for its shape, once to compile


def test_no_descriptor_relies_on_rank_promotion(patches, weights):
    with jax.numpy_rank_promotion("raise"):
        for name in NAMES:
            jax.eval_shape(describe.describer(name, weights.get(name)), jnp.zeros((3, 32, 32)))


def test_the_function_runs_inside_a_jitted_step_as_its_argument(patches, weights):
    x = patches.astype(np.float32) / 255
    function = describe.describer("hardnet", weights["hardnet"])
    rows = jax.jit(lambda f, p: f(p))(function, x)
    expected = describe.describe_patches(["hardnet"], patches, weights)["hardnet"]
    np.testing.assert_allclose(rows, expected, atol=2e-6)
    assert sum(leaf.size for leaf in jax.tree.leaves(function)) == 1_334_560 + 2 * 576


# --- Where weights come from -----------------------------------------------------------------------------


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """An empty folder of shipped files."""
    (tmp_path / "shipped").mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "shipped")
    return tmp_path / "shipped"


def ship(folder, name):
    write_arrays(folder / f"{name}.safetensors", l2net_arrays(name.removesuffix("-xdesc")), {})
    texts = dict.fromkeys(("keypoints", "data", "hardware", "date", "config_hash", "command"), "-")
    card = {"name": name, "kind": "weights", "descriptors": [name], "pairs": 1, "steps": 1, "figures": {}, **texts}
    (folder / f"{name}.json").write_text(json.dumps(card))
    return folder / f"{name}.safetensors"


@pytest.mark.parametrize("name", ["hardnet-xdesc", "sosnet-xdesc"])
def test_weights_that_ship_are_used_without_being_given(name, patches, shipped):
    file = ship(shipped, name)
    assert describe.weight_file(name) == file
    found = describe.describe_patches([name], patches)[name]
    np.testing.assert_array_equal(found, describe.describe_patches([name], patches, {name: file})[name])


def test_our_own_weights_never_stand_in_for_the_published(shipped):
    ship(shipped, "hardnet-xdesc")
    with pytest.raises(ValueError, match="'hardnet' means the official weights"):
        describe.weight_file("hardnet")


def test_a_given_file_comes_before_the_shipped_one(patches, shipped, weights):
    ship(shipped, "hardnet-xdesc")
    assert describe.weight_file("hardnet-xdesc", weights["hardnet"]) == weights["hardnet"]


def test_installed_weights_are_used_without_being_given(patches, weights, tmp_path, monkeypatch):
    monkeypatch.setenv("XDESC_DATA", str(tmp_path))
    (tmp_path / "weights").mkdir()
    write_arrays(tmp_path / "weights/tfeat.safetensors", tfeat_arrays(), {})
    found = describe.describe_patches(["tfeat"], patches)["tfeat"]
    np.testing.assert_array_equal(found, describe.describe_patches(["tfeat"], patches, weights)["tfeat"])


def test_a_descriptor_without_weights_has_no_file():
    assert describe.weight_file("sift") is None


# --- Own descriptors -------------------------------------------------------------------------------------


def test_the_documented_example_works(patches):
    lines = describe.__doc__.splitlines()
    example = "\n".join(line[4:] for line in lines if line.startswith("    "))
    variables = {"patches": patches}
    exec(example, variables)
    assert variables["rows"].shape == (13, 64)


def test_an_own_descriptor_takes_a_few_lines(patches):
    register(DescriptorSpec("own", 32, normalized=False), mean_rows)
    rows = describe.describe_patches(["own"], patches)["own"]
    np.testing.assert_allclose(rows, patches.mean(axis=2) / 255, rtol=1e-5)


def test_an_own_descriptor_may_be_written_in_numpy(patches):
    def own(x):
        x = np.asarray(x)
        return np.stack([np.sort(p[0]) > 0.5 for p in x])

    register(binary_spec("own", 32), own)
    rows = describe.describe_patches(["own"], patches)["own"]
    np.testing.assert_array_equal(rows, pack_bits(np.sort(patches[:, 0], axis=1) > 127.5))


def test_an_own_descriptor_may_have_weights(patches, tmp_path):
    def load(path):
        return {"scale": np.load(path)["scale"]}

    register(DescriptorSpec("own", 32, normalized=False), lambda w, p: w["scale"] * mean_rows(p), load=load)
    np.savez(tmp_path / "w.npz", scale=np.float32(3))
    rows = describe.describe_patches(["own"], patches, {"own": tmp_path / "w.npz"})["own"]
    np.testing.assert_allclose(rows, 3 * patches.mean(axis=2) / 255, rtol=1e-5)


def test_weights_changed_on_disk_are_read_again(patches, tmp_path):
    register(DescriptorSpec("own", 32, normalized=False), lambda w, p: w + mean_rows(p), load=np.load)
    rows = []
    for i in range(2):
        np.save(tmp_path / "w.npy", np.float32(i))
        os.utime(tmp_path / "w.npy", (i, i))
        rows.append(describe.describe_patches(["own"], patches, {"own": tmp_path / "w.npy"})["own"])
    np.testing.assert_allclose(rows[1], rows[0] + 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("spec", "function", "message"),
    [
        (
            DescriptorSpec("own", 31),
            mean_rows,
            r"'own' from patches 0 to 7: .* shape \(8, 32\), .* \[N, 31\]",
        ),
        (DescriptorSpec("own", 32), mean_rows, "'own' from patches 0 to 7: row 0 has norm"),
        (binary_spec("own", 32), mean_rows, "'own' from patches 0 to 7: dtype is float32, .* expects bool"),
        (
            DescriptorSpec("own", 32),
            lambda p: mean_rows(p) / 0,
            "row 0 of 'own' holds a value that is not finite",
        ),
        (DescriptorSpec("own", 32), lambda p: mean_rows(p)[:3], "'own': 8 patches gave 3 rows"),
    ],
)
def test_rows_that_do_not_fit_the_spec_are_refused(patches, spec, function, message):
    register(spec, function)
    with pytest.raises(ValueError, match=message):
        describe.describe_patches(["own"], patches)


# --- What is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("opencv-sift", "'opencv-sift' is computed from the photo and keypoints, not from patches"),
        ("colmap-sift", "'colmap-sift' comes with the detector's keypoints"),
        ("sitf", "unknown descriptor 'sitf'; did you mean sift"),
    ],
)
def test_a_descriptor_not_of_patches_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        describe.describer(name)


def test_a_descriptor_without_function_is_refused():
    register(DescriptorSpec("files-only", 5))
    with pytest.raises(ValueError, match="'files-only' is registered without a function"):
        describe.describer("files-only")


@pytest.mark.parametrize("name", ["hardnet", "sosnet", "tfeat"])
def test_published_weights_must_be_installed_or_given(name, patches):
    message = f"'{name}' means the official weights.*`xdesc weights install {name}`.*--weights {name}=FILE"
    with pytest.raises(ValueError, match=message):
        describe.describe_patches([name], patches)


def test_asked_for_published_weights_our_own_are_named():
    with pytest.raises(ValueError, match="own network is 'sosnet-xdesc'"):
        describe.weight_file("sosnet")
    with pytest.raises(ValueError, match="--weights tfeat=FILE$"):
        describe.weight_file("tfeat")


def test_weights_must_be_given_to_other_learned_descriptors(shipped):
    with pytest.raises(ValueError, match="'hardnet-xdesc' has weights; .* --weights hardnet-xdesc=FILE"):
        describe.describer("hardnet-xdesc")


def test_weights_for_a_descriptor_without_are_refused(tmp_path):
    with pytest.raises(ValueError, match="'sift' has no weights, but .*w.npz was given"):
        describe.describer("sift", tmp_path / "w.npz")


def test_a_missing_weight_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="w.npz: no such weight file"):
        describe.describer("hardnet", tmp_path / "w.npz")


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((2, 32, 32), np.float32), np.zeros((2, 32, 31), np.uint8), np.zeros((32, 32), np.uint8)],
)
def test_patches_of_another_form_are_refused(wrong):
    with pytest.raises(ValueError, match=r"patches are .*, expected uint8 \[N, 32, 32\]"):
        describe.describe_patches(["sift"], wrong)
