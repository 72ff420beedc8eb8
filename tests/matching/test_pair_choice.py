"""Pairs by a rule: sequences with their loops closed, positions, files of one vector a photo."""

from __future__ import annotations

import json
import math
import sqlite3

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.support.place import WIDTH
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.pose_priors import CARTESIAN, WGS84, earth_position, positions
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.localization.candidates import similar_candidates
from xdesc_jax.matching.global_features import GlobalFeatures
from xdesc_jax.matching.gps import exif_position, near_pairs
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.matching.pair_choice import Choice, parse, similar_pairs
from xdesc_jax.matching.sequence import natural, sequential_pairs

FRAMES = [f"v/{i}.jpg" for i in range(12)]  # of which 'v/10.jpg' stands before 'v/2.jpg' as a text


def features(path, names=FRAMES):
    rng = np.random.default_rng(0)
    with StoreWriter(path, DescriptorSpec("own-a", WIDTH)) as writer:
        for name in names:
            rows, xy = unit_rows(rng.normal(size=(6, WIDTH))), rng.uniform(0, 60, (6, 2)).astype(np.float32)
            writer.write(name, ImageFeatures(xy, rows, np.ones(6, bool), (64, 48)))
    return path


def circle(path, names=FRAMES, turns=2):
    """One vector a photo: a walk `turns` times around, whose places look alike when it comes back."""
    with h5py.File(path, "w") as file:
        for i, name in enumerate(names):
            angle = 2 * math.pi * turns * i / len(names)
            group = file.create_group(name)
            group["global_descriptor"] = np.array([math.cos(angle), math.sin(angle), 0.3], np.float16)
            group["image_size"] = np.array([64, 48])
    return path


def matched(out):
    with MatchFile(out) as file:
        return {tuple(sorted(pair)) for pair in file.pairs()}


# --- Rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sequential:10", Choice(sequential=10)),
        ("retrieval", Choice(retrieval=0)),
        ("sequential:3+retrieval:5", Choice(3, 0, 5)),
        ("gps:7+sequential:2", Choice(2, 7)),
        ("pairs.txt", None),
        ("sequential", None),
        ("exhaustive", None),
        ("out+x/sequential:3", None),
    ],
)
def test_rules_and_paths_are_told_apart(text, found):
    assert parse(text) == found


@pytest.mark.parametrize("text", ["sequential:0", "gps:0+retrieval", "retrieval:0", "gps:3+gps:4"])
def test_rules_that_cannot_be_are_told(text):
    with pytest.raises(ValueError, match="pairs '.*expected at least 1|stands there twice"):
        parse(text)


# --- Sequences ---------------------------------------------------------------------------------------------


def test_numbers_in_names_count_as_numbers():
    assert sorted(FRAMES, key=natural) == FRAMES and sorted(FRAMES) != FRAMES


@pytest.mark.parametrize("window", [1, 3, 99])
def test_each_photo_is_with_the_next_of_its_folder(window):
    names = sorted([*FRAMES, *(f"w/x{i}b.jpg" for i in (1, 20, 3))])
    expected = set()
    for folder in ("v", "w"):
        own = sorted((n for n in names if n.startswith(folder)), key=natural)
        expected |= {(a, b) for i, a in enumerate(own) for b in own[i + 1 : i + 1 + window]}
    found = list(sequential_pairs(names, window))
    assert set(found) == expected and len(found) == len(expected)
    assert list(sequential_pairs(names[:1], window)) == []


def test_a_video_that_comes_back_is_closed_by_what_is_alike_and_far_apart(tmp_path):
    """Two rounds of six frames: frame i looks like frame i + 6 alone."""
    out = tmp_path / "m.h5"
    words = ["match", str(features(tmp_path / "f.h5")), str(out), "--pairs", "sequential:2+retrieval:1"]
    assert cli.main([*words, "--global-features", str(circle(tmp_path / "netvlad.h5"))]) == 0
    frame = lambda i: f"v/{i}.jpg"  # noqa: E731
    near = {tuple(sorted((frame(i), frame(j)))) for i in range(12) for j in range(i + 1, min(i + 3, 12))}
    loops = {tuple(sorted((frame(i), frame(i + 6)))) for i in range(6)}
    assert matched(out) == near | loops
    assert json.loads(out.with_name("m.h5.json").read_text())["settings"]["pairs"] == "sequential:2+retrieval:1"


