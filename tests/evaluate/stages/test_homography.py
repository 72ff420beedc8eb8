"""The stage `xdesc evaluate homography`."""

import json
import shutil
import subprocess
import sys

import h5py
import pytest

from tests.support.in_use import check_refused_while_in_use
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli, console, descriptors
from xdesc_jax.evaluate import finished
from xdesc_jax.evaluate import homography as comparing
from xdesc_jax.evaluate.calibrate import calibrate
from xdesc_jax.evaluate.homography import Comparison
from xdesc_jax.evaluate.stages import homography as command
from xdesc_jax.evaluate.stages.homography import computable, given_stores, homography
from xdesc_jax.files.claim import beside


def by_comparison(results):
    return {result.comparison: result.mean for result in results}


def test_an_exact_translator_gives_perfect_rows_in_json_and_report(scene_folder, feature_folder, model, tmp_path):
    results = homography(scene_folder, out=tmp_path / "out", features=(feature_folder,), model=model)
    found = by_comparison(results)
    for mode in ("translated", "joint"):
        measures = found[Comparison(mode, "own-a", "own-b")]
        assert (measures.ap, measures.precision, measures.correct) == (1, 1, 29)
    assert found[Comparison("naive", "own-a", "own-b")].ap < 0.3
    saved = json.loads((tmp_path / "out/homography.json").read_text())
    assert [row["mean"]["ap"] for row in saved["results"]] == [result.mean.ap for result in results]
    assert "own-a \u2192 own-b" in (tmp_path / "out/report.html").read_text()


def test_one_pair_of_one_scene_is_said_so(scene_folder, feature_folder, tmp_path):
    shutil.rmtree(scene_folder / "wall")
    for name in ("H_1_3", "3.png"):
        (scene_folder / "door" / name).unlink()
    homography(scene_folder, out=tmp_path / "out", features=(feature_folder,))
    page = (tmp_path / "out/report.html").read_text()
    assert "1 pair of 1 scene; the query" in page and "photo pairs" not in page


