"""What stages say: word for word, and through the channels that users and programs expect."""

import contextlib
import dataclasses
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.root import ROOT
from xdesc_jax import console
from xdesc_jax.console import progress
from xdesc_jax.console.messages import Handler
from xdesc_jax.console.words import did_you_mean

LIKE_MARKUP = "photos [/x] [bold]b"


@pytest.fixture
def as_library():
    """The logger as an import leaves it; put back afterwards."""
    ours, level = [handler for handler in logging.root.handlers if isinstance(handler, Handler)], console.log.level
    for handler in ours:
        logging.root.removeHandler(handler)
    console.log.setLevel(logging.NOTSET)
    yield
    for handler in [handler for handler in logging.root.handlers if isinstance(handler, Handler)]:
        logging.root.removeHandler(handler)
    for handler in ours:
        logging.root.addHandler(handler)
    console.log.setLevel(level)


@pytest.fixture
def as_command(as_library):
    """Sets the verbosity, as a command line does."""
    yield console.set_verbosity
    console.set_verbosity()


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**kept, **environment}, cwd=ROOT
    )


# --- Messages --------------------------------------------------------------------------------------------


def test_importing_leaves_the_logging_of_a_program_alone():
    code = "import logging, xdesc_jax.console as c; print(c.log.handlers, logging.root.handlers, c.log.level)"
    assert run_python(code).stdout == "[] [] 0\n"


def test_a_library_warns_on_standard_error_and_says_no_more():
    code = "from xdesc_jax import console; console.info('settings'); console.warn('left out: a.jpg')"
    done = run_python(code)
    assert (done.stdout, done.stderr) == ("", "left out: a.jpg\n")


def test_a_library_that_was_imported_before_says_nothing_twice():
    before = "import logging; logging.basicConfig(); "
    assert (
        run_python(before + "from xdesc_jax import console as c; c.set_verbosity(); c.info('once')").stderr == "once\n"
    )


def test_warnings_reach_a_programs_own_logging(caplog, as_library):
    with caplog.at_level(logging.INFO):
        console.warn("100 % of [/x]")
        console.info("3 of 4 photos")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "100 % of [/x]"),
        ("INFO", "3 of 4 photos"),
    ]


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        ({}, "settings\nwarning: odd\nerror: wrong\n"),
        ({"quiet": True}, "error: wrong\n"),
        ({"verbose": True}, "all of it\nsettings\nwarning: odd\nerror: wrong\n"),
    ],
)
def test_a_command_shows_what_its_verbosity_asks_for(as_command, capsys, verbosity, shown):
    as_command(**verbosity)
    console.log.debug("all of it")
    console.info("settings")
    console.warn("odd")
    console.error("wrong")
    assert capsys.readouterr() == ("", shown)


def test_a_quiet_command_still_prints_its_result(as_command, capsys):
    as_command(quiet=True)
    console.table("matches", ["pair", "matches"], [["a, b", 3]])
    with console.status("mapping"):
        assert list(console.track([1, 2], "matching", "pairs")) == [1, 2]
    console.result(Path("out/m.h5"), report="out/report.html", other=None)
    out, err = capsys.readouterr()
    assert out.endswith("a, b        3\n\nresult: out/m.h5\nreport: out/report.html\n") and err == ""


def test_results_of_a_step_inside_a_stage_are_details(as_command, capsys, caplog):
    as_command(verbose=True)
    with console.inner():
        console.result("features")
    console.result("report.html")
    assert capsys.readouterr() == ("result: report.html\n", "result: features\n")


def test_setting_the_verbosity_again_shows_nothing_twice(as_command, capsys):
    as_command()
    as_command()
    console.warn("odd")
    assert capsys.readouterr().err == "warning: odd\n"


def test_a_library_that_configures_logging_does_not_double_messages():
    code = (
        "import logging; from xdesc_jax import console; console.set_verbosity()\n"
        "logging.warning('of a library'); console.warn('odd'); logging.error('broken')"
    )
    assert run_python(code).stderr == "warning: odd\nerror: broken\n"


def test_long_messages_into_a_file_stay_on_one_line(as_command, capsys):
    as_command()
    console.warn("left out: " + "a" * 300 + " b" * 300)
    assert capsys.readouterr().err.count("\n") == 1


def test_long_messages_on_a_terminal_fold_between_words():
    code = "from xdesc_jax import console; console.set_verbosity(); console.warn('left out: ' + 'a/b.jpg ' * 9)"
    lines = run_python(code, FORCE_COLOR="1", TERM="xterm", COLUMNS="40", NO_COLOR="1").stderr.splitlines()
    assert len(lines) > 2 and all(len(line) <= 40 for line in lines)
    assert " ".join(" ".join(lines).split()) == "warning: left out:" + " a/b.jpg" * 9


# --- Settings --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Loss:
    alpha: float = 0.1
    margin: float = 1.0


@dataclasses.dataclass(frozen=True)
class Config:
    epochs: int = 5
    descriptors: tuple[str, ...] = ()
    loss: Loss = Loss()


def stage(photos: Path, *, ratio: float = 0.9, top: int = 20, overwrite: bool = False) -> None:
    """Has settings."""


def said(caplog, *args):
    with caplog.at_level(logging.DEBUG):
        console.settings(*args)
    return [record.getMessage() for record in caplog.records]


def test_settings_at_their_defaults_are_said_where_details_are_asked_for_alone(caplog, as_library):
    values = {"photos": Path("my photos"), "ratio": 0.8, "top": 20, "overwrite": False, "model": None, "other": ()}
    shown, hidden = said(caplog, "xdesc match -> out/m.h5", values, stage)
    assert shown == "xdesc match -> out/m.h5\n  photos: my photos\n  ratio: 0.8"
    assert hidden.split("\n")[1:] == ["  top: 20", "  overwrite: no", "  model: none", "  other: none"]


