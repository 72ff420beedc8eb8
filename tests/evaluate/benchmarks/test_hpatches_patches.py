"""The benchmark of HPatches patches, on patches in the layout of the release."""

import json

import cv2
import numpy as np
import pytest

from tests.support.patch_folder import COUNTS, write_lists, write_patches
from tests.support.place import WIDTH, exact_translator
from xdesc_jax import cli, descriptors
from xdesc_jax.descriptors import DescriptorSpec, register, unit_rows
from xdesc_jax.evaluate.benchmarks import hpatches_patches, patch_strips, results, run_folder
from xdesc_jax.evaluate.benchmarks.hpatches_patches import BENCHMARK, run
from xdesc_jax.translation.translator import Translator


def pooled(patches):
    """Means over 16 squares of a patch, and 8 of them again: unit rows [B, 24]."""
    means = np.asarray(patches).reshape(-1, 4, 8, 4, 8).mean(axis=(2, 4)).reshape(-1, 16)
    means = means - means.mean(axis=1, keepdims=True)
    return unit_rows(np.concatenate([means, means[:, :8]], axis=1))


@pytest.fixture(autouse=True)
def own(monkeypatch):
    """`own-a`, and `own-b` with its values in the order that the exact translator gives."""
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    register(DescriptorSpec("own-a", WIDTH), pooled)
    exact = Translator(exact_translator())
    register(DescriptorSpec("own-b", WIDTH), lambda patches: exact.translate(pooled(patches), "own-a", "own-b"))


@pytest.fixture
def patches(tmp_path):
    return write_patches(tmp_path / "hpatches-release")


def by_name(result):
    return {row.name if row.mode != "naive" else f"{row.name} (naive)": row.values for row in result.rows}


def test_patches_without_jitter_give_perfect_figures_and_an_exact_translator_keeps_them(patches, tmp_path):
    model = exact_translator().save(tmp_path / "model.safetensors")
    found = by_name(run(data=patches, out=tmp_path / "out", model=model, pairs=200))
    for name in ("own-a", "own-b", "own-a -> own-b", "own-b -> own-a", "own-a | own-b"):
        assert set(found[name].values()) == {100.0}, name
    wrong = by_name(
        run(data=patches, out=tmp_path / "naive", descriptors=("own-a", "own-b"), modes=("naive",), pairs=200)
    )
    assert wrong["own-a | own-b (naive)"]["matching"] < 40


def test_noise_costs(tmp_path):
    root = write_patches(tmp_path / "noisy", noise=400.0)
    (row,) = run(data=root, out=tmp_path / "out", descriptors=("own-a",), modes=("native",), pairs=300).rows
    assert 15 < row.values["verification"] < 100 and 0 < row.values["matching"] < 100


def test_a_finished_result_is_read_back_and_another_one_refused(patches, tmp_path, monkeypatch):
    asked = {"data": patches, "out": tmp_path / "out", "descriptors": ("own-a",), "pairs": 50}
    first = run(**asked)
    monkeypatch.setattr(hpatches_patches, "measured", None)
    assert run(**asked) == first
    with pytest.raises(FileExistsError, match=r"another configuration \(pairs: 50 -> 51\)"):
        run(**{**asked, "pairs": 51})