def test_a_sequence_is_of_one_set(tmp_path, capsys):
    a, b = features(tmp_path / "a.h5"), features(tmp_path / "b.h5", ["x.jpg"])
    assert cli.main(["match", str(a), str(tmp_path / "m.h5"), "--other", str(b), "--pairs", "sequential:2"]) == 2
    assert "pairs 'sequential' are of one set of photos" in capsys.readouterr().err


# --- One vector a photo ------------------------------------------------------------------------------------


def test_the_most_alike_are_those_of_a_plain_loop(tmp_path):
    rng = np.random.default_rng(3)
    names, others = [f"q{i}.jpg" for i in range(5)], [f"d/{i}.jpg" for i in range(9)]
    vectors = {name: rng.normal(size=17).astype(np.float32) for name in [*names, *others]}
    with h5py.File(tmp_path / "g.h5", "w") as file:
        for name, vector in vectors.items():
            file.create_group(name)["global_descriptor"] = vector
    expected = set()
    for q in names:
        score = {d: vectors[q] @ vectors[d] / np.linalg.norm(vectors[q]) / np.linalg.norm(vectors[d]) for d in others}
        expected |= {(q, d) for d in sorted(others, key=lambda d: -score[d])[:3]}
    assert set(similar_pairs(names, others, GlobalFeatures([tmp_path / "g.h5"]), 3)) == expected
    found = similar_candidates([tmp_path / "g.h5"], names, others[1:], others, 3)
    assert all(len(photos) == 3 and others[0] not in photos for photos in found.photos.values())


def test_retrieve_takes_files_of_vectors_and_writes_a_list(tmp_path, capsys):
    path, out = circle(tmp_path / "netvlad.h5"), tmp_path / "pairs.txt"
    words = ["retrieve", str(path), str(out), "--top", "1", "--apart", "2"]
    assert cli.main(words) == 0
    pairs = {tuple(line.split()) for line in out.read_text().splitlines()}
    assert {tuple(sorted(p)) for p in pairs} == {tuple(sorted((f"v/{i}.jpg", f"v/{i + 6}.jpg"))) for i in range(6)}
    assert cli.main(words) == 0 and "up to date" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda f: f.create_group("a.jpg/x"), "holds no 'global_descriptor' of any photo: it is an HDF5 file of other"),
        (lambda f: f["v/3.jpg"].attrs.update(x=1), None),
        (lambda f: f["v/3.jpg/global_descriptor"].__setitem__(0, np.nan), "of 'v/3.jpg' is not finite"),
        (
            lambda f: f.create_group("z.jpg").create_dataset("global_descriptor", data=np.ones(4)),
            "'z.jpg' has 4 values",
        ),
    ],
)
def test_files_of_vectors_that_cannot_be_are_told(tmp_path, write, message):
    path = circle(tmp_path / "g.h5", [] if message and "holds no" in message else FRAMES)
    with h5py.File(path, "a") as file:
        write(file)
    if message is None:
        GlobalFeatures([path])
        return
    with pytest.raises(ValueError, match=f"g.h5: .*{message}"):
        GlobalFeatures([path])


def test_photos_without_a_vector_are_told(tmp_path, capsys):
    out, path = tmp_path / "m.h5", circle(tmp_path / "netvlad.h5", FRAMES[:-1])
    words = ["match", str(features(tmp_path / "f.h5")), str(out), "--pairs", "retrieval:2"]
    assert cli.main([*words, "--global-features", str(path)]) == 2
    assert "names 1 photo without 'global_descriptor'" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--global-features", "x.h5"], ["--photos", "x"]])
def test_settings_of_a_rule_that_is_not_asked_for_are_refused(tmp_path, option, capsys):
    words = ["match", str(features(tmp_path / "f.h5")), str(tmp_path / "m.h5"), "--pairs", "exhaustive", *option]
    assert cli.main(words) == 2
    assert f"{option[0]}" in capsys.readouterr().err


# --- Positions ---------------------------------------------------------------------------------------------


def test_positions_on_the_earth():
    """Against COLMAP's own conversion."""
    gps = np.array([[47.3769, 8.5417, 408.0], [-33.8568, 151.2153, 4.0], [0, 0, 0], [89.9, -120.0, 2800.0]])
    expected = pycolmap.GPSTransform().ellipsoid_to_ecef(gps)
    found = [earth_position(*row.tolist(), "here") for row in gps]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(ValueError, match="here is at latitude 91, longitude 0, expected degrees"):
        earth_position(91, 0, 0, "here")


