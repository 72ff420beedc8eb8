"""Translations that look at the photo's other rows: by the definition, by every way, and refused where these lack."""

from __future__ import annotations

import dataclasses
import sqlite3
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.context_translators import (
    CONTEXT,
    EXTRA,
    TOLD,
    context_translator,
    decoded_by_definition,
    embedded_by_definition,
    positions,
    turning_translator,
)  # fmt: skip
from tests.support.databases import interrupt, sift_rows
from tests.support.framed_translators import ROUTES, SPECS, frames, rows
from tests.support.small_translators import layers
from xdesc_jax import cli
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.descriptors import get_spec, stored, unit_rows
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.networks import neighbours
from xdesc_jax.translation.blas import Threads
from xdesc_jax.translation.bundle import load
from xdesc_jax.translation.stream import ZeroRowsWarning
from xdesc_jax.translation.translator import Translator

LACKS = "rows of 'turned' come without the positions of their keypoints, .* Give all rows of one photo together"


@pytest.fixture(scope="module")
def bundle():
    return context_translator()


@pytest.fixture(scope="module", params=["keypoint", "every"])
def of_whom(request):
    """Models with context of descriptors of frame 'keypoint' alone, and of every one."""
    return context_translator(request.param)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("xdesc_jax.translation.stream.BLOCK_ROWS", 5)
    monkeypatch.setattr("xdesc_jax.translation.stream.PART_ROWS", 7)
    monkeypatch.setattr("xdesc_jax.translation.surroundings.POOL_ROWS", 3)


