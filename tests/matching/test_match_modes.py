"""`xdesc match` over photos of mixed descriptors, databases, and runs that were stopped."""

from __future__ import annotations

import hashlib
import json

import h5py
import pytest

from tests.support.place import make_place, rewrite
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.files.whole import write_json
from xdesc_jax.matching import match
from xdesc_jax.matching import parts as match_parts
from xdesc_jax.matching.matches import MatchFile


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def mixed(place, tmp_path):
    """Files of own-a and own-b with every other photo each."""
    names = [*place.names, *place.queries]
    kept = {"own-a": set(names[::2]), "own-b": set(names[1::2])}
    return [
        rewrite(place.features[d], tmp_path / f"{d}.h5", lambda n, p, d=d: p if n in kept[d] else None) for d in kept
    ]


def run(*words):
    return cli.main(["match", *map(str, words)])


def matches(path):
    with MatchFile(path) as file:
        return {pair: file.read(*pair)[0].tolist() for pair in file.pairs()}


def summary(path):
    return json.loads(path.with_name(path.name + ".json").read_text())


@pytest.fixture(scope="module")
def native(place, tmp_path_factory):
    """Matches of all photos in own-a; the translator is exact, so all modes must find them."""
    out = tmp_path_factory.mktemp("native") / "m.h5"
    assert run(place.features["own-a"], out, "--pairs", "exhaustive") == 0
    return matches(out)


MODES = {
    "embed": ["--mode", "embed"],
    "progressive": ["--mode", "progressive", "--order", "own-a", "own-b"],
    "directional": ["--mode", "directional", "--target", "own-b"],
    "first to second": ["--mode", "directional"],
}


@pytest.mark.parametrize("mode", MODES)
def test_mixed_photos_match_as_photos_of_one_descriptor(place, mixed, native, tmp_path, mode):
    out = tmp_path / "m.h5"
    assert run(*mixed, out, "--pairs", "exhaustive", "--model", place.translator, *MODES[mode]) == 0
    assert matches(out) == native
    found = summary(out)
    kinds = {(e["first"], e["second"]): e for e in found["by_descriptors"]}
    assert set(kinds) == {(a, b) for a in ("own-a", "own-b") for b in ("own-a", "own-b")}
    assert sum(e["pairs"] for e in kinds.values()) == found["pairs_matched"] == 28
    target = {"embed": "embedding", "progressive": "own-b", "directional": "own-b", "first to second": "own-b"}[mode]
    assert kinds["own-a", "own-b"]["in"].startswith(target)


def test_queries_of_another_file_are_translated_to_the_maps_descriptor(place, tmp_path, native):
    out = tmp_path / "m.h5"
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("".join(f"{q} {n}\n" for q in place.queries for n in place.names))
    words = ["--other", place.features["own-b"], "--pairs", pairs, "--mode", "directional", "--model", place.translator]
    assert run(place.features["own-a"], out, *words) == 0
    for (q, n), found in matches(out).items():
        assert sorted(map(tuple, found)) == sorted((i, j) for j, i in native[n, q])


def test_mixed_photos_do_not_match_natively_and_nothing_is_written(mixed, tmp_path, capsys):
    assert run(*mixed, tmp_path / "m.h5", "--pairs", "exhaustive") == 2
    error = capsys.readouterr().err
    assert "'own-a'" in error and "'own-b'" in error and "do not compare" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own-a.h5", "own-b.h5"]


def test_retrieved_pairs_are_matched(place, mixed, tmp_path):
    out = tmp_path / "m.h5"
    words = ["--pairs", "retrieval", "--top", 2, "--mode", "embed", "--model", place.translator]
    assert run(*mixed, out, *words) == 0
    assert 8 <= len(matches(out)) <= 16 and (tmp_path / "m.h5.pairs.txt").exists()


def test_the_jax_backend_finds_the_same(place, mixed, native, tmp_path):
    out = tmp_path / "m.h5"
    words = ["--pairs", "exhaustive", "--mode", "embed", "--model", place.translator, "--backend", "jax"]
    assert run(*mixed, out, *words) == 0
    assert matches(out) == native


def test_positions_that_repeat_are_counted_once(place, tmp_path):
    def double(name, photo):
        xy = photo.keypoints.copy()
        xy[1::2] = xy[::2][: len(xy[1::2])]
        return type(photo)(xy, photo.descriptors, photo.valid, photo.image_size)

    path = rewrite(place.features["own-a"], tmp_path / "twice.h5", double)
    assert run(path, tmp_path / "m.h5", "--pairs", "exhaustive") == 0
    found = summary(tmp_path / "m.h5")
    assert found["matches_of_distinct_positions"] < 0.8 * found["matches"]


