"""Results of a sweep: lines of shards, and the merged files."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from tests.support.sweep_records import diverged, record, sweep
from xdesc_jax.sweep.ranking import counts
from xdesc_jax.sweep.results import append_result, column_kind, field_value, mean_figures, read_results, write_merged

ONE, TWO, THREE = (record({"seed": seed}, 0.5 + seed / 8) for seed in (0, 1, 2))


def shard(workdir, name="0-of-1"):
    return workdir / "results" / f"{name}.jsonl"


def test_records_are_read_as_they_were_written(tmp_path):
    for found in (ONE, TWO):
        append_result(shard(tmp_path), found)
    plain = [json.loads(json.dumps(found)) for found in (ONE, TWO)]
    assert read_results(tmp_path) == plain
    assert len(shard(tmp_path).read_text().splitlines()) == 2


def test_no_results_are_no_members(tmp_path):
    assert read_results(tmp_path) == []


@pytest.mark.parametrize(
    "rest", [b'{"member": "1a2b', b"{", json.dumps(TWO).encode(), b"x" * 200_000, "\u00e9".encode()[:1]]
)
def test_a_cut_last_line_is_ignored_and_replaced_by_the_next(tmp_path, rest):
    append_result(shard(tmp_path), ONE)
    with shard(tmp_path).open("ab") as file:
        file.write(rest)
    assert [r["member"] for r in read_results(tmp_path)] == [ONE["member"]]
    append_result(shard(tmp_path), THREE)
    assert [r["member"] for r in read_results(tmp_path)] == [ONE["member"], THREE["member"]]


def test_a_file_of_one_cut_line_starts_anew(tmp_path):
    shard(tmp_path).parent.mkdir()
    shard(tmp_path).write_bytes(b'{"mem')
    assert read_results(tmp_path) == []
    append_result(shard(tmp_path), ONE)
    assert [r["member"] for r in read_results(tmp_path)] == [ONE["member"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{cut", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[1]", "found list, expected an object"),
        ('{"member": "1a2b3c4d5e6f", "status": "finished"}', "fields, config, mean_rank1 missing"),
        (json.dumps(ONE | {"status": "done"}), "status is 'done', expected one of finished, diverged, stopped"),
    ],
)
def test_another_unreadable_line_is_named(tmp_path, line, message):
    append_result(shard(tmp_path), ONE)
    with shard(tmp_path).open("a") as file:
        file.write(line + "\n")
    append_result(shard(tmp_path), TWO)
    with pytest.raises(ValueError, match=rf"results/0-of-1.jsonl: line 2 .*{message}"):
        read_results(tmp_path)


def test_a_member_of_several_files_counts_once(tmp_path):
    sweep(tmp_path, [ONE, TWO, THREE], shards=2)
    append_result(shard(tmp_path, "2-of-3"), TWO)
    assert sorted(r["member"] for r in read_results(tmp_path)) == sorted(r["member"] for r in (ONE, TWO, THREE))


def test_of_a_members_records_counts_the_finished_then_the_longer_then_the_later(tmp_path):
    stopped = ONE | {"status": "stopped", "epoch": 9}
    append_result(shard(tmp_path), ONE | {"seconds": 1.0})
    append_result(shard(tmp_path), ONE | {"seconds": 2.0})
    append_result(shard(tmp_path, "0-of-2"), stopped)
    assert [(r["status"], r["seconds"]) for r in read_results(tmp_path)] == [("finished", 2.0)]
    other = [TWO | {"status": "stopped", "epoch": epoch} for epoch in (3, 2)]
    for found in other:
        append_result(shard(tmp_path), found)
    assert read_results(tmp_path)[1]["epoch"] == 3


def test_shards_are_read_by_number(tmp_path):
    for index, found in ((10, TWO), (2, ONE)):
        append_result(shard(tmp_path, f"{index}-of-11"), found)
    assert [r["member"] for r in read_results(tmp_path)] == [ONE["member"], TWO["member"]]


def test_numbers_that_are_not_finite_become_null(tmp_path):
    append_result(shard(tmp_path), ONE | {"figures": {"rank1": {"a->b": float("nan")}, "x": float("inf")}})
    assert "NaN" not in shard(tmp_path).read_text() and "Infinity" not in shard(tmp_path).read_text()
    assert read_results(tmp_path)[0]["figures"] == {"rank1": {"a->b": None}, "x": None}


def test_a_shard_that_cannot_be_written_is_named(tmp_path):
    shard(tmp_path).mkdir(parents=True)
    with pytest.raises(OSError, match="0-of-1.jsonl: cannot be written"):
        append_result(shard(tmp_path), ONE)


def test_merged_files_hold_every_member_once(tmp_path):
    sweep(tmp_path, [ONE, TWO, diverged({"seed": 3})], shards=2)
    lines, parquet = write_merged(tmp_path)
    members = [json.loads(line)["member"] for line in lines.read_text().splitlines()]
    assert members == [r["member"] for r in read_results(tmp_path)]
    found = pyarrow.parquet.read_table(parquet).to_pydict()
    assert found["member"] == members
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results", "results.jsonl", "results.parquet", "sweep.json"]


def test_the_table_has_a_column_for_each_field_and_figure(tmp_path):
    fields = {"loss.alpha": 0.1, "seed": 2, "descriptors": ["brief", "sift"], "model.hidden_learned": [256, 256]}
    sweep(tmp_path, [record(fields, 0.5), diverged(fields | {"seed": 3})])
    found = pyarrow.parquet.read_table(write_merged(tmp_path)[1])
    columns = found.to_pydict()
    assert columns["loss.alpha"] == [0.1, 0.1] and columns["seed"] == [2, 3]
    assert columns["descriptors"] == [["brief", "sift"]] * 2 and columns["model.hidden_learned"] == [[256, 256]] * 2
    assert columns["rank1/brief->sift"] == [0.25, None] and columns["joint_rank1/brief|sift"] == [0.5, None]
    assert columns["mean_rank1"] == [0.5, None] and columns["reason"] == [None, "loss is nan at step 17"]
    types = {name: str(found.schema.field(name).type) for name in ("seed", "loss.alpha", "epoch", "seconds", "status")}
    assert types == {"seed": "int64", "loss.alpha": "double", "epoch": "int64", "seconds": "double", "status": "string"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None], "bool"),
        ([1, 2], "int"),
        ([1, 0.5, None], "float"),
        (["a"], "str"),
        ([None], "str"),
        ([[1, 2], [], None], "int list"),
        ([[1, 2.5]], "float list"),
        ([["a"], [""]], "str list"),
        ([[]], "str list"),
        ([True, 1], None),
        (["1", 1], None),
        ([[1], 1], None),
        ([[1, "a"]], None),
        ([[1], ["a"]], None),
        ([[None, 1]], None),
        ([{"a": 1}], None),
        ([2**63], None),
    ],
)
def test_a_columns_type_is_that_of_its_values(values, kind):
    assert column_kind(values) == kind


def test_values_of_mixed_types_are_written_as_json(tmp_path):
    odd = [True, 1, "text", None, [1, "a"], 2**70, 0.5]
    records = [record({"seed": i}, 0.5) for i in range(len(odd))]
    sweep(tmp_path, [r | {"fields": {"odd": v}} for r, v in zip(records, odd, strict=True)])
    found = pyarrow.parquet.read_table(write_merged(tmp_path)[1]).to_pydict()["odd"]
    assert found == ["true", "1", "text", None, '[1, "a"]', str(2**70), "0.5"]


def test_a_field_named_as_a_scalar_has_its_own_column(tmp_path):
    sweep(tmp_path, [ONE | {"fields": {"epoch": 77}}])
    columns = pyarrow.parquet.read_table(write_merged(tmp_path)[1]).to_pydict()
    assert columns["epoch"] == [5] and columns["config.epoch"] == [77]


def test_a_field_that_no_configuration_has_is_none():
    assert field_value(ONE, "seed") == 0 and field_value(ONE, "loss.margin") == 1.0
    assert field_value(ONE, "loss.colour") is None and field_value(ONE, "seed.colour") is None
    assert field_value(ONE | {"fields": {"seed": None}}, "seed") is None


def test_mean_figures_are_means_over_pairs():
    found = mean_figures(ONE)
    assert found == {"translation_error": 0.5, "bit_accuracy": 0.875, "rank1": 0.5, "joint_rank1": 0.5}
    assert mean_figures(diverged({})) == {}
    assert mean_figures({"figures": {"rank1": {"a->b": None, "b->a": 0.25}, "joint_rank1": {}}}) == {"rank1": 0.25}


def test_figures_that_are_not_finite_are_told_and_read_as_none(tmp_path, caplog):
    figures = {**ONE["figures"], "mean_rank1": float("nan")}
    append_result(shard(tmp_path), ONE | {"figures": figures, "mean_rank1": float("nan")})
    [found] = read_results(tmp_path)
    assert found["mean_rank1"] is None and found["figures"]["mean_rank1"] is None
    assert f"member {ONE['member']}: what is not finite is written as null (2 of them, first" in caplog.text
    assert not counts(found)


def test_a_record_with_half_a_character_is_refused_by_its_line(tmp_path):
    shard(tmp_path).parent.mkdir()
    shard(tmp_path).write_text(json.dumps(ONE | {"member": "\ud800"}) + "\n")
    with pytest.raises(ValueError, match=r"0-of-1\.jsonl: line 1 is no result of a member: a text is no Unicode"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"member": {}},
        {"fields": []},
        {"config": None},
        {"mean_rank1": "0.5"},
        {"figures": [1]},
        {"epoch": "5"},
        {"history": 7},
        {"figures": {"rank1": {"a->b": {}}}},
        {"figures": {"mean_rank1": "x"}},
        {"figures": {"mean_rank1": 10**400}},
    ],
)
def test_a_record_with_values_of_other_types_is_refused_by_its_line(tmp_path, changes):
    shard(tmp_path).parent.mkdir()
    shard(tmp_path).write_text(json.dumps(ONE) + "\n" + json.dumps(TWO | changes) + "\n")
    with pytest.raises(ValueError, match=r"0-of-1\.jsonl: line 2 is no result of a member: .*expected"):
        read_results(tmp_path)
