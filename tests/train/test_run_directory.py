"""Run directories: one training at a time, and what `--overwrite` takes out of them."""

import json

import pytest

from tests.support.in_use import check_refused_while_in_use
from tests.support.stopped import Calls, Stopped
from xdesc_jax.config import TrainConfig
from xdesc_jax.files.claim import InUse, inside
from xdesc_jax.files.fields import from_dict
from xdesc_jax.train import hosts
from xdesc_jax.train.run_directory import claimed, clear, figure_told, history, keep_settings, read_settings


@pytest.mark.parametrize("stage", ["train", "train-descriptor"])
def test_a_training_started_twice_says_who_trains_there(tmp_path, capsys, stage):
    run = tmp_path / "run"
    words = [stage, "--data", tmp_path / "none", "--workdir", run, "--overwrite"]
    check_refused_while_in_use(words, inside(run), run, capsys)


def test_of_several_hosts_the_first_alone_holds_the_folder(tmp_path, monkeypatch):
    with claimed(tmp_path, "xdesc train"):
        with pytest.raises(InUse), claimed(tmp_path, "xdesc train"):
            pytest.fail("two of them")
        monkeypatch.setattr(hosts, "is_lead", lambda: False)
        with claimed(tmp_path, "xdesc train"):
            assert inside(tmp_path).exists()
        assert inside(tmp_path).exists()


def test_overwrite_takes_all_but_the_lock_of_who_holds_the_folder(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints" / "00000001").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    with claimed(run, "xdesc train"):
        clear(run, overwrite=True)
        assert list(run.iterdir()) == [inside(run)]
        with pytest.raises(InUse), claimed(run, "xdesc train"):
            pytest.fail("two of them")


def test_a_run_whose_discarding_was_cut_short_is_still_one(tmp_path, monkeypatch):
    """Whichever order a folder lists its files in."""
    for name in ("a.npz", "config.json", "validation.json"):
        (tmp_path / name).write_text("{}")
    listed = sorted(tmp_path.iterdir())
    monkeypatch.setattr(type(tmp_path), "iterdir", lambda _: iter(path for path in listed if path.exists()))
    with monkeypatch.context() as patch:
        calls = Calls(patch, type(tmp_path), "unlink")
        calls.until = 2
        with pytest.raises(Stopped):
            clear(tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    clear(tmp_path, overwrite=True)
    assert not list(tmp_path.iterdir())


def test_a_figure_that_was_not_finite_is_told_in_words():
    assert [figure_told(value) for value in (None, "-", 0.12345)] == ["not finite", "-", "0.123"]
    assert figure_told(0.12345, 4) == "0.1235"


@pytest.mark.parametrize(
    "text", ["7", "{}", "[7]", '[{"step": 1}]', '[{"step": "1", "epoch": 1}]', '[{"step": 1, "epoch": -0.0}]']
)
def test_a_validation_without_steps_and_epochs_is_refused(tmp_path, text):
    (tmp_path / "validation.json").write_text(text)
    with pytest.raises(ValueError, match=r"validation\.json: holds .*, expected figures of epochs"):
        history(tmp_path)


@pytest.mark.parametrize("kept", [[], "a", {}, {"hash": "b", "config": 7}, {"hash": "b", "config": {"epochs": 2}}])
def test_damaged_settings_are_told_with_the_file(tmp_path, kept):
    (tmp_path / "config.json").write_text(json.dumps(kept))
    settings = {"hash": "a", "config": {"epochs": 3}, "data": {"hash": "c"}}
    with pytest.raises(ValueError, match=r"config\.json: holds .*, expected settings as this stage keeps them"):
        keep_settings(tmp_path, settings, lambda kept: (kept["config"], {"data": kept["data"]["hash"]}))


@pytest.mark.parametrize(
    "config", [{"epochs": "5"}, {"model": {"kind": None}}, {"loss": {"variant": [-1]}}, {"epochs": 0}, 7]
)
def test_settings_of_other_types_are_refused_with_the_file(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps({"config": config}))
    with pytest.raises(ValueError, match=r"config\.json: not a configuration of this version"):
        read_settings(tmp_path, "xdesc train", ["config"], lambda kept: from_dict(kept["config"], TrainConfig))