def test_finished_work_is_read_back_and_another_configuration_refused(
    scene_folder, feature_folder, model, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    first = homography(scene_folder, out=out, features=(feature_folder,), model=model)
    with pytest.raises(FileExistsError, match=r"another configuration \(model: .* -> None\)"):
        homography(scene_folder, out=out, features=(feature_folder,))
    monkeypatch.setattr(command, "evaluate", lambda *_: pytest.fail("evaluated again"))
    assert homography(scene_folder, out=out, features=(feature_folder,), model=model) == first


@pytest.fixture(params=["one file a descriptor", "across"])
def words(request, scene_folder, feature_folder, model):
    """The command line without --out, of eight comparisons of a pair, or of five across files."""
    files = [feature_folder] if request.param != "across" else [feature_folder / "own-a.h5"]
    other = ["--other", feature_folder / "own-b.h5"] if request.param == "across" else []
    return ["evaluate", "homography", scene_folder, "--features", *files, *other, "--model", model, "--out"]


def run(words, out):
    return cli.main([str(word) for word in [*words, out]])


def stopped(words, out, searched, until):
    searched.done, searched.until = 0, until
    with pytest.raises(Stopped):
        run(words, out)
    searched.done, searched.until = 0, None


def test_a_stopped_evaluation_goes_on_and_ends_as_an_undisturbed_one(words, tmp_path, monkeypatch, caplog):
    # In folders of their own: a page links those beside it.
    expected, out, shown = tmp_path / "expected" / "run", tmp_path / "stopped" / "run", []
    searched, track = Calls(monkeypatch, comparing, "_search"), console.track
    assert run(words, expected) == 0
    of_pair = searched.done // 4
    stopped(words, out, searched, 2 * of_pair + 1)

    def shown_as(pairs, *text, **done):
        shown.append((len(pairs), done))
        return track(pairs, *text, **done)

    monkeypatch.setattr(finished.console, "track", shown_as)
    with caplog.at_level("INFO", "xdesc_jax"):
        assert run(words, out) == 0
    assert searched.done == 2 * of_pair and "going on: 2 of 4 pairs finished already" in caplog.text
    assert shown == [(4, {"finished": 2})]
    names = ["homography.json", "report.html"]
    assert sorted(path.name for path in out.iterdir()) == names
    for name in names:
        assert (out / name).read_bytes() == (expected / name).read_bytes()


def test_pairs_of_another_configuration_are_not_taken_over(words, scene_folder, tmp_path, monkeypatch, caplog):
    expected, out = tmp_path / "expected", tmp_path / "out"
    searched = Calls(monkeypatch, comparing, "_search")
    stopped(words, out, searched, 12)
    (scene_folder / "door/H_1_2").write_text("1 0 -9\n0 1 0\n0 0 1\n")
    with caplog.at_level("INFO", "xdesc_jax"):
        assert run(words, out) == 0
    done, searched.done = searched.done, 0
    assert run(words, expected) == 0
    assert done == searched.done and "other settings or inputs" in caplog.text
    assert (out / "homography.json").read_bytes() == (expected / "homography.json").read_bytes()


def test_a_stop_behind_the_last_pair_measures_nothing_again(words, tmp_path, monkeypatch):
    searched, written = Calls(monkeypatch, comparing, "_search"), Calls(monkeypatch, command, "write_json")
    written.until = 0
    with pytest.raises(Stopped):
        run(words, tmp_path / "out")
    searched.done, written.until = 0, None
    assert run(words, tmp_path / "out") == 0 and searched.done == 0


def test_an_evaluation_started_twice_says_who_evaluates(words, tmp_path, capsys):
    out = tmp_path / "out" / "homography.json"
    check_refused_while_in_use([*words, out.parent], beside(out), out, capsys)


@pytest.mark.parametrize("text", ["{}", "[]", '{"hash": ', ""])
def test_a_damaged_result_is_refused_by_name_and_overwritten_on_demand(scene_folder, feature_folder, tmp_path, text):
    out = tmp_path / "out"
    out.mkdir()
    (out / "homography.json").write_text(text)
    with pytest.raises((ValueError, FileExistsError), match=r"homography\.json"):
        homography(scene_folder, out=out, features=(feature_folder,))
    homography(scene_folder, out=out, features=(feature_folder,), overwrite=True)
    assert json.loads((out / "homography.json").read_text())["results"]


def test_another_homography_is_another_configuration(scene_folder, feature_folder, tmp_path):
    homography(scene_folder, out=tmp_path / "out", features=(feature_folder,))
    (scene_folder / "wall/H_1_2").write_text("1 0 -9\n0 1 0\n0 0 1\n")
    with pytest.raises(FileExistsError):
        homography(scene_folder, out=tmp_path / "out", features=(feature_folder,))


def test_features_are_extracted_where_none_are_given(scene_folder, tmp_path):
    results = homography(scene_folder, out=tmp_path / "out", descriptors=("brief", "opencv-sift"), max_keypoints=80)
    assert [result.comparison.label for result in results] == ["brief", "opencv-sift"]
    assert all(0.5 < result.mean.ap <= 1 for result in results)
    assert (tmp_path / "out/features/opencv-sift.h5").exists()


def test_something_to_extract_must_be_named(scene_folder, tmp_path):
    with pytest.raises(ValueError, match="name --descriptors"):
        homography(scene_folder, out=tmp_path / "out")


def test_what_the_model_knows_from_files_alone_is_asked_for_as_a_file(scene_folder, model, tmp_path, monkeypatch):
    monkeypatch.delitem(descriptors._REGISTRY, "own-b", raising=False)  # opening a file that says so registers it
    with pytest.raises(ValueError, match="^--descriptors own-b: .* give its rows with --features"):
        homography(scene_folder, out=tmp_path / "out", descriptors=("brief", "own-b"), model=model)
    with pytest.raises(ValueError, match="^--descriptors own-b: .* give its rows with --features"):
        calibrate(model, scene_folder, out=tmp_path / "out.safetensors", descriptors=("own-b",))


def test_stores_are_found_by_folder_and_by_file(feature_folder):
    files = {name: feature_folder / f"{name}.h5" for name in ("own-a", "own-b")}
    assert given_stores([feature_folder]) == files
    assert given_stores(list(files.values())) == files
    assert list(given_stores([feature_folder], ("own-b",))) == ["own-b"]


def test_missing_and_repeated_stores_are_refused(feature_folder, tmp_path):
    with pytest.raises(ValueError, match=r"no feature file of sift \(given: own-a, own-b\)"):
        given_stores([feature_folder], ("sift",))
    with pytest.raises(ValueError, match="two files hold 'own-a'"):
        given_stores([feature_folder, feature_folder / "own-a.h5"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no feature file"):
        given_stores([tmp_path / "empty"])


def test_bad_scenes_end_in_one_line_and_status_2(scene_folder, feature_folder, tmp_path, capsys):
    (scene_folder / "wall/H_1_3").unlink()
    words = ["evaluate", "homography", str(scene_folder), "--features", str(feature_folder)]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "photo 3 has no homography file H_1_3" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_evaluation_needs_no_jax_flax_or_tensorflow():
    blocked = "import sys; sys.modules.update(dict.fromkeys(['jax', 'flax', 'tensorflow', 'cv2', 'pycolmap']));"
    modules = ("measures", "scenes", "homography", "drawing", "report", "stages.homography", "calibrate")
    imports = ";".join(f"import xdesc_jax.evaluate.{name}" for name in modules)
    subprocess.run([sys.executable, "-c", blocked + imports], check=True, capture_output=True)


def bare(folder):
    """Feature files as others write them: nothing says what they hold."""
    for path in folder.glob("*.h5"):
        with h5py.File(path, "r+") as file:
            for key in list(file.attrs):
                del file.attrs[key]
    return folder


def test_files_named_after_descriptors_that_the_model_alone_knows_are_evaluated(
    scene_folder, feature_folder, model, tmp_path
):
    found = homography(scene_folder, out=tmp_path / "out", features=(bare(feature_folder),), model=model)
    labels = {result.comparison.label for result in found}
    assert {"own-a", "own-b", "own-a -> own-b", "own-b -> own-a", "own-a | own-b"} <= labels
    assert all(result.mean.ap == 1 for result in found if result.comparison.mode == "translated")


def test_a_file_that_is_not_named_after_its_descriptor_is_refused_with_how_to_name_it(feature_folder):
    (bare(feature_folder) / "own-a.h5").rename(feature_folder / "rows.h5")
    with pytest.raises(ValueError, match=r"rows\.h5: does not say which descriptor it holds; name the file after it"):
        given_stores([feature_folder / "rows.h5"])


def test_the_same_files_calibrate(scene_folder, feature_folder, model, tmp_path):
    found = calibrate(model, scene_folder, out=tmp_path / "out.safetensors", features=(bare(feature_folder),))
    assert set(found) >= {"own-a->own-b", "own-b->own-a", "own-a|own-b"}


@pytest.mark.parametrize(
    ("keypoints", "expected"), [("opencv", ("brief", "orb")), ("colmap", ("brief", "colmap-sift", "orb"))]
)
def test_what_photos_do_not_give_is_left_out_with_one_line(keypoints, expected, caplog, capsys):
    names = ["brief", "colmap-sift", "mine", "orb"]
    assert computable(names, keypoints) == expected
    left = ", ".join(name for name in names if name not in expected)
    told = caplog.text + capsys.readouterr().err
    assert f"{left}: left out, since it is not computed from these photos; give its rows with --features" in told


def test_a_model_of_nothing_that_photos_give_is_refused(scene_folder, model, tmp_path, capsys):
    words = ["evaluate", "homography", str(scene_folder), "--out", str(tmp_path / "out"), "--model", str(model)]
    assert cli.main(words) == 2
    assert "own-a, own-b: left out" in capsys.readouterr().err and not (tmp_path / "out").exists()
