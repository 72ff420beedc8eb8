"""Dry runs: what a stage would do is what it then does, and nothing is written to find out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import aligned_stores
from tests.support.blob_photos import write_blobs
from tests.support.place import Place
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.features import extract as extracting
from xdesc_jax.files import whole as files_whole
from xdesc_jax.pretrained import resolve

MADE, REPLACED = "would be made", "would be replaced"
FINISHED, REFUSED = "is finished, would be skipped", "was made with another configuration, would be refused"


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def planned(capsys, folder: Path, words: list[str], status: int = 0) -> str:
    """What a dry run prints; the folder stays as it is."""
    before = tree(folder)
    capsys.readouterr()
    assert cli.main(["plan", *words]) == status
    assert tree(folder) == before
    return capsys.readouterr().out


Stage = Callable[[Path, Place], tuple[list[str], list[str], list[str]]]


def translate(folder: Path, place: Place):
    words = ["translate", str(place.features["own-b"]), str(folder / "out.h5"), "--model", str(place.translator)]
    return [*words, "--target", "own-a"], [*words, "--target", "embedding"], ["out.h5"]


def match(folder: Path, place: Place):
    words = ["match", str(place.features["own-a"]), str(folder / "out.h5"), "--pairs", "exhaustive"]
    return words, [*words, "--ratio", "0.5"], ["out.h5"]


def retrieve(folder: Path, place: Place):
    files = [str(place.features["own-a"]), str(folder / "pairs.txt"), "--model", str(place.translator)]
    return ["retrieve", *files], ["retrieve", *files, "--top", "1"], ["pairs.txt"]


def localize(folder: Path, place: Place):
    (folder / "queries.txt").write_text(place.query_list)
    words = ["localize", str(place.model), str(folder / "out"), "--features", str(place.features["own-a"])]
    words += ["--queries", str(folder / "queries.txt"), "--pairs", "exhaustive"]
    return words, [*words, "--seed", "1"], ["out/results.json"]


def extract(folder: Path, place: Place):
    photos = write_blobs(folder / "photos", ["a.png", "b.png"])
    words = ["extract", str(photos), str(folder / "out"), "--keypoints", "opencv", "--descriptors", "orb", "brief"]
    return words, [*words, "--max-keypoints", "3"], ["out/orb.h5", "out/brief.h5"]


def scenes(folder: Path, place: Place):
    photos = write_blobs(folder / "photos", ["a.png", "b.png"])
    words = ["scenes", str(folder / "out"), "--photos", str(photos), "--validation-share", "None", "--views", "1"]
    return words, [*words, "--seed", "1"], ["out"]


def views(folder: Path, place: Place):
    photos = write_blobs(folder / "photos", ["a.png", "b.png"])
    words = ["views", str(photos), str(folder / "out"), "--views", "0"]
    return words, [*words, "--seed", "1"], ["out"]


def records(folder: Path, place: Place):
    counts = {f"{i}.jpg": 9 for i in range(4)}
    files = [str(aligned_stores.write_store(folder / f"{name}.h5", name, counts)) for name in ("brief", "sift")]
    words = ["records", str(folder / "out"), "--format", "npy", "--paired", *files]
    return words, [*words, "--seed", "1"], ["out"]


def export(folder: Path, place: Place):
    words = ["export", str(place.translator), str(folder / "out.npz"), "--format", "npz"]
    return words, [*words, "--source", "own-a", "--target", "own-b"], ["out.npz"]


STAGES: list[Stage] = [translate, match, retrieve, localize, extract, scenes, views, records, export]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_a_plan_tells_what_would_be_made_skipped_refused_and_replaced(stage, place, tmp_path, capsys):
    words, changed, outputs = stage(tmp_path, place)

    def expect(state: str, shown: str) -> None:
        assert [line for line in shown.splitlines() if line.startswith("writes ")] == [
            f"writes  {tmp_path / name}: {state}" for name in outputs
        ]

    expect(MADE, planned(capsys, tmp_path, words))
    assert cli.main(words) == 0
    expect(FINISHED, planned(capsys, tmp_path, words))
    expect(REFUSED, planned(capsys, tmp_path, changed, status=2))
    assert cli.main(changed) == 2 and "(hash " not in capsys.readouterr().err
    expect(REPLACED, planned(capsys, tmp_path, [*changed, "--overwrite"]))


def test_inputs_are_listed_with_what_they_are_and_their_size(place, tmp_path, capsys):
    words = ["translate", str(place.features["own-b"]), str(tmp_path / "out.h5"), "--model", str(place.translator)]
    shown = planned(capsys, tmp_path, [*words, "--target", "own-a"])
    size = place.features["own-b"].stat().st_size / 1e3
    assert f"reads   {place.features['own-b']} (feature file of own-b, 8 photos, {size:.0f} kB)" in shown
    assert f"reads   {place.translator} (model or weight file, " in shown


def test_a_shipped_model_is_an_input(tmp_path, capsys):
    shown = planned(capsys, tmp_path, ["inspect", "opencv"])
    size = resolve("opencv").stat().st_size / 1e6
    assert f"opencv.safetensors (model or weight file, {size:.1f} MB)" in shown and 15 < size < 25


def test_photos_that_are_done_are_counted_unless_they_have_changed(place, tmp_path, capsys, monkeypatch):
    words, _, _ = extract(tmp_path, place)
    extracted = Calls(monkeypatch, extracting, "describe_photo")
    extracted.until = 1
    with pytest.raises(Stopped):
        cli.main(words)
    assert "2 photos, 1 of them done by a run that was stopped" in planned(capsys, tmp_path, words)
    write_blobs(tmp_path / "photos", ["c.png", "a.png"])  # of another content
    (tmp_path / "photos" / "c.png").unlink()
    assert "2 photos, 0 of them done by a run that was stopped" in planned(capsys, tmp_path, words)
    extracted.until, shown = None, []
    track = extracting.console.track
    monkeypatch.setattr(extracting.console, "track", lambda *given: shown.append(given[1:]) or track(*given))
    assert cli.main(words) == 0 and shown[0] == ("extracting", "photos", 2, 0)


def test_a_stage_that_needs_another_s_result_is_planned_with_it(place, tmp_path, capsys):
    words = ["match", str(place.features["own-a"]), str(tmp_path / "m.h5"), "--pairs", "retrieval", "--mode", "embed"]
    words += ["--model", str(place.translator), "--top", "2"]
    shown = planned(capsys, tmp_path, words)
    assert f"{tmp_path / 'm.h5.pairs.txt'}: {MADE}" in shown and f"{tmp_path / 'm.h5'}: {MADE}" in shown
    assert cli.main(words) == 0
    shown = planned(capsys, tmp_path, words)
    assert f"{tmp_path / 'm.h5.pairs.txt'}: {FINISHED}" in shown and f"{tmp_path / 'm.h5'}: {FINISHED}" in shown


def test_what_a_finished_result_lacks_is_made_again(place, tmp_path, capsys):
    words, _, _ = match(tmp_path, place)
    assert cli.main(words) == 0
    (tmp_path / "out.h5.json").unlink()
    assert f"{tmp_path / 'out.h5'}: {REPLACED}" in planned(capsys, tmp_path, words)


def test_an_input_that_is_missing_is_an_error_as_in_the_run(tmp_path, capsys):
    words = ["match", str(tmp_path / "none.h5"), str(tmp_path / "out.h5"), "--pairs", "exhaustive"]
    assert planned(capsys, tmp_path, words, status=2) == ""


def test_what_only_prints_is_printed(tmp_path, capsys):
    assert "hardnet-xdesc" in (shown := planned(capsys, tmp_path, ["models"]))
    assert shown.endswith("writes  nothing\n")


@pytest.mark.parametrize("words", [["--dry-run", "STAGE"], ["STAGE", "--dry-run"], ["-q", "plan", "STAGE"]])
def test_a_plan_is_asked_for_in_any_of_three_ways(words, place, tmp_path, capsys):
    own, _, _ = match(tmp_path, place)
    place_of_stage = words.index("STAGE")
    assert cli.main([*words[:place_of_stage], *own, *words[place_of_stage + 1 :]]) == 0
    assert f"writes  {tmp_path / 'out.h5'}: {MADE}" in capsys.readouterr().out and not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("stage", [translate, match, retrieve, localize, records], ids=lambda stage: stage.__name__)
def test_features_and_models_that_are_large_are_not_read_whole_to_know_them_again(stage, place, tmp_path, monkeypatch):
    whole, digest = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: whole.append(Path(file.name)) or digest(file, name))
    monkeypatch.setattr(files_whole, "WHOLE_BYTES", 0)
    monkeypatch.setattr(files_whole, "SAMPLE_BYTES", 1)
    words, _, _ = stage(tmp_path, place)
    assert cli.main(["plan", *words]) == 0
    assert [path for path in whole if path.suffix in (".h5", ".bin")] == []