def test_threads_change_no_row_of_a_photo_and_raise_what_went_wrong_in_them(bundle, small_blocks, monkeypatch):
    x, seen, at = rows(23)["turned"], frames(23), positions(23)
    found = []
    for n in (1, 3):
        library = Threads([SimpleNamespace(get_num_threads=lambda n=n: n, set_num_threads=lambda _: None)])
        monkeypatch.setattr("xdesc_jax.translation.blas.threads", lambda library=library: library)
        found.append(Translator(bundle).embed(x, "turned", frames=seen, positions=at))
    np.testing.assert_array_equal(*found)
    monkeypatch.setattr("xdesc_jax.networks.context.attend", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Translator(bundle).embed(x, "turned", frames=seen, positions=at)


def by_definition(bundle, x, source, target, seen, at):
    """Float64 rows, or bits."""
    y = x.astype(np.float64)
    if source != "embedding":
        y = embedded_by_definition(bundle.networks, bundle.contexts, x, source, seen, at)
    if target == "embedding":
        return y
    y = decoded_by_definition(bundle.networks, y, target, seen)
    return y > 0.5 if target == "turned-bits" else y


@pytest.mark.parametrize(("source", "target"), ROUTES)
def test_a_translation_is_that_of_the_definition(of_whom, source, target, small_blocks):
    translator, x, seen, at = Translator(of_whom), rows(17)[source], frames(17), positions(17)
    found = translator.translate(x, source, target, frames=seen, positions=at)
    np.testing.assert_allclose(found, by_definition(of_whom, x, source, target, seen, at), atol=1e-5)
    takes = source in of_whom.contexts
    assert translator.takes_context(source, target) == takes
    elsewhere = translator.translate(x, source, target, frames=seen, positions=positions(17, seed=5))
    assert (np.abs(elsewhere.astype(np.float32) - found).max() > 0.02) == takes
    if not takes:
        np.testing.assert_array_equal(translator.translate(x, source, target, frames=seen), found)


@pytest.mark.parametrize("target", ["embedding", "turned", "turned-bits"])
@pytest.mark.parametrize("source", ["turned", "turned-bits"])
def test_in_a_space_of_turned_patches_neighbours_are_told_as_the_keypoint_sees_them(source, target, small_blocks):
    """The same where the photo is turned by 40 degrees and seen at half its size; no views of it are rendered."""
    bundle = turning_translator()
    translator, x, seen, at = Translator(bundle), rows(17)[source], frames(17), positions(17)
    found = translator.translate(x, source, target, frames=seen, positions=at)
    expected = embedded_by_definition(bundle.networks, bundle.contexts, x, source, seen, at, turning=True)
    if target != "embedding":
        expected = decoded_by_definition(bundle.networks, expected, target, None)
    expected = expected > 0.5 if target == "turned-bits" else expected
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert translator.takes_context(source, target) and translator.takes_frames(source, target)
    assert not translator.takes_views(source, target)
    angle = np.deg2rad(40)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    angles = (seen[:, 1] + angle + np.pi) % (2 * np.pi) - np.pi
    # Halved, sigmas stay in octaves that lie to each other as before.
    there = np.stack([seen[:, 0] / 2, angles], axis=1)
    turned = translator.translate(x, source, target, frames=there, positions=at @ turn / 2 + [30, 200])
    np.testing.assert_allclose(turned, found, atol=1e-4)
    for lack, message in (({"frames": seen}, "without the positions"), ({"positions": at}, "without the scales")):
        with pytest.raises(ValueError, match=message):
            translator.translate(x, source, target, **lack)


def test_rows_without_frames_are_translated_with_their_neighbours():
    bundle = context_translator("every")
    x, at = rows(17)["upright"], positions(17)
    found = Translator(bundle).embed(x, "upright", positions=at)
    expected = by_definition(bundle, x, "upright", "embedding", np.ones((17, 2)), at)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_photos_of_few_keypoints_are_translated(bundle, n):
    x, seen, at = rows(5)["turned"][:n], frames(5)[:n], positions(5)[:n]
    found = Translator(bundle).embed(x, "turned", frames=seen, positions=at)
    assert found.shape == (n, 8)
    np.testing.assert_allclose(found, by_definition(bundle, x, "turned", "embedding", seen, at), atol=1e-5)


def test_keypoints_that_repeat_at_one_place_are_translated(bundle):
    """All at one place, and each of some places three times with other orientations."""
    x, seen = rows(12)["turned"], frames(12)
    for at in (np.full((12, 2), 7.5), np.repeat(positions(4), 3, axis=0)):
        found = Translator(bundle).embed(x, "turned", frames=seen, positions=at)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    same = Translator(bundle).embed(
        np.tile(x[:1], (4, 1)), "turned", frames=np.tile(seen[:1], (4, 1)), positions=np.zeros((4, 2))
    )
    np.testing.assert_allclose(same, same[:1].repeat(4, axis=0), atol=1e-6)


def test_rows_in_another_order_give_the_same_in_that_order(bundle, small_blocks):
    x, seen, at = rows(31)["turned-bits"], frames(31), positions(31)
    order = np.random.default_rng(2).permutation(31)
    translator = Translator(bundle)
    found = translator.embed(x, "turned-bits", frames=seen, positions=at)
    again = translator.embed(x[order], "turned-bits", frames=seen[order], positions=at[order])
    np.testing.assert_allclose(again, found[order], atol=1e-5)
    shifted = translator.embed(x, "turned-bits", frames=seen, positions=at + np.float32(64))
    np.testing.assert_allclose(shifted, found, atol=1e-4)


def test_a_row_hears_of_its_neighbours_alone(bundle):
    x, seen, at = rows(40)["turned"], frames(40), positions(40)
    translator = Translator(bundle)
    found = translator.embed(x, "turned", frames=seen, positions=at)
    near = neighbours.find(at, seen, CONTEXT.nearest, CONTEXT.larger)
    for i in (0, 13, 39):
        own = np.unique(near[i][near[i] != neighbours.NONE])
        kept = np.array([i, *own])
        alone = translator.embed(x[kept], "turned", frames=seen[kept], positions=at[kept])
        np.testing.assert_allclose(alone[0], found[i], atol=1e-5)
        without = np.delete(np.arange(40), own[0])
        other = translator.embed(x[without], "turned", frames=seen[without], positions=at[without])
        assert np.abs(other[np.flatnonzero(without == i)[0]] - found[i]).max() > 1e-3


def test_zero_rows_stay_zero_and_are_nobodys_neighbours(bundle, small_blocks):
    x, seen, at = rows(20)["turned"].copy(), frames(20), positions(20)
    dead = np.random.default_rng(1).random(20) < 0.4
    x[dead] = 0
    translator = Translator(bundle)
    with pytest.warns(ZeroRowsWarning, match=f"{dead.sum()} of 20 rows"):
        found = translator.embed(x, "turned", frames=seen, positions=at)
    assert not found[dead].any()
    alone = translator.embed(x[~dead], "turned", frames=seen[~dead], positions=at[~dead])
    np.testing.assert_allclose(found[~dead], alone, atol=1e-5)


def test_probabilities_of_bits_are_those_of_the_definition(bundle):
    x, seen, at = rows(11)["turned"], frames(11), positions(11)
    found = Translator(bundle).stream("turned", "turned-bits").probabilities(x, seen, at)
    embedded = embedded_by_definition(bundle.networks, bundle.contexts, x, "turned", seen, at)
    np.testing.assert_allclose(found, decoded_by_definition(bundle.networks, embedded, "turned-bits", seen), atol=1e-5)


def test_what_a_translation_lacks_is_told(bundle):
    translator, x, seen = Translator(bundle, "m.npz"), rows(6)["turned"], frames(6)
    with pytest.raises(ValueError, match=f"^{LACKS}"):
        translator.translate(x, "turned", "upright", frames=seen)
    with pytest.raises(ValueError, match="without the scales and orientations"):
        translator.translate(x, "turned", "upright", positions=positions(6))
    with pytest.raises(ValueError, match=r"^positions have shape \(5, 2\), expected \(6, 2\)"):
        translator.embed(x, "turned", frames=seen, positions=positions(5))
    bad = positions(6)
    bad[4, 1] = np.inf
    with pytest.raises(ValueError, match=r"^here: keypoint 4 is at \[.*, inf\]"):
        translator.stream("turned", "upright")(x, where="here", frames=seen, positions=bad)
    blocks = translator.translate_blocks([x], "turned", "upright")
    with pytest.raises(
        ValueError, match=r"^m.npz: its encoder of 'turned' .* blocks are no photos: call translate with"
    ):
        next(blocks)
    assert len(list(translator.translate_blocks([rows(3)["upright"]], "upright", "embedding"))) == 1


# --- Files -----------------------------------------------------------------------------------------------


@pytest.fixture
def model(bundle, tmp_path):
    return bundle.save(tmp_path / "model.safetensors")


def run(*words, model):
    return cli.main(["translate", *map(str, words), "--model", str(model)])


def store(path, at, size=(200, 150), valid=None):
    seen, n = frames(len(at)), len(at)
    valid = np.ones(n, bool) if valid is None else valid
    x = np.where(valid[:, None], stored(rows(n)["turned"], SPECS["turned"]), 0)
    with StoreWriter(path, SPECS["turned"]) as writer:
        shape = {"scales": seen[:, 0], "oris": seen[:, 1]}
        writer.write("a.jpg", ImageFeatures(at, x, valid, size, **shape))
        few = {key: value[:1] for key, value in shape.items()}
        writer.write("one.jpg", ImageFeatures(at[:1], x[:1], valid[:1], size, **few))
        none = {key: value[:0] for key, value in shape.items()}
        writer.write("none.jpg", ImageFeatures(at[:0], x[:0], valid[:0], size, **none))
    return path


def test_photos_of_a_feature_file_are_translated_one_by_one(bundle, model, tmp_path):
    at, seen, valid = positions(9), frames(9), np.arange(9) != 4
    path = store(tmp_path / "in.h5", at, valid=valid)
    assert run(path, tmp_path / "out.h5", "--target", "upright", model=model) == 0
    x = stored(rows(9)["turned"], SPECS["turned"])
    expected = by_definition(bundle, unit_rows(x[valid]), "turned", "upright", seen[valid], at[valid])
    with FeatureStore(tmp_path / "out.h5") as found:
        photo = found.read("a.jpg")
        np.testing.assert_allclose(photo.descriptors[valid], expected, atol=1e-5)
        assert not photo.descriptors[4].any() and not photo.valid[4]
        alone = by_definition(bundle, unit_rows(x[:1]), "turned", "upright", seen[:1], at[:1])
        np.testing.assert_allclose(found.read("one.jpg").descriptors, alone, atol=1e-5)
        assert len(found.read("none.jpg")) == 0


def test_positions_of_a_photo_of_another_size_are_refused_by_name(model, tmp_path, capsys):
    path = store(tmp_path / "in.h5", positions(9), size=(100, 75))
    assert run(path, tmp_path / "out.h5", "--target", "upright", model=model) == 2
    told = capsys.readouterr().err
    assert "in.h5: 'a.jpg': keypoint" in told and "outside the photo of 100x75 px" in told
    assert not (tmp_path / "out.h5").exists()


def test_an_array_takes_them_from_another(bundle, model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("xdesc_jax.translation.translate.ROWS", 4)  # rows of a photo are never parted
    x, seen, at = rows(9)["turned"], frames(9), positions(9)
    for name, values in {"x": x, "frames": seen, "at": at, "none": np.zeros((0, 12), np.float32)}.items():
        np.save(tmp_path / f"{name}.npy", values)
    end = ["--descriptor", "turned", "--target", "embedding", "--frames", tmp_path / "frames.npy"]
    words = [tmp_path / "x.npy", tmp_path / "y.npy", *end]
    assert run(*words, model=model) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "x.npy: " in told and "give the positions of its keypoints by --positions POSITIONS.npy" in told
    assert run(*words, "--positions", tmp_path / "at.npy", model=model) == 0
    expected = by_definition(bundle, x, "turned", "embedding", seen, at)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-5)
    # Other positions are another result.
    np.save(tmp_path / "at.npy", positions(9, seed=8))
    assert run(*words, "--positions", tmp_path / "at.npy", model=model) == 2
    capsys.readouterr()
    np.save(tmp_path / "at.npy", at[:8])
    assert run(*words, "--positions", tmp_path / "at.npy", "--overwrite", model=model) == 2
    assert "at.npy: positions have shape (8, 2), expected (9, 2)" in " ".join(capsys.readouterr().err.split())
    np.save(tmp_path / "at.npy", at[:0])
    np.save(tmp_path / "frames.npy", seen[:0])
    none = [tmp_path / "none.npy", tmp_path / "z.npy", *end, "--positions", tmp_path / "at.npy"]
    assert run(*none, model=model) == 0 and np.load(tmp_path / "z.npy").shape == (0, 8)


def test_positions_are_for_arrays_alone(model, tmp_path, capsys):
    np.save(tmp_path / "at.npy", positions(9))
    path = store(tmp_path / "in.h5", positions(9))
    words = [path, tmp_path / "out.h5", "--target", "upright", "--positions", tmp_path / "at.npy"]
    assert run(*words, model=model) == 2
    assert "has the positions of its keypoints itself" in " ".join(capsys.readouterr().err.split())


def map_of(path, counts, rows_of, width, columns=4):
    """A database of photos of so many keypoints: positions and frames by the photo's number, rows by their count."""
    import xdesc_jax.colmap.bindings.api as api

    with api.open_database(path):
        pass
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO cameras VALUES (1, 0, 200, 150, ?, 1)", (np.array([50.0, 32, 32]).tobytes(),))
        for i, (name, n) in enumerate(counts.items(), 1):
            at = positions(n, seed=i) + np.float32(100 * (i == 3))
            keypoints = np.column_stack([at, frames(n, seed=i)])[:, :columns].astype(np.float32)
            db.execute("INSERT INTO images (image_id, name, camera_id) VALUES (?, ?, 1)", (i, name))
            db.execute("INSERT INTO keypoints VALUES (?, ?, ?, ?)", (i, n, columns, keypoints.tobytes()))
            db.execute(
                "INSERT INTO descriptors (image_id, rows, cols, data, type) VALUES (?, ?, ?, ?, 0)",
                (i, n, width, rows_of(n).tobytes()),
            )
    return path


def test_a_database_of_keypoints_without_frames_gives_positions(tmp_path):
    """Of descriptors that see the photo as it lies, as ALIKED's: where keypoints are is all that is asked for."""
    made = context_translator("every")
    file = made.save(tmp_path / "m.safetensors")
    source = map_of(tmp_path / "map.db", {"a.jpg": 9, "b.jpg": 13}, lambda n: rows(n)["upright"].astype("f4"), 28, 2)
    words = ["translate", source, tmp_path / "new.db", "--target", "embedding", "--source", "upright", "--model", file]
    assert cli.main([str(word) for word in words]) == 0
    with DatabaseReader(tmp_path / "new.db") as found:
        for i, (name, n) in enumerate({"a.jpg": 9, "b.jpg": 13}.items(), 1):
            x = rows(n)["upright"]
            expected = embedded_by_definition(
                made.networks, made.contexts, x, "upright", frames(n, seed=i), positions(n, seed=i)
            )
            np.testing.assert_allclose(found.descriptors(name), expected, atol=1e-4)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_database_gives_those_of_its_keypoints(bundle, tmp_path, stopped, monkeypatch):
    """Image by image; a model with context, and keypoints outside of the photo, as undistortion makes them."""
    rng, wide = np.random.default_rng(1), 128 + EXTRA
    networks = {
        "encoder/colmap-sift": layers(rng, wide + TOLD, 8),
        "decoder/upright": bundle.networks["decoder/upright"],
    }
    contexts = {"colmap-sift": [layer for s in [(wide, 6), (8, 6), (6, 6), (wide, 12)] for layer in layers(rng, *s)]}
    specs = {"colmap-sift": get_spec("colmap-sift"), "upright": SPECS["upright"]}
    changed = dataclasses.replace(
        bundle, specs=specs, networks=networks, contexts=contexts, sample=type(bundle.sample)(), space_id=None
    )  # fmt: skip
    file, counts = changed.save(tmp_path / "m.safetensors"), {"a.jpg": 9, "b.jpg": 1, "c.jpg": 13}
    map_of(tmp_path / "map.db", counts, sift_rows, 128)
    words = [tmp_path / "map.db", tmp_path / "new.db", "--target", "upright"]
    if stopped:
        with monkeypatch.context() as patched:
            interrupt(patched, 1)
            assert run(*words, model=file) == 130
    assert run(*words, model=file) == 0
    with DatabaseReader(tmp_path / "new.db") as found:
        for i, (name, n) in enumerate(counts.items(), 1):
            x = unit_rows(sift_rows(n).astype(np.float32))
            told = load(file)
            embedded = embedded_by_definition(
                told.networks, told.contexts, x, "colmap-sift", frames(n, seed=i), positions(n, seed=i)
            )
            expected = decoded_by_definition(told.networks, embedded, "upright", frames(n, seed=i))
            np.testing.assert_allclose(found.descriptors(name), expected, atol=1e-4)
