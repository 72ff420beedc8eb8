"""The report of a sweep: the page, the best configurations, and what is refused."""

from __future__ import annotations

import pyarrow.parquet
import pytest

from tests.support.html_page import HtmlPage
from tests.support.sweep_records import configured, diverged, record, sweep
from xdesc_jax import cli
from xdesc_jax.config import load_config
from xdesc_jax.sweep import drawing
from xdesc_jax.sweep.report import report
from xdesc_jax.sweep.results import append_result

ODD = "<script>alert(\"x\")</script> & 'co' </td>"


@pytest.fixture(autouse=True)
def _without_plotlys_script(monkeypatch):
    """5 MB that each page would be checked for; one test looks at the real one."""
    monkeypatch.setattr(drawing, "script", lambda: "")


def grid():
    return [
        record({"loss.alpha": alpha, "seed": seed}, rank + 0.01 * seed)
        for alpha, rank in ((0.1, 0.5), (0.2, 0.7), (0.3, 0.6))
        for seed in (0, 1)
    ]


def test_the_best_settings_become_configurations_that_load(tmp_path, capsys):
    records = grid()
    workdir = sweep(tmp_path / "sweep", records, shards=2)
    assert report(workdir, best=2) == workdir / "report.html"
    names = [f"1-{records[3]['member']}.py", f"2-{records[5]['member']}.py"]  # each setting's best seed
    assert sorted(p.name for p in (workdir / "best").iterdir()) == names
    config = load_config(workdir / "best" / names[0])
    assert config == configured({"loss.alpha": 0.2, "seed": 1}) and config.hash == records[3]["member"]
    source = (workdir / "best" / names[0]).read_text()
    assert "mean rank-1 0.7050 \u00b1 0.0071" in source and f"--config {workdir / 'best' / names[0]}" in source
    shown = capsys.readouterr().out
    assert "best of 6 members (6 finished)" in shown and "loss.alpha=0.2  0.7050 \u00b1 0.0071" in shown


def test_the_page_links_what_it_names(tmp_path):
    records = grid()
    workdir = sweep(tmp_path / "a sweep", records)
    (workdir / records[0]["run"]).mkdir(parents=True)
    page = HtmlPage.read(report(workdir))
    files = [link for link in page.links if not link.startswith("#")]
    assert f"members/{records[0]['member']}" in files and f"best/1-{records[3]['member']}.py" in files
    assert all((workdir / link).exists() for link in files)
    assert all(link[1:] in page.ids for link in page.links if link.startswith("#"))
    elsewhere = HtmlPage.read(report(workdir, out=tmp_path / "pages" / "p.html"))
    assert f"../a%20sweep/members/{records[0]['member']}" in elsewhere.links


def test_the_page_says_first_what_the_best_setting_is(tmp_path):
    page = HtmlPage.read(report(sweep(tmp_path, [*grid(), diverged({"loss.alpha": 0.9, "seed": 0})])))
    page.check()
    # Seeds 0 and 1 have 0.70 and 0.71; the settings' means are 0.505, 0.705 and 0.605.
    assert page.by_class["answer"] == [
        "Best of 7 members: mean rank-1 0.705 \u00b1 0.007 over 2 seeds, with loss.alpha 0.2."
    ]
    assert page.by_class["numbers"] == [
        "mean rank-1 of the best setting 0.705 median of 3 settings 0.605 rank-1, translated, its best seed 0.500 "
        "rank-1, joint space, its best seed 0.500 members ended 7 of 7 diverged 1"
    ]


def test_settings_and_members_have_tables(tmp_path):
    records = [*grid(), diverged({"loss.alpha": 0.9, "seed": 0})]
    page = HtmlPage.read(report(sweep(tmp_path, records)))
    assert "7 members (6 finished, 1 diverged) ended" in page.text
    settings = [row for row in page.rows if row[1:4] == ["0.7050 \u00b1 0.0071", "2", "0"]]
    assert len(settings) == 2 and settings[0][:5] == ["1", "0.7050 \u00b1 0.0071", "2", "0", "0.2"]  # best, and all
    listed = next(table for table in page.tables if table[0][0][2] == "member" and table[0][1][2] == "status")
    members = {row[0][2]: [text for _, _, text in row] for row in listed[1:]}
    assert len(members) == 7
    assert members[records[3]["member"]][1:7] == ["finished", "0.7100", "0.2", "1", "0.5000", "0.5000"]
    assert [records[6]["member"], "loss is nan at step 17", "0", "0.9", "0"] in page.rows


def test_files_of_an_earlier_report_go_and_others_stay(tmp_path):
    records = grid()
    workdir = sweep(tmp_path, records[:2])
    report(workdir)
    (workdir / "best" / "mine.py").write_text("")
    for found in records[2:]:
        append_result(workdir / "results" / "0-of-1.jsonl", found)
    report(workdir, best=1)
    assert sorted(p.name for p in (workdir / "best").iterdir()) == [f"1-{records[3]['member']}.py", "mine.py"]


def test_results_are_merged(tmp_path):
    workdir = sweep(tmp_path, grid(), shards=3)
    report(workdir)
    assert len((workdir / "results.jsonl").read_text().splitlines()) == 6
    assert pyarrow.parquet.read_table(workdir / "results.parquet").num_rows == 6


def test_a_running_sweep_is_reported_beside_a_line_being_written(tmp_path):
    workdir = sweep(tmp_path, grid(), members=[f"{i:012x}" for i in range(9)])
    with (workdir / "results" / "0-of-1.jsonl").open("a") as file:
        file.write('{"member": "1a2b')
    assert "6 members (6 finished) of 9 ended" in HtmlPage.read(report(workdir)).text


