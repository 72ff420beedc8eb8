"""A `localize` that was stopped goes on, and any number of workers ends in the same files."""

from __future__ import annotations

import json

import pytest

from tests.support.in_use import check_refused_while_in_use
from tests.support.killed import kill_within
from tests.support.stopped import Calls, Stopped
from xdesc_jax.cli import main
from xdesc_jax.files.claim import inside
from xdesc_jax.localization.localizer import Localizer

KILLED = """
import os, signal, sys
from xdesc_jax.cli import main
from xdesc_jax.localization.localizer import Localizer
localize, calls = Localizer.localize, []
def deadly(self, *arguments, **options):
    calls.append(1)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return localize(self, *arguments, **options)
Localizer.localize = deadly
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def words(place, tmp_path_factory):
    """All eight photos of the place as queries."""
    path, lines = tmp_path_factory.mktemp("queries") / "queries.txt", []
    for name, camera in place.cameras.items():
        lines.append(f"{name} {camera.model} {camera.width} {camera.height} {' '.join(map(str, camera.params))}\n")
    path.write_text("".join(lines))

    def of(out, *more):
        given = ["localize", place.model, out, "--features", place.features["own-a"], "--queries", path]
        return [str(word) for word in (*given, "--pairs", "exhaustive", *more)]

    return of


@pytest.fixture(scope="module")
def undisturbed(words, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    assert main(words(out)) == 0
    return out


@pytest.fixture
def localized(monkeypatch):
    return Calls(monkeypatch, Localizer, "localize")


def check_same(out, expected):
    """All files, byte for byte but for the seconds that queries took."""
    names = ["correspondences.npz", "poses.txt", "results.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    for name in names[:2]:
        assert (out / name).read_bytes() == (expected / name).read_bytes(), name
    found = [json.loads((folder / names[2]).read_text()) for folder in (out, expected)]
    for results in found:
        for query in results["queries"].values():
            del query["seconds"]
    assert json.dumps(found[0]) == json.dumps(found[1])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_run_goes_on_and_ends_as_an_undisturbed_one(words, undisturbed, tmp_path, localized, workers):
    out = tmp_path / "out"
    localized.until = 6
    with pytest.raises(Stopped):
        main(words(out, "--workers", workers))
    kept = 6 if workers == 1 else 3  # of those that waited for an earlier one, all but a few
    assert [path.name for path in out.iterdir()] == [".queries.part"]
    localized.done, localized.until = 0, None
    assert main(words(out)) == 0
    assert localized.done <= 8 - kept
    check_same(out, undisturbed)


@pytest.mark.parametrize("workers", [2, 5, 20])
def test_any_number_of_workers_gives_the_same_in_the_same_order(words, undisturbed, tmp_path, workers):
    assert main(words(tmp_path / "out", "--workers", workers)) == 0
    check_same(tmp_path / "out", undisturbed)


def test_a_killed_run_goes_on_and_ends_as_an_undisturbed_one(words, undisturbed, tmp_path, localized, caplog):
    out = tmp_path / "out"
    kill_within(KILLED, *words(out))
    with caplog.at_level("INFO", "xdesc_jax"):
        assert main(words(out)) == 0
    assert localized.done == 4 and "going on: 4 of 8 queries are finished" in caplog.text
    check_same(out, undisturbed)


def test_queries_of_other_settings_are_localised_anew_and_that_is_said(words, tmp_path, localized, caplog):
    out = tmp_path / "out"
    localized.until = 6
    with pytest.raises(Stopped):
        main(words(out))
    localized.done, localized.until = 0, None
    with caplog.at_level("INFO", "xdesc_jax"):
        assert main(words(out, "--min-inliers", 20)) == 0
    assert localized.done == 8
    assert f"{out / '.queries.part'}: was made with other settings or inputs" in caplog.text


def test_a_localisation_started_twice_says_who_localises(words, tmp_path, capsys):
    check_refused_while_in_use(words(tmp_path / "out"), inside(tmp_path / "out"), tmp_path / "out", capsys)


def test_no_worker_is_refused(words, tmp_path, capsys):
    assert main(words(tmp_path / "out", "--workers", 0)) == 2
    assert "workers is 0, expected at least 1" in capsys.readouterr().err