def test_each_photo_is_with_its_nearest():
    rng = np.random.default_rng(1)
    names = [f"{i}.jpg" for i in range(11)]
    at = {name: rng.normal(size=3) for name in names[:-1]}  # the last has no position
    expected = set()
    for a in at:
        near = sorted((b for b in at if b != a), key=lambda b: np.linalg.norm(at[a] - at[b]))
        expected |= {(a, b) for b in near[:3]}
    assert set(near_pairs(names, None, at, 3)) == expected
    assert len(near_pairs(names[:2], names[2:], at, 99)) == 2 * 8
    same = dict.fromkeys(names, np.zeros(3))  # all in one place: still none with itself
    assert all(a != b for a, b in near_pairs(names, None, same, 2)) and len(near_pairs(names, None, same, 2)) == 22


def database(path, rows, newer=True):
    """Photos 1, 2, ... with pose priors (coordinate system, position)."""
    with pycolmap.Database.open(path) as db:
        camera = db.write_camera(pycolmap.Camera(model="SIMPLE_PINHOLE", width=9, height=9, params=[9, 4, 4]))
        for i in range(len(rows)):
            db.write_image(pycolmap.Image(name=f"{i + 1}.jpg", camera_id=camera))
    with sqlite3.connect(path) as connection:
        if not newer:
            connection.execute("DROP TABLE pose_priors")
            connection.execute("CREATE TABLE pose_priors (image_id INTEGER, position BLOB, coordinate_system INTEGER)")
        for i, (system, position) in enumerate(rows):
            blob = np.array(position, np.float64).tobytes()
            if newer:
                connection.execute(
                    "INSERT INTO pose_priors (corr_data_id, corr_sensor_id, corr_sensor_type, position, "
                    "coordinate_system) VALUES (?, ?, 0, ?, ?)", (i + 1, camera, blob, system)
                )  # fmt: skip
            else:
                connection.execute("INSERT INTO pose_priors VALUES (?, ?, ?)", (i + 1, blob, system))
    return path


@pytest.mark.parametrize("newer", [True, False])
def test_pose_priors_of_both_schemas_are_read(tmp_path, newer):
    nan = math.nan
    rows = [(WGS84, (47.0, 8.0, nan)), (WGS84, (nan, nan, nan)), (CARTESIAN, (1.0, 2.0, 3.0)), (-1, (4.0, 5.0, nan))]
    with DatabaseReader(database(tmp_path / "d.db", rows, newer)) as reader:
        found = positions(reader)
    assert sorted(found) == ["1.jpg", "3.jpg", "4.jpg"]
    np.testing.assert_allclose(found["1.jpg"][1], earth_position(47, 8, 0, ""))
    assert found["3.jpg"][1].tolist() == [1, 2, 3] and found["4.jpg"] == (CARTESIAN, pytest.approx([4, 5, 0]))


def test_exif_says_where_a_photo_was_taken(tmp_path):
    exif = Image.Exif()
    gps = {1: "S", 2: (33.0, 51.0, 24.48), 3: "E", 4: (151.0, 12.0, 55.08), 5: b"\x00", 6: 4.0}
    exif.get_ifd(0x8825).update(gps)
    Image.new("L", (8, 8)).save(tmp_path / "a.jpg", exif=exif)
    Image.new("L", (8, 8)).save(tmp_path / "b.jpg")
    expected = earth_position(-33.8568, 151.2153, 4.0, "")
    np.testing.assert_allclose(exif_position(tmp_path / "a.jpg"), expected, atol=1e-3)
    assert exif_position(tmp_path / "b.jpg") is None and exif_position(tmp_path / "none.jpg") is None


def test_nearest_photos_are_matched_and_what_is_missing_is_told(tmp_path, capsys):
    names = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    path, photos, out = features(tmp_path / "f.h5", names), tmp_path / "photos", tmp_path / "m.h5"
    photos.mkdir()
    words = ["match", str(path), str(out), "--pairs", "gps:1"]
    assert cli.main(words) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"no position of any photo is known: {path} holds no pose priors" in told
    for name, longitude in zip(names[:3], (8.0, 8.01, 8.5), strict=True):
        exif = Image.Exif()
        exif.get_ifd(0x8825).update({1: "N", 2: (47.0, 0.0, 0.0), 3: "E", 4: (longitude, 0.0, 0.0)})
        Image.new("L", (8, 8)).save(photos / name, exif=exif)
    assert cli.main([*words, "--photos", str(photos)]) == 0
    assert matched(out) == {("a.jpg", "b.jpg"), ("b.jpg", "c.jpg")}
    assert "1 photo has no position and is in no pair by it, first ['d.jpg']" in capsys.readouterr().err
