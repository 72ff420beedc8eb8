"""Localised queries against true poses, from JSON and from text."""

import json

import pytest

from tests.evaluate.test_alignment import MOVED
from tests.evaluate.test_poses import FOUND, REFERENCE
from tests.support.html_page import HtmlPage
from tests.support.pose_models import write_model
from xdesc_jax.cli import main
from xdesc_jax.colmap.lists import write_poses
from xdesc_jax.evaluate.localization import read_localized


@pytest.fixture
def reference(tmp_path):
    """A COLMAP model of the four true poses."""
    return write_model(tmp_path / "true", REFERENCE)


def entry(name):
    pose = FOUND.get(name)
    if pose is None:
        return {"status": "failed", "reason": "no pose fits", "qvec": None, "tvec": None, "inliers": 3}
    found = {"qvec": pose.quaternion.tolist(), "tvec": pose.translation.tolist()}
    return {"status": "localized", "reason": None, "inliers": 20 * ("abc".index(name) + 1), **found}


@pytest.fixture
def results(tmp_path):
    (tmp_path / "localized").mkdir()
    path = tmp_path / "localized" / "results.json"
    path.write_text(json.dumps({"queries": {name: entry(name) for name in REFERENCE}}))
    return path


def test_failed_queries_count_as_not_localised(results, reference, tmp_path, capsys):
    out = tmp_path / "out"
    assert (
        main(["evaluate", "localization", str(results.parent), "--reference", str(reference), "--out", str(out)]) == 0
    )
    value = json.loads((out / "results.json").read_text())
    assert value["within"] == {"0.25 m, 2 deg": 0.25, "0.5 m, 5 deg": 0.5, "5 m, 10 deg": 0.75}
    assert value["failed"] == ["d"] and value["localized"] == 3
    assert value["per_query"][3] == {
        "name": "d",
        "position": None,
        "rotation_deg": None,
        "inliers": 3,
        "reason": "no pose fits",
    }
    assert value["median_position"] == pytest.approx(0.2, abs=1e-6)
    page = HtmlPage.read(out / "report.html")
    page.check()
    assert page.by_class["answer"] == ["1 of 4 queries localised within 0.25 m, 2 deg."]
    assert page.by_class["numbers"][0].startswith("queries localised at all 3 of 4 median position error 0.2 m")
    assert page.by_class["numbers"][0].endswith("median inliers of the 3 localised 40")
    assert ["0.5 m, 5 deg", "2", "50.0"] in page.rows
    assert page.rows[-1] == ["d", "\u2013", "\u2013", "3", "no pose fits"]
    assert "0.25 m, 2 deg" in capsys.readouterr().out


def test_text_of_poses_with_the_list_of_queries(reference, tmp_path):
    write_poses(tmp_path / "poses.txt", FOUND)
    (tmp_path / "queries.txt").write_text("".join(f"{name} SIMPLE_PINHOLE 8 6 9 4 3\n" for name in REFERENCE))
    words = [
        "evaluate",
        "localization",
        str(tmp_path / "poses.txt"),
        "--reference",
        str(reference),
        "--scale",
        "relative",
    ]
    assert main([*words, "--out", str(tmp_path / "a"), "--queries", str(tmp_path / "queries.txt")]) == 0
    assert main([*words, "--out", str(tmp_path / "b")]) == 0
    a, b = (json.loads((tmp_path / x / "results.json").read_text()) for x in "ab")
    assert (a["queries"], b["queries"]) == (4, 3) and a["unit"] == pytest.approx(1.5)
    assert a["within"]["0.5 u, 5 deg"] == 0.5 and b["within"]["0.5 u, 5 deg"] == pytest.approx(2 / 3)


def test_json_of_something_else_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[1]")
    with pytest.raises(ValueError, match=r"a\.json: has no 'queries'"):
        read_localized(path)
    path.write_text('{"queries": {"q": {"status": "localized", "inliers": 3}}}')
    with pytest.raises(ValueError, match=r"a\.json: query 'q' is .*qvec"):
        read_localized(path)


def test_queries_move_with_the_map_that_they_were_localised_in(reference, tmp_path, capsys):
    """The map's own frame is the reference's, turned, scaled and shifted."""
    moved = {name: MOVED.pose(pose) for name, pose in REFERENCE.items()}
    write_poses(tmp_path / "poses.txt", {name: MOVED.pose(pose) for name, pose in FOUND.items()})
    words = ["evaluate", "localization", tmp_path / "poses.txt", "--reference", reference, "--out", tmp_path / "out"]
    assert main([*map(str, words), "--map", str(write_model(tmp_path / "map", moved))]) == 0
    value = json.loads((tmp_path / "out" / "results.json").read_text())
    assert value["median_position"] == pytest.approx(0.2, abs=1e-6)
    assert value["within"]["0.5 m, 5 deg"] == pytest.approx(2 / 3)
    two = write_model(tmp_path / "two", dict(list(moved.items())[:2]))
    assert main([*map(str, words), "--map", str(two)]) == 2
    assert "two: cannot be aligned" in capsys.readouterr().err