def test_rows_that_were_finished_before_a_stop_are_not_measured_again(patches, tmp_path, monkeypatch):
    asked = {"data": patches, "out": tmp_path / "out", "descriptors": ("own-a", "own-b"), "pairs": 50}
    real, measured = hpatches_patches.measured, []

    def stopping(*arguments):
        if len(measured) == 1:
            raise KeyboardInterrupt
        measured.append(arguments[-1])
        return real(*arguments)

    monkeypatch.setattr(hpatches_patches, "measured", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(**asked)
    monkeypatch.setattr(hpatches_patches, "measured", lambda *a: measured.append(a[-1]) or real(*a))
    assert [row.name for row in run(**asked).rows] == ["own-a", "own-b"] == measured
    assert not (tmp_path / "out" / run_folder.JOURNAL).exists()


def test_the_official_lists_are_used_where_they_are(patches, tmp_path):
    write_lists(patches / "tasks", "full")
    result = run(data=patches, out=tmp_path / "out", descriptors=("own-a",))
    assert "the official lists of split full" in result.data["text"]
    assert "the task lists are drawn" not in result.data["other"]
    file = patches / "tasks" / "retr_queries_split-full.csv"
    file.write_text(file.read_text() + "i_wall,5\n")
    with pytest.raises(
        ValueError, match=r"retr_queries_split-full.csv, line 4: names patch 5 of 'i_wall', which has 5"
    ):
        run(data=patches, out=tmp_path / "again", descriptors=("own-a",))
    file.write_text("s,idx\ni_wall,x\n")
    with pytest.raises(ValueError, match="line 2: 'x' is no number"):
        run(data=patches, out=tmp_path / "again", descriptors=("own-a",))
    file.unlink()
    with pytest.raises(FileNotFoundError, match="retr_queries_split-full.csv: no such list"):
        run(data=patches, out=tmp_path / "again", descriptors=("own-a",))


def test_a_split_is_measured_on_its_sequences_alone(patches, tmp_path):
    result = run(data=patches, out=tmp_path / "out", descriptors=("own-a",), split="illum", pairs=50)
    assert set(result.rows[0].detail["matching"]["e"]) == {"illumination"}
    with pytest.raises(ValueError, match="holds 0 sequences of split 'a'"):
        run(data=patches, out=tmp_path / "a", descriptors=("own-a",), split="a")


def test_what_is_missing_is_told_with_where_to_get_it(patches, capsys):
    assert cli.main(["benchmark", "check", "hpatches-patches", "--data", str(patches.parent)]) == 0
    shown = capsys.readouterr().out
    assert "3 sequences, 21 places, 336 patches" in shown and "other data (116 of 116 sequences" in shown
    (patches / "v_roof" / "h3.png").unlink()
    (patches / "i_door" / "t5.png").write_bytes(b"no PNG")
    assert cli.main(["benchmark", "check", "hpatches-patches", "--data", str(patches)]) == 2
    told = capsys.readouterr()
    for text in ("v_roof/h3.png is missing", "i_door/t5.png is 0x0 px"):
        assert text in told.out and text in told.err
    assert BENCHMARK.source in told.err and "4.2 GB" in told.err
    assert cli.main(["benchmark", "check", "hpatches-patches", "--data", str(patches / "none")]) == 2
    assert "no such folder; hpatches-patches needs" in capsys.readouterr().err


def test_a_descriptor_that_needs_the_photo_is_refused_before_others_are_measured(patches, tmp_path):
    with pytest.raises(ValueError, match="'opencv-sift' is not computed from patches"):
        run(data=patches, out=tmp_path / "out", descriptors=("own-a", "opencv-sift"), modes=("native",), pairs=50)
    assert not (tmp_path / "out").exists()


def test_the_official_set_is_known_by_its_names_and_counts(tmp_path, monkeypatch):
    strip = cv2.imencode(".png", np.zeros((130, 65), np.uint8))[1].tobytes()
    made_up = tmp_path / "names"
    for name in patch_strips.splits()["full"]:
        (made_up / name).mkdir(parents=True)
        for kind in patch_strips.STRIPS:
            (made_up / name / f"{kind}.png").write_bytes(strip)
    found = patch_strips.check(made_up)
    assert not found.problems and not found.official and "where the set has 1970 at least" in found.verdict
    monkeypatch.setitem(patch_strips.facts(), "least_patches", {"i_zion": 2})
    assert patch_strips.check(made_up).verdict == "the official set"


def test_results_of_several_folders_are_printed_each_with_its_data(patches, tmp_path, capsys):
    run(data=patches, out=tmp_path / "out", descriptors=("own-a",), pairs=50)
    capsys.readouterr()
    assert cli.main(["benchmark", "table", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "HPatches patches: 3 sequences" in shown and "other data" in shown and "own-a" in shown
    saved = json.loads((tmp_path / "out" / results.RESULT).read_text())
    assert saved["data"]["official"] is False and "the task lists are drawn" in saved["data"]["other"]


def test_splits_are_those_of_the_benchmark():
    splits = patch_strips.splits()
    assert {name: len(found) for name, found in splits.items()} == {
        "a": 40, "b": 40, "c": 40, "full": 116, "illum": 57, "view": 59
    }  # fmt: skip
    assert set(splits["illum"]) | set(splits["view"]) == set(splits["full"])


def test_counts_are_those_that_the_tests_believe(patches):
    assert {name: patch_strips.count(patches, name) for name in COUNTS} == COUNTS
    assert patch_strips.resized(patch_strips.read_strip(patches / "i_wall" / "e2.png")).shape == (5, 32, 32)
