"""Translations as another view would have shown the photo: one file a view, each as complete as a single one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support import mixed_database
from tests.support.context_translators import context_translator, embedded_by_definition, positions
from tests.support.exact_scene import make_scene
from tests.support.framed_translators import SPECS, by_definition, framed_translator, frames, rows
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.descriptors import stored, unit_rows
from xdesc_jax.features.frames import of_colmap
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.networks.views import View
from xdesc_jax.translation.translator import Translator

WORDS = ("--views", "roll=90,330", "scale=2")
NAMES = ["roll090-scale2.0", "roll330-scale2.0"]


def turned(seen, degrees, scale):
    """Frames by the definition, one by one."""
    return np.array([[sigma * scale, angle + np.pi * degrees / 180] for sigma, angle in seen.tolist()])


@pytest.fixture
def model(tmp_path):
    return framed_translator().save(tmp_path / "model.safetensors")


@pytest.fixture
def features(tmp_path):
    """Two photos of `turned` rows."""
    with StoreWriter(tmp_path / "in.h5", SPECS["turned"]) as writer:
        for name, seed in (("a.jpg", 1), ("b.jpg", 2)):
            x, seen = stored(rows(9, seed)["turned"], SPECS["turned"]), frames(9, seed)
            photo = ImageFeatures(positions(9, seed), x, np.ones(9, bool), (640, 480), seen[:, 0], seen[:, 1])
            writer.write(name, photo)
    return tmp_path / "in.h5"


def run(features, out, model, *words, target="upright"):
    given = ["translate", features, out, "--target", target, "--model", model, *words]
    return cli.main([str(word) for word in given])


def test_each_file_holds_what_the_turned_frames_give(features, model, tmp_path):
    assert run(features, tmp_path / "out", model, *WORDS) == 0
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == sorted(f"{name}.h5{more}" for name in NAMES for more in ("", ".json"))
    for name, degrees in zip(NAMES, (90, -30), strict=True):
        with FeatureStore(tmp_path / "out" / f"{name}.h5") as found:
            for photo, seed in (("a.jpg", 1), ("b.jpg", 2)):
                x = unit_rows(stored(rows(9, seed)["turned"], SPECS["turned"]).astype(np.float32))
                told = turned(frames(9, seed), degrees, 2)
                expected = by_definition(framed_translator().networks, x, "turned", "upright", told)
                held = found.read(photo)
                np.testing.assert_allclose(held.descriptors, expected, atol=1e-5)
                np.testing.assert_array_equal(held.keypoints, positions(9, seed))  # the map's own
                np.testing.assert_array_equal(held.oris, frames(9, seed)[:, 1])
            assert found.attributes["view"] == name
        summary = json.loads((tmp_path / "out" / f"{name}.h5.json").read_text())
        assert summary["config"]["view"] == name and summary["rows"] == 18


def test_a_view_of_the_photo_as_it_lies_is_the_translation_without(features, model, tmp_path):
    assert run(features, tmp_path / "out", model, "--views", "roll=0") == 0
    assert run(features, tmp_path / "plain.h5", model) == 0
    with FeatureStore(tmp_path / "plain.h5") as plain, FeatureStore(tmp_path / "out/roll000-scale1.0.h5") as found:
        np.testing.assert_array_equal(found.read("b.jpg").descriptors, plain.read("b.jpg").descriptors)
        assert "view" not in plain.attributes


def test_neighbours_are_turned_and_scaled_with_their_keypoint():
    translator, x, seen, at = Translator(context_translator()), rows(13)["turned-bits"], frames(13), positions(13)
    quarter = np.stack([-at[:, 1], at[:, 0]], axis=1) * 0.5  # clockwise as one sees it: x to y, y to -x
    expected = embedded_by_definition(
        translator.bundle.networks, translator.bundle.contexts, x, "turned-bits",
        turned(seen, 90, 0.5).astype("f4"), quarter.astype("f4"),
    )  # fmt: skip
    stream = translator.stream("turned-bits", "embedding")
    found = stream(x, frames=seen, positions=at, view=View(90, 0.5))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(found - stream(x, frames=turned(seen, 90, 0.5), positions=at)).max() > 0.01


def test_what_is_finished_is_skipped_what_lacks_is_made_and_others_are_refused(features, model, tmp_path, capsys):
    out, words = tmp_path / "out", ["--views", "roll=90,330", "scale=2"]
    assert run(features, out, model, *words) == 0
    first, second = (out / f"{name}.h5" for name in NAMES)
    kept, time = first.read_bytes(), second.stat().st_mtime_ns
    first.unlink()
    capsys.readouterr()
    assert (
        cli.main(
            ["plan", "translate", *map(str, (features, out)), "--target", "upright", "--model", str(model), *words]
        )
        == 0
    )
    planned = capsys.readouterr().out
    assert f"{first}: would be made" in planned and f"{second}: is finished, would be skipped" in planned
    assert not first.exists()
    assert run(features, out, model, *words) == 0
    assert first.read_bytes() == kept and second.stat().st_mtime_ns == time
    assert run(features, out, model, *words, target="embedding") == 2
    told = f"{first} was made with another configuration (target: upright -> embedding:"
    assert told in capsys.readouterr().err
    assert run(features, out, model, *words, "--overwrite", target="embedding") == 0


def test_a_database_a_view_that_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    scene = make_scene(points=30)
    camera = next(iter(scene.model.cameras.values()))
    database = mixed_database.write_mixed(tmp_path / "map.db", scene, camera, scene.names[:2])
    model = mixed_database.translator(tmp_path / "mixed.safetensors")
    words, target = ("--views", "roll=120,240"), "embedding"
    calls = Calls(monkeypatch, DatabaseWriter, "set_descriptors")
    calls.until = 8  # of 6 images a view
    with pytest.raises(Stopped):
        run(database, tmp_path / "out", model, *words, target=target)
    calls.until = None
    assert run(database, tmp_path / "out", model, *words, target=target) == 0
    translator, differ = Translator.load(model), []
    for degrees in (120, 240):
        with DatabaseReader(database) as old, DatabaseReader(tmp_path / "out" / f"roll{degrees}-scale1.0.db") as new:
            for name in scene.names[:2]:
                x, columns = old.descriptors(name, old.spec(name)), old.keypoints(name)
                lies = of_colmap(columns)
                told = turned(lies, degrees, 1)
                told[:, 1] = np.remainder(told[:, 1], 2 * np.pi)
                expected, plain = (translator.translate(x, "colmap-sift", target, frames=of) for of in (told, lies))
                found = new.descriptors(name, new.spec(name))
                np.testing.assert_allclose(found, expected, atol=1e-5)
                differ.append(np.abs(found - plain).max())
                np.testing.assert_array_equal(new.keypoints(name), columns)
            aliked = scene.names[3]  # whose rows are of the photo as it lies
            x = old.descriptors(aliked, old.spec(aliked))
            expected = translator.translate(x, "aliked-n16rot", target)
            np.testing.assert_allclose(new.descriptors(aliked, new.spec(aliked)), expected, atol=1e-6)
            assert new.attributes["view"] == f"roll{degrees}-scale1.0"
    assert min(differ) > 1e-3


def test_an_array_has_views_with_its_frames(model, tmp_path):
    np.save(tmp_path / "x.npy", rows(9)["turned"])
    np.save(tmp_path / "frames.npy", frames(9))
    words = ("--descriptor", "turned", "--frames", tmp_path / "frames.npy", "--views", "roll=45", "scale=0.5,1")
    assert run(tmp_path / "x.npy", tmp_path / "out", model, *words) == 0
    expected = by_definition(
        framed_translator().networks, rows(9)["turned"], "turned", "upright", turned(frames(9), 45, 0.5)
    )
    np.testing.assert_allclose(np.load(tmp_path / "out" / "roll045-scale0.5.npy"), expected, atol=1e-5)


def test_views_of_what_is_the_same_in_all_and_words_that_name_none_are_refused(features, model, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(features, out, model, *WORDS, target="turned-bits") == 2
    assert f"{features}: turned -> turned-bits: no views can be rendered" in capsys.readouterr().err
    assert run(features, out, model, "--views", "tilt=3") == 2
    assert "--views tilt=3: unknown word 'tilt'" in capsys.readouterr().err
    assert run(features, out, model, "--views", "gravity") == 2
    assert "--views gravity: goes by the poses of a map's photos" in capsys.readouterr().err
    assert not out.exists()
    out.write_text("")
    assert run(features, out, model, *WORDS) == 2
    assert f"{out}: is a file, and --views makes a folder" in capsys.readouterr().err


@pytest.mark.parametrize("rendered", ["embedding", "upright"])
def test_rows_of_a_view_do_not_become_rows_that_turn_with_their_keypoints(features, model, tmp_path, capsys, rendered):
    """Their file has the frames of the photo as it lies, with which they would be turned wrongly."""
    assert run(features, tmp_path / "out", model, "--views", "roll=0,90", target=rendered) == 0
    lies, turned_by_90 = (tmp_path / "out" / f"roll{roll}-scale1.0.h5" for roll in ("000", "090"))
    told = "holds rows of the view roll090-scale1.0, but frames of the photo as it lies"
    assert run(turned_by_90, tmp_path / "back.h5", model, target="turned") == 2
    assert f"{turned_by_90}: {told}" in capsys.readouterr().err and not (tmp_path / "back.h5").exists()
    words = ["--pairs", "exhaustive", "--mode", "directional", "--target", "turned", "--model", model]
    assert cli.main(list(map(str, ["match", turned_by_90, tmp_path / "m.h5", *words]))) == 2
    assert f"{turned_by_90}: 'a.jpg': {told}" in capsys.readouterr().err
    assert run(lies, tmp_path / "back.h5", model, target="turned") == 0
    other = {"embedding": "upright", "upright": "embedding"}[rendered]  # takes no frames
    assert run(turned_by_90, tmp_path / "on.h5", model, target=other) == 0


def test_a_database_of_a_view_is_refused_likewise(tmp_path, capsys):
    scene = make_scene(points=30)
    camera = next(iter(scene.model.cameras.values()))
    database = mixed_database.write_mixed(tmp_path / "map.db", scene, camera, scene.names[:2])
    bundle = Translator.load(mixed_database.translator(tmp_path / "mixed.safetensors")).bundle
    wide = np.zeros((bundle.embedding_width + 2 * bundle.harmonics + 1, 128), np.float32)
    bundle.networks["decoder/colmap-sift"] = [(wide, np.ones(128, np.float32))]
    model = bundle.save(tmp_path / "both.safetensors")
    assert run(database, tmp_path / "out", model, "--views", "roll=120", target="embedding") == 0
    made = tmp_path / "out" / "roll120-scale1.0.db"
    assert run(made, tmp_path / "back.db", model, target="colmap-sift") == 2
    assert f"{made}: holds rows of the view roll120-scale1.0" in capsys.readouterr().err
