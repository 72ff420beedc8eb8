"""The benchmark of the joint space, on embeddings whose neighbours are known."""

import shutil

import numpy as np
import pytest

from tests.support.place import WIDTH, exact_translator
from tests.support.sequence_folder import NAMES, POINTS, SIZE, write_sequences
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.evaluate.benchmarks import joint_space
from xdesc_jax.evaluate.benchmarks.joint_space import run
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.translation.bundle import Bundle

pytest.importorskip("sklearn", reason="needs the report extra")
TWO = ("own-a", "own-b")
ASKED = {"patches": 30, "plotted": 12}


def write_features(folder, names):
    """`own-a.h5` and `own-b.h5`, its values in reverse; no two rows are alike, of whatever photo."""
    for name, step in (("own-a", 1), ("own-b", -1)):
        rng = np.random.default_rng(0)
        with StoreWriter(folder / f"{name}.h5", DescriptorSpec(name, WIDTH)) as store:
            for photo in (f"{names[0]}/{k}.ppm" for k in range(1, 7)):
                rows, xy = unit_rows(rng.normal(size=(POINTS, WIDTH))), rng.uniform(9, 99, (POINTS, 2))
                held = ImageFeatures(np.float32(xy), rows[:, ::step], np.ones(POINTS, bool), SIZE)
                store.write(photo, held)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_sequences(tmp_path_factory.mktemp("data") / "photos", NAMES[:1])


@pytest.fixture
def asked(photos, tmp_path):
    exact = exact_translator()
    rng = np.random.default_rng(0)
    networks = dict(exact.networks)
    networks["encoder/own-b"] = [(rng.normal(size=(WIDTH, WIDTH)).astype(np.float32), np.zeros(WIDTH, np.float32))]
    apart = Bundle("encoder_decoder", {name: DescriptorSpec(name, WIDTH) for name in TWO}, WIDTH, networks)
    models = {"model": exact.save(tmp_path / "a.safetensors"), "without": apart.save(tmp_path / "b.safetensors")}
    return {"data": photos, "out": tmp_path / "out", "features": (write_features(tmp_path / "f", NAMES[:1]),), **models}


def test_a_joint_space_finds_each_patch_and_one_that_is_none_by_chance(asked):
    with_loss, without = run(**asked, **ASKED).rows
    assert (with_loss.values["same patch"], with_loss.values["in the plane"]) == (100, 100)
    assert without.values["same patch"] < 30 and without.values["in the plane"] < 40
    assert set(with_loss.detail["pairs"]) == {"own-a | own-b", "own-b | own-a"}
    assert np.shape(with_loss.detail["plane"]["own-b"]) == (12, 2)
    assert "laid out by t-SNE" in (asked["out"] / "report.html").read_text()
    assert [row.values for row in run(**asked, **ASKED).rows] == [with_loss.values, without.values]
    with pytest.raises(FileExistsError, match="another configuration"):
        run(**asked, patches=31, plotted=12)


def test_the_share_equals_that_of_a_plain_loop():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(37, 5)).astype(np.float32)
    b = a + rng.normal(size=(37, 5)).astype(np.float32)
    right = [min(range(37), key=lambda j: float(np.linalg.norm(a[i] - b[j]))) == i for i in range(37)]
    assert 0 < sum(right) < 37 and joint_space.same_patch(a, b) == pytest.approx(sum(right) / 37)


def test_patches_are_drawn_once_each_from_all_photos_and_only_usable_ones(asked):
    stores = {name: asked["features"][0] / f"{name}.h5" for name in TWO}
    chosen = joint_space.draw(stores, 100, 3)
    assert sum(map(len, chosen.values())) == 100 and len(chosen) == 6
    assert all(len(set(rows)) == len(rows) and max(rows) < POINTS for rows in chosen.values())
    assert any((a != b).any() for a, b in zip(chosen.values(), joint_space.draw(stores, 100, 4).values(), strict=False)
               if len(a) == len(b))  # fmt: skip
    with pytest.raises(ValueError, match=r"have 246 patches, of which 999 are asked for"):
        joint_space.draw(stores, 999, 0)


def test_embeddings_are_those_of_the_chosen_rows(asked):
    path = asked["features"][0] / "own-a.h5"
    with FeatureStore(path) as store:
        (name, *_) = store.names
        rows = store.read(name).descriptors
    found = joint_space.embeddings({name: np.array([4, 1])}, path, joint_space.Translator.load(asked["model"]))
    np.testing.assert_allclose(found, rows[[4, 1]], atol=1e-6)


def test_too_few_are_told(asked, tmp_path):
    with pytest.raises(ValueError, match="40 of 30 patches plotted"):
        run(**asked, patches=30, plotted=40)
    with pytest.raises(ValueError, match="has no own-a"):
        run(**{**asked, "model": "opencv", "without": None}, **ASKED)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="empty"):
        run(**{**asked, "data": empty}, **ASKED)
    shutil.rmtree(empty)
