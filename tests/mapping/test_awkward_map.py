"""A map as strangers have them through every stage, and runs that end in the middle."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from tests.support.awkward_map import BLANK, QUERY, SEEN, make_awkward_map
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.lists import read_poses
from xdesc_jax.matching.matches import MatchFile

MAPPED = sorted(set(SEEN) - {QUERY})
BARE = "d.jpg"  # loses its descriptors in the tests that need such a photo


def run(*words):
    return cli.main([str(word) for word in words])


@pytest.fixture(scope="module")
def awkward(tmp_path_factory):
    return make_awkward_map(tmp_path_factory.mktemp("awkward"))


@pytest.fixture(scope="module")
def matches(awkward, tmp_path_factory):
    out = tmp_path_factory.mktemp("matches") / "m.h5"
    assert run("match", awkward.features, out, "--pairs", "exhaustive") == 0
    return out


def reconstruct_words(awkward, matches, out):
    words = ["reconstruct", awkward.features, out, "--matches", matches, "--intrinsics", awkward.intrinsics]
    return [str(word) for word in (*words, "--only", awkward.mapped, "--threads", 1)]


@pytest.fixture(scope="module")
def made(awkward, matches, tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "out"
    assert run(*reconstruct_words(awkward, matches, out)) == 0
    return out


def model_bytes(out):
    return {path.name: path.read_bytes() for path in (out / "models" / "0").iterdir()}


def localize(out, model, features, awkward, *words):
    given = ["localize", model, out, "--features", features, "--query-features", awkward.features]
    return run(*given, "--queries", awkward.queries, *words)


# --- Names and photos without keypoints ----------------------------------------------------------------------


def test_names_of_all_kinds_are_matched_apart(matches):
    with MatchFile(matches) as file:
        assert {name for pair in file.pairs() for name in pair} == {*SEEN, BLANK}
        counts = {pair: len(file.read(*pair)[0]) for pair in file.pairs()}
    assert {n for pair, n in counts.items() if BLANK in pair} == {0}
    assert all(150 <= n < 160 for pair, n in counts.items() if BLANK not in pair)  # a few by chance


def test_names_of_all_kinds_are_mapped_and_the_blank_wall_is_told(made):
    assert read_model(made / "models" / "0").names == tuple(MAPPED)
    summary = json.loads((made / "summary.json").read_text())
    assert summary["not_registered"] == [BLANK] and summary["database"]["photos_without_keypoints"] == 1


@pytest.mark.parametrize("pairs", ["exhaustive", "list"])
def test_a_query_is_localised_and_the_blank_wall_fails_with_its_reason(awkward, made, tmp_path, pairs):
    if pairs == "list":
        pairs = tmp_path / "pairs.txt"
        pairs.write_text("".join(f"{q}\t{name}\n" for q in (QUERY, BLANK) for name in MAPPED), encoding="utf-8")
    assert localize(tmp_path / "out", made / "models" / "0", awkward.features, awkward, "--pairs", pairs) == 0
    queries = json.loads((tmp_path / "out" / "results.json").read_text())["queries"]
    assert (queries[QUERY]["status"], queries[QUERY]["inliers"]) == ("localized", 150)
    assert (queries[BLANK]["status"], queries[BLANK]["reason"]) == ("failed", "no keypoints")
    assert list(read_poses(tmp_path / "out" / "poses.txt")) == [QUERY]


def test_the_map_is_evaluated_under_all_names(awkward, made, tmp_path):
    assert run("evaluate", "sfm", made / "models" / "0", "--reference", awkward.model, "--out", tmp_path / "out") == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["aligned"] and (found["photos"], found["registered"]) == (7, 6)
    assert {name for name, e in found["per_photo"].items() if e["position"] is not None} == set(MAPPED)


def test_the_same_input_twice_gives_the_same_with_one_thread(awkward, matches, made, tmp_path):
    assert run("match", awkward.features, tmp_path / "m.h5", "--pairs", "exhaustive") == 0
    assert run(*reconstruct_words(awkward, tmp_path / "m.h5", tmp_path / "out")) == 0
    assert model_bytes(tmp_path / "out") == model_bytes(made)
    poses = []
    for out in (tmp_path / "1", tmp_path / "2"):
        assert localize(out, made / "models" / "0", awkward.features, awkward, "--pairs", "exhaustive") == 0
        poses.append((out / "poses.txt").read_bytes())
    assert poses[0] == poses[1]


@pytest.mark.parametrize(
    ("number", "more", "reason"),
    [
        (1, (), "no pair of its 1 photos"),
        (2, (), "gives a model of 3 photos: smaller ones are given up (--min-model-size)"),
        (2, ("--min-model-size", "2"), "gives a model of 2 photos: points that only two photos see are left out"),
    ],
)
def test_one_or_two_photos_are_no_map_and_the_reason_is_told(awkward, matches, tmp_path, capsys, number, more, reason):
    only = tmp_path / "only.txt"
    only.write_text("".join(f"{name}\n" for name in SEEN[:number]), encoding="utf-8")
    words = reconstruct_words(awkward, matches, tmp_path / "out")
    words[words.index("--only") + 1] = str(only)
    assert run(*words, *more) == 2
    assert reason in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "models").exists()


# --- Photos without descriptors -------------------------------------------------------------------------------


def edited(made, out, *statements):
    shutil.copy(made / "database.db", out)
    connection = sqlite3.connect(out)
    for statement in ("DELETE FROM matches", "DELETE FROM two_view_geometries", *statements):
        connection.execute(statement)
    connection.commit()
    connection.close()
    return out


def test_keypoints_without_descriptors_pass_through_all_stages(awkward, made, tmp_path):
    of_bare = "WHERE image_id = (SELECT image_id FROM images WHERE name = 'd.jpg')"
    db = edited(made, tmp_path / "d.db", f"DELETE FROM descriptors {of_bare}")
    assert run("inspect", db) == 0
    assert run("match", db, tmp_path / "m.db", "--pairs", "exhaustive") == 0
    assert run("reconstruct", tmp_path / "m.db", tmp_path / "out", "--threads", 1) == 0
    model = tmp_path / "out" / "models" / "0"
    assert read_model(model).names == tuple(name for name in MAPPED if name != BARE)
    # The true map sees its points from the bare photo, too.
    assert localize(tmp_path / "loc", made / "models" / "0", db, awkward, "--pairs", "exhaustive") == 0
    assert json.loads((tmp_path / "loc" / "results.json").read_text())["queries"][QUERY]["inliers"] == 150
    assert run("evaluate", "sfm", model, "--reference", awkward.model, "--out", tmp_path / "report") == 0


@pytest.mark.parametrize("stage", ["match", "localize"])
def test_a_database_without_the_table_of_descriptors_is_refused_with_the_reason(awkward, made, tmp_path, capsys, stage):
    db = edited(made, tmp_path / "d.db", "DROP TABLE descriptors", "DELETE FROM xdesc_images")
    if stage == "match":
        assert run("match", db, tmp_path / "m.db", "--pairs", "exhaustive") == 2
    else:
        assert localize(tmp_path / "out", made / "models" / "0", db, awkward, "--pairs", "exhaustive") == 2
    message = capsys.readouterr().err
    assert str(db) in message and "descriptor" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.db"]


# --- Files that are damaged, a disk that is full, runs that are killed ----------------------------------------


@pytest.mark.parametrize("signature", [b"SNOD", b"TREE", b"HEAP", b"OHDR"])
def test_a_match_file_damaged_inside_is_named(awkward, matches, tmp_path, capsys, signature):
    """A file of ours, or, whose parts have other names, one in the format in which others write."""
    file, version = tmp_path / "whole.h5", "v110" if signature == b"OHDR" else "earliest"
    with h5py.File(matches) as held, h5py.File(file, "w", libver=version) as copy:
        for name in held:
            held.copy(name, copy)
        copy.attrs.update(held.attrs)
    assert signature in file.read_bytes()
    (tmp_path / "m.h5").write_bytes(file.read_bytes().replace(signature, b"\0\0\0\0"))
    assert run(*reconstruct_words(awkward, tmp_path / "m.h5", tmp_path / "out")) == 2
    assert f"{tmp_path / 'm.h5'}: " in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*"))


LIMITED = """
import resource, sys
from xdesc_jax import cli
import xdesc_jax.mapping.reconstruct
sys.dont_write_bytecode = True  # of which half would be written
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.exit(cli.main(sys.argv[2:]))
"""
# Kills the process when a function of the package was called `calls` times.
KILLED = """
import importlib, os, signal, sys
from xdesc_jax import cli
module, name = importlib.import_module(sys.argv[1]), sys.argv[2]
function, left = getattr(module, name), [int(sys.argv[3])]
def call(*args, **kwargs):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args, **kwargs)
setattr(module, name, call)
cli.main(sys.argv[4:])
"""


def python(code, *words):
    root = Path(cli.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, cwd=root, check=False
    )


@pytest.mark.parametrize("size", [3000, 150_000, 330_000])
def test_a_full_disk_is_told_with_the_file_and_the_next_run_ends_in_the_same(awkward, matches, made, tmp_path, size):
    words = reconstruct_words(awkward, matches, tmp_path / "out")
    ended = python(LIMITED, size, *words)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
    assert f"{tmp_path / 'out'}" in ended.stderr and "cannot be opened or written" in ended.stderr
    assert not list((tmp_path / "out").glob("*"))
    assert run(*words) == 0
    assert model_bytes(tmp_path / "out") == model_bytes(made)


@pytest.mark.parametrize(
    ("module", "function", "calls"),
    [
        ("xdesc_jax.mapping.build", "_read_matches", 7),
        ("xdesc_jax.colmap.bindings.mapper", "write_model", 1),
        ("xdesc_jax.mapping.reconstruct", "write_json", 1),
    ],
)
def test_a_killed_reconstruction_goes_on_to_the_same_models(awkward, matches, made, tmp_path, module, function, calls):
    words = reconstruct_words(awkward, matches, tmp_path / "out")
    assert python(KILLED, module, function, calls, *words).returncode == -signal.SIGKILL
    assert not (tmp_path / "out" / "summary.json").exists()
    assert run(*words) == 0
    assert model_bytes(tmp_path / "out") == model_bytes(made)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["database.db", "models", "summary.json"]