def test_a_field_that_a_member_does_not_state_is_that_of_its_configuration(tmp_path, capsys):
    records = [record({}, 0.7), record({"loss.alpha": 0.5, "seed": 1}, 0.6)]
    workdir = sweep(tmp_path, records)
    page = HtmlPage.read(report(workdir))
    assert ["1", "0.7000", "1", "0", "0.1"] in [row[:5] for row in page.rows]
    assert "loss.alpha=0.1" in capsys.readouterr().out
    assert pyarrow.parquet.read_table(workdir / "results.parquet").to_pydict()["loss.alpha"] == [0.1, 0.5]


ODD_SWEEPS = {
    "one member": [record({"loss.alpha": 0.1})],
    "nothing swept": [record({})],
    "all diverged": [diverged({"loss.alpha": a}) for a in (0.1, 1.0)],
    "one field": [record({"loss.alpha": a}, a) for a in (0.1, 0.2, 0.3)],
    "seeds alone": [record({"seed": s}, 0.5 + s / 10) for s in range(3)],
    "all stopped": [record({"seed": s}, 0.5, "stopped") for s in range(3)],
    "without history or figures": [record({"seed": s}, 0.5, history=[], figures=None) for s in range(3)],
    "equal figures": [record({"seed": s}, 0.5) for s in range(12)],
    "other descriptors": [record({"descriptors": d}, 0.5) for d in ([], ["sift"], ["sift", "brief"])],
    "mixed types": [
        record({"seed": i}, 0.5) | {"fields": {"odd": value}}
        for i, value in enumerate([None, True, 1, 0.5, "text", [1, 2], ["a"], [], {"a": None}])
    ],
    "a field that some lack": [record({"seed": 1}), record({"loss.alpha": 0.5})],
}


@pytest.mark.parametrize("records", ODD_SWEEPS.values(), ids=ODD_SWEEPS)
def test_odd_sweeps_have_reports(tmp_path, records):
    workdir = sweep(tmp_path, records)
    page = HtmlPage.read(report(workdir))
    assert all(f"member-{r['member']}" in page.ids for r in records)
    written = list((workdir / "best").glob("*.py"))
    assert bool(written) == any(r["status"] != "diverged" for r in records)
    for path in written:
        assert load_config(path).hash in path.name


def test_members_of_other_descriptors_are_said_not_to_compare(tmp_path):
    assert "different pairs" in HtmlPage.read(report(sweep(tmp_path, ODD_SWEEPS["other descriptors"]))).text


def test_markup_in_names_is_text(tmp_path):
    records = [record({"inputs": "patches", "weights": [ODD], "seed": s}, 0.5 + s / 10) for s in (0, 1)]
    records += [diverged({"inputs": "patches", "weights": ["x=y"], "seed": 3}) | {"reason": ODD}]
    records = [r | {"fields": r["fields"] | {ODD: r["fields"]["seed"]}} for r in records]
    path = report(sweep(tmp_path / "<b> & 'sweep'", records, data={"path": ODD}))
    page = HtmlPage.read(path)
    assert "alert(" in page.text and "<script>alert" not in path.read_text()
    assert "Sweep <b> & 'sweep'" in page.text
    for written in (path.parent / "best").iterdir():
        assert load_config(written).weights == (ODD,)


def test_five_hundred_members_are_one_page(tmp_path):
    records = [record({"seed": i, "loss.alpha": 0.1 + i / 1000, "model.embedding_width": 16 << i % 5}, 0.5 + i / 2000)
               for i in range(500)]  # fmt: skip
    page = HtmlPage.read(report(sweep(tmp_path, records, shards=7)))
    assert sum(name.startswith("member-") for name in page.ids) == 500


def test_the_real_page_holds_plotly_once_and_asks_for_nothing(tmp_path, monkeypatch):
    monkeypatch.undo()
    text = report(sweep(tmp_path, grid())).read_text()
    assert text.count("plotly.js v") == 1 and text.count("showSendToCloud: false") == 1
    HtmlPage(text).check()


def test_no_sweep_and_no_results_are_told(tmp_path, capsys):
    assert cli.main(["sweep", "report", str(tmp_path / "none")]) == 2
    assert "none: no sweep (it holds no sweep.json)" in capsys.readouterr().err
    workdir = sweep(tmp_path / "w", [])
    assert cli.main(["sweep", "report", str(workdir)]) == 2
    assert f"{workdir}: no results yet" in capsys.readouterr().err
    assert [p.name for p in workdir.iterdir()] == ["sweep.json"]


def test_settings_that_make_no_sense_are_told(tmp_path, capsys):
    assert cli.main(["sweep", "report", str(sweep(tmp_path, grid())), "--best", "0"]) == 2
    assert "best is 0, expected at least 1" in capsys.readouterr().err


def test_a_member_of_another_version_is_named_and_nothing_is_written(tmp_path):
    workdir = sweep(tmp_path, [record({}) | {"config": {"colour": "red"}}])
    with pytest.raises(ValueError, match=r"member [0-9a-f]{12}: its configuration cannot be used: .*colour"):
        report(workdir)
    assert sorted(p.name for p in workdir.iterdir()) == ["results", "sweep.json"]


def test_the_stage_is_listed_before_it_is_imported(capsys):
    cli.main([])
    assert "sweep report" in capsys.readouterr().out
