"""The record of a run."""

import json

import pytest

from xdesc_jax.train.log import RunLog, read_log


def test_a_resumed_log_drops_later_lines_and_a_cut_one(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    with RunLog(tmp_path, 2) as log:
        log.write(3, {"loss": 0.5})
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1}, {"step": 2}, {"step": 3, "loss": 0.5}]


@pytest.mark.parametrize("line", [b'{"step": ', b"", b"[]", b"{}", b"7", b"\xff\xfe", b"\x00\x00\x00"])
def test_a_broken_line_is_named_by_file_and_number_and_kept(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"log\.jsonl: line 2 is .*, expected a JSON object with 'step'"):
        RunLog(tmp_path, 2)
    assert path.read_bytes() == before


def test_figures_that_are_not_finite_are_null_in_the_log_and_told(tmp_path, caplog):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": NaN}\n')  # of an earlier version
    with RunLog(tmp_path, 1) as log:
        log.write(2, {"validation": {"translation_error": {"a->b": float("inf")}, "mean_rank1": 0.5}})
    assert read_log(tmp_path) == [
        {"step": 1, "loss": None},
        {"step": 2, "validation": {"translation_error": {"a->b": None}, "mean_rank1": 0.5}},
    ]
    json.loads((tmp_path / "log.jsonl").read_text().splitlines()[1], parse_constant=pytest.fail)
    assert "log.jsonl, step 2: what is not finite is written as null (validation.translation_error.a->b is inf)" in (
        caplog.text
    )


@pytest.mark.parametrize("line", [b'{"step": ', b"[]", b"\xff\xfe", b'{"step": "a"}'])
def test_a_broken_line_is_named_to_who_reads_the_log(tmp_path, line):
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"log\.jsonl: line 2 is .*, expected a JSON object with 'step'"):
        read_log(tmp_path)