def test_a_configuration_is_said_by_the_fields_that_differ(caplog, as_library):
    config = Config(epochs=20, loss=Loss(alpha=0.5))
    assert said(caplog, "xdesc train -> run", {"": config, "rows": 34567})[0] == (
        "xdesc train -> run\n  epochs: 20\n  loss.alpha: 0.5\n  rows: 34,567"
    )


def test_values_are_said_as_people_write_them():
    values = [True, 1204, 0.25, 1e-3, None, Path("a b/c"), [Path("x"), Path("y")], {"photos": 1500}, (), "a"]
    assert [console.shown(v) for v in values] == [
        "yes", "1,204", "0.25", "0.001", "none", "a b/c", "x, y", "photos: 1,500", "none", "a",
    ]  # fmt: skip
    assert console.shown(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, and 2 more"


def test_nouns_agree_with_their_numbers():
    assert console.counted(1, "photo") == "1 photo" and console.counted(0, "photo") == "0 photos"
    assert console.counted(12345, "entry", "entries") == "12,345 entries"


def test_settings_that_look_like_markup_are_printed_as_they_are(as_command, capsys):
    as_command()
    console.settings(LIKE_MARKUP, {"path": LIKE_MARKUP})
    assert capsys.readouterr().err == f"{LIKE_MARKUP}\n  path: {LIKE_MARKUP}\n"


# --- Long work -------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_innermost_work_speaks_soon_and_then_every_few_seconds():
    clock, told = Clock(), []
    ticker = progress.Ticker(clock, told.append)
    ticker.push(lambda: [f"mapping, {clock.now:g}"])
    for now in (0.5, 1.0, 2.0, 4.5, 5.0):
        clock.now = now
        ticker.tick()
    assert told == ["mapping, 1", "mapping, 5"]
    ticker.push(lambda: ["adjusting"])
    clock.now = 9.0
    ticker.tick()
    ticker.pop()
    clock.now = 13.0
    ticker.tick()
    assert told[2:] == ["adjusting", "mapping, 13"]
    ticker.pop()
    clock.now = 30.0
    assert ticker.tick() is False and len(told) == 4


def test_long_work_speaks_more_and_more_rarely():
    """A line waits a twentieth of what the work has lasted: at 80 s as long as at the start, at 20 minutes a minute."""
    clock, told = Clock(), []
    ticker = progress.Ticker(clock, lambda line: told.append(clock.now))
    ticker.push(lambda: ["training"])
    for second in range(7200):
        clock.now = float(second)
        ticker.tick()
    apart = np.diff(told)
    assert told[:3] == [1, 5, 9] and set(apart[np.array(told[1:]) < 80]) == {4}
    assert 8 <= apart[np.searchsorted(told, 160)] <= 10 and set(apart[np.array(told[:-1]) > 1200]) == {60}
    assert len(told) < 200


def test_counted_work_into_a_file_ends_with_a_line_of_its_count(caplog, as_library):
    with caplog.at_level(logging.INFO):
        assert list(console.track(iter("abc"), "extracting", "photos", 3)) == ["a", "b", "c"]
    last = caplog.records[-1].getMessage()
    assert last.startswith("extracting: 3 of 3 photos") and last.endswith("took 0 s")


def test_what_a_stopped_run_has_finished_counts_and_makes_no_rate(caplog, as_library):
    with caplog.at_level("INFO", "xdesc_jax"):
        assert list(console.track("abc", "extracting", "photos", finished=3)) == ["a", "b", "c"]
    assert caplog.messages == ["extracting: 3 of 3 photos, took 0 s"]


def test_work_that_fails_says_nothing_of_an_end(caplog, as_library):
    def broken():
        yield 1
        raise ValueError("damaged")

    with caplog.at_level(logging.INFO), contextlib.suppress(ValueError):
        list(console.track(broken(), "extracting", "photos", 3))
    assert [r.getMessage() for r in caplog.records if "took" in r.getMessage()] == []


def test_on_a_terminal_work_inside_other_work_is_shown_below_it():
    code = (
        "from xdesc_jax import console\n"
        "with console.progress_bar('rows') as bar:\n"
        "    task = bar.add_task('training', total=2)\n"
        "    with console.status('compiling the training step'):\n"
        "        pass\n"
        "    bar.advance(task, 2)\n"
    )
    done = run_python(code, FORCE_COLOR="1", TERM="xterm-256color")
    assert "compiling the training step" in done.stderr and "2 of 2 rows" in done.stderr


def test_an_error_is_one_line_whatever_a_file_holds(as_command, capsys):
    as_command()
    console.error("a.h5: version is array([[0.],\n  [0.]])\x1b[2J, expected " + "x" * 9000 + " a number")
    told = capsys.readouterr().err
    assert told.startswith("error: a.h5: version is array([[0.],   [0.]])\ufffd[2J, expected xxx")
    assert told.endswith("xxx a number\n") and told.count("\n") == 1 and len(told) < 1600


def test_a_name_that_is_not_known_is_asked_after():
    assert did_you_mean("sfit", ["sift", "disk", "brief"]) == "; did you mean sift?"
    assert did_you_mean("aliked", ["aliked-n16", "aliked-n32", "orb"]) == "; did you mean aliked-n32, aliked-n16?"
    assert did_you_mean("aliked", ["aliked-n16", "orb"], cutoff=0.9) == did_you_mean("aliked", []) == ""
