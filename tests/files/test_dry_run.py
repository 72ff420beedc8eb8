"""What a dry run notes, and where it ends a stage."""

import pytest

from xdesc_jax.files import dry_run
from xdesc_jax.files.dry_run import FINISHED, MADE, REFUSED, REPLACED, UNKNOWN, planning
from xdesc_jax.files.whole import already_done, atomic, content_hash, making, staged, write_json


def test_nothing_ends_outside_a_dry_run(tmp_path):
    assert not already_done(tmp_path / "new", None, "hash", overwrite=False)
    making(tmp_path / "new")
    with dry_run.several(), dry_run.step(tmp_path):
        dry_run.output(tmp_path / "new", MADE)
    assert not dry_run.active()


@pytest.mark.parametrize(
    ("exists", "found", "overwrite", "state"),
    [
        (False, None, False, MADE),
        (True, "mine", False, FINISHED),
        (True, "mine", True, REPLACED),
        (True, "other", True, REPLACED),
    ],
)
def test_the_comparison_of_an_output_with_its_configuration_ends_a_stage(exists, found, overwrite, state, tmp_path):
    path = tmp_path / "out"
    if exists:
        path.touch()
    with planning() as plan:
        already_done(path, found, "mine", overwrite)
        pytest.fail("the stage goes on")
    assert plan.outputs == {path: state}


def test_a_refusal_is_noted_and_raised(tmp_path):
    with pytest.raises(FileExistsError, match="another configuration"):
        with planning() as plan:
            already_done(tmp_path, "other", "mine", overwrite=False)
    assert plan.outputs == {tmp_path: REFUSED}


def test_several_outputs_are_all_noted_before_the_first_refusal_is_raised(tmp_path):
    with pytest.raises(FileExistsError, match=str(tmp_path / "a")):
        with planning() as plan, dry_run.several():
            for name in ("a", "b", "c"):
                (tmp_path / name).mkdir()
                already_done(tmp_path / name, "mine" if name == "b" else "other", "mine", overwrite=False)
    assert list(plan.outputs.values()) == [REFUSED, FINISHED, REFUSED]


@pytest.mark.parametrize("writes", [atomic, staged, lambda path: write_json(path, {})])
def test_the_first_write_ends_a_stage_that_looked_at_nothing(writes, tmp_path):
    with planning() as plan:
        with writes(tmp_path / "folder" / "out"):
            pytest.fail("the stage writes")
    assert plan.outputs == {tmp_path / "folder" / "out": MADE} and not list(tmp_path.iterdir())


def test_a_finished_step_lets_a_stage_go_on(tmp_path):
    with planning() as plan:
        with dry_run.step(tmp_path / "last"):
            assert already_done(tmp_path, "mine", "mine", overwrite=False)
        making(tmp_path / "last")
        pytest.fail("the stage goes on")
    assert plan.outputs == {tmp_path: FINISHED, tmp_path / "last": MADE}


def test_a_step_that_is_not_finished_ends_a_stage_and_leaves_its_outputs_open(tmp_path):
    (tmp_path / "old").touch()
    with planning() as plan:
        with dry_run.step(tmp_path / "last", tmp_path / "old"):
            making(tmp_path / "first")
        pytest.fail("the stage goes on")
    assert plan.outputs == {tmp_path / "first": MADE, tmp_path / "last": MADE, tmp_path / "old": UNKNOWN}


def test_files_whose_content_counts_are_inputs_once(tmp_path):
    (tmp_path / "in").write_text("x")
    with planning() as plan:
        content_hash(tmp_path / "in")
        content_hash(tmp_path / "in")
    assert list(plan.inputs) == [tmp_path / "in"]
