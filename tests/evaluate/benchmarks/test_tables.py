"""Results beside the paper's values."""

import dataclasses
import json

import pytest

from xdesc_jax.evaluate.benchmarks import results, run_folder, tables
from xdesc_jax.evaluate.benchmarks.registry import BENCHMARKS, benchmark
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.reports.settings import Settings

DAY = "day 0.25 m, 2 deg"
OFFICIAL = {"folder": "aachen", "text": "922 queries", "official": True, "other": [], "fingerprint": "abc"}
OTHER = {**OFFICIAL, "official": False, "other": ["12 queries, where the set has 922"]}
ROWS = [
    Row("sift", {DAY: 84.0, "inliers": 900}, "native", "standard: SIFT"),
    Row("mine", {DAY: None, "inliers": 3}, "native"),
]
RESULT = Result("aachen", "Aachen", OFFICIAL, {"seed": 0}, [Column(DAY), Column("inliers", "", 0)], ROWS)


def test_official_results_stand_beside_the_papers_values():
    assert tables.headings(RESULT) == ["", f"{DAY} [%]", "paper", "difference", "inliers"]
    assert tables.cells(RESULT) == [["sift", "84.0", "82.5", "+1.5", "900"], ["mine", "-", "-", "-", "3"]]
    assert tables.note(RESULT) == "Paper: Table 1; difference: this result less the paper's."
    mine = dataclasses.replace(RESULT, rows=ROWS[1:])
    assert "difference" not in tables.headings(mine)
    assert tables.note(mine) == "Paper: Table 1, whose figures are none of these."


def test_results_of_other_data_are_labelled_and_have_no_value_of_the_paper_beside_them():
    other = dataclasses.replace(RESULT, data=OTHER)
    assert tables.headings(other) == ["", f"{DAY} [%]", "inliers"]
    text = tables.markdown(other)
    assert "other data: 12 queries, where the set has 922" in text and "Not the official data" in text
    assert "82.5" not in text and "| sift | 84.0 | 900 |" in text
    assert tables.note(dataclasses.replace(other, benchmark="cross")) == "Not the official data."  # not the paper's
    joint = dataclasses.replace(other, rows=[Row("a | b", {DAY: 84.0, "inliers": 900}, "joint")])
    assert tables.markdown(joint).splitlines()[-1] == "| a \\| b | 84.0 | 900 |"


def test_columns_of_a_further_table_stand_below_under_its_title(tmp_path, capsys):
    columns = [*RESULT.columns, Column("outliers", "", 0, "Those <left> out")]
    rows = [dataclasses.replace(row, values={**row.values, "outliers": 7}) for row in RESULT.rows]
    result = dataclasses.replace(RESULT, columns=columns, rows=rows)
    first, second = tables.markdown(result).split("\nThose <left> out\n\n")
    assert first == tables.markdown(RESULT)
    assert second.splitlines() == ["| row | outliers |", "|---|---|", "| sift | 7 |", "| mine | 7 |"]
    run_folder.write(tmp_path, result, {"hash": "0"}, "Best.", [], Settings.of({}))
    assert results.read(tmp_path) == result
    tables.show(results.read(tmp_path))
    assert "Those <left> out" in capsys.readouterr().out
    page = (tmp_path / run_folder.REPORT).read_text()
    assert page.count("<table") == 2 and "Those &lt;left&gt; out" in page
    many = dataclasses.replace(result, rows=[dataclasses.replace(rows[0], name=f"a{k}") for k in range(50)])
    (_, one), (_, other) = ((s.title, s.parts[0].anchor) for s in tables.page_sections(many))
    assert one != other


def test_a_result_is_read_as_it_was_written(tmp_path):
    run_folder.write(tmp_path, RESULT, {"hash": "0"}, "Best.", [], Settings.of({"seed": 0}))
    assert results.read(tmp_path) == RESULT == results.read(tmp_path / results.RESULT)
    assert "82.5" in (tmp_path / run_folder.TABLE).read_text() and "82.5" in (tmp_path / run_folder.REPORT).read_text()


@pytest.mark.parametrize("change", [{"version": 7}, {"rows": [{"no": 1}]}, {"columns": None}])
def test_what_is_no_result_is_told_with_its_file(tmp_path, change):
    run_folder.write(tmp_path, RESULT, {"hash": "0"}, "Best.", [], Settings.of({}))
    file = tmp_path / results.RESULT
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match="result.json: holds no"):
        results.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="xdesc benchmark run"):
        results.read(tmp_path / "none")


def test_the_papers_values_are_those_of_its_tables():
    paper = tables.paper()
    aachen = paper["aachen"]["rows"]
    assert len(aachen) == 4 + 12 + 12 + 4
    assert aachen["continuous deployment: SIFT -> SOSNet"][DAY] == 84.2
    assert aachen["collaborative: embed <- SIFT"]["night 0.5 m, 5 deg"] == 57.1
    madrid = paper["local-feature-evaluation"]["rows"]["Madrid Metropolis, ours: Embed"]
    assert (madrid["localised"], madrid["points"], madrid["track length"]) == (92.1, 36300, 7.26)
    challenge = paper["image-matching-challenge"]["rows"]["embed: All, 1/4"]
    assert list(challenge.values()) == [42.3, 50.1, 46.7, 53.5]
    assert paper["inloc"]["rows"]["cross-device: SOSNet <- BRIEF"]["DUC2 0.5 m"] == 45.0
    assert paper["aachen-embedding-size"]["rows"]["collaborative: embed 16"][DAY] == 75.1


def test_benchmarks_are_known_by_name_and_told_apart():
    assert benchmark("hpatches-patches").title == "HPatches patches"
    with pytest.raises(ValueError, match="did you mean hpatches-patches"):
        benchmark("hpatches-patch")
    for name, one in BENCHMARKS.items():
        assert one.name == name and (one.source.startswith("https://") or not one.paper)
    assert set(tables.paper()) <= set(BENCHMARKS)