# --- Databases -------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "map.db"
    options = pycolmap.SyntheticDatasetOptions(num_frames_per_rig=3, num_points3D=40)
    pycolmap.set_random_seed(0)
    with pycolmap.Database.open(path) as db:
        pycolmap.synthesize_dataset(options, db)
    return path


def test_matches_go_into_a_copy_of_the_database(database, tmp_path):
    before = hashlib.sha256(database.read_bytes()).digest()
    out, file = tmp_path / "out.db", tmp_path / "m.h5"
    assert run(database, out, "--pairs", "exhaustive") == 0
    assert run(database, file, "--pairs", "exhaustive") == 0
    assert hashlib.sha256(database.read_bytes()).digest() == before
    with pycolmap.Database.open(out) as db, MatchFile(file) as expected:
        ids = {image.name: image.image_id for image in db.read_all_images()}
        assert db.num_matched_image_pairs() == len(expected.pairs()) == 15 and db.num_verified_image_pairs() == 0
        for a, b in expected.pairs():
            assert db.read_matches(ids[a], ids[b]).tolist() == expected.read(a, b)[0].tolist()
    stamp = out.stat().st_mtime_ns
    assert run(database, out, "--pairs", "exhaustive") == 0 and out.stat().st_mtime_ns == stamp
    assert run(database, out, "--pairs", "exhaustive", "--ratio", "0.7") == 2


def test_stores_do_not_go_into_a_database(place, tmp_path, capsys):
    assert run(place.features["own-a"], tmp_path / "out.db", "--pairs", "exhaustive") == 2
    assert "xdesc reconstruct" in capsys.readouterr().err
    assert run(place.features["own-a"], tmp_path / "out.txt", "--pairs", "exhaustive") == 2
    assert "expected a match file (.h5)" in capsys.readouterr().err


# --- Runs that were stopped ------------------------------------------------------------------------------


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(match, "PAIRS_A_PART", 4)


def test_a_stopped_run_goes_on_and_ends_as_an_uninterrupted_one(place, native, tmp_path, monkeypatch, small_parts):
    out, done = tmp_path / "m.h5", []
    save = match_parts.MatchParts.save

    def stop_at_third(self, number, found):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(number)
        save(self, number, found)

    monkeypatch.setattr(match_parts.MatchParts, "save", stop_at_third)
    assert run(place.features["own-a"], out, "--pairs", "exhaustive") == 130
    assert not out.exists() and done == [0, 1]
    monkeypatch.setattr(match_parts.MatchParts, "save", lambda *a: (done.append(a[1]), save(*a)))
    assert run(place.features["own-a"], out, "--pairs", "exhaustive") == 0
    assert done == [0, 1, 2, 3, 4, 5, 6] and matches(out) == native
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("damage", ["cut", "other settings", "other size"])
def test_parts_that_are_damaged_or_of_other_settings_are_made_again(
    place, native, tmp_path, monkeypatch, small_parts, damage
):
    out, parts = tmp_path / "m.h5", tmp_path / ".m.h5.parts"
    monkeypatch.setattr(match, "_write_file", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run(place.features["own-a"], out, "--pairs", "exhaustive") == 130
    assert len(list(parts.glob("*.npz"))) == 7
    monkeypatch.undo()
    monkeypatch.setattr(match, "PAIRS_A_PART", 4 if damage != "other size" else 3)
    if damage == "cut":
        path = parts / "0000002.npz"
        path.write_bytes(path.read_bytes()[:50])
    elif damage == "other settings":
        write_json(parts / "config.json", "another")
        (parts / "0000099.npz").write_bytes(b"stale")
    assert run(place.features["own-a"], out, "--pairs", "exhaustive") == 0
    assert matches(out) == native and not parts.exists()


def test_a_photo_without_descriptors_passes(place, tmp_path):
    empty = place.names[0]

    def without(name, photo):
        if name != empty:
            return photo
        return type(photo)(photo.keypoints[:0], photo.descriptors[:0], photo.valid[:0], photo.image_size)

    path = rewrite(place.features["own-a"], tmp_path / "a.h5", without)
    assert run(path, tmp_path / "m.h5", "--pairs", "exhaustive") == 0
    found = matches(tmp_path / "m.h5")
    assert all(bool(rows) == (empty not in pair) for pair, rows in found.items())
    with h5py.File(tmp_path / "m.h5") as file:
        assert file.attrs["mode"] == "native"
