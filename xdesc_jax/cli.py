"""The `xdesc` command: one sub-command per stage.

In: command-line words. Out: the stage's exit status. A stage is a function of paths and settings; its signature is its
command line, its docstring the help (see `command_line.signature`). Each is imported only when its name is on the
command line, and imports what it computes with only when it runs, so that every `--help` works on the base install.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, MissingArgumentError, Parameter, UnusedCliTokensError

from xdesc_jax import __version__, console
from xdesc_jax.command_line import pipelines
from xdesc_jax.command_line.signature import ARGUMENTS, GLOBAL, OPTIONS, command, description, usage
from xdesc_jax.command_line.stages import FOLDERS, FORMER, SETTING_EXTRAS, STAGES, Stage, Words
from xdesc_jax.files.dry_run import active, planning
from xdesc_jax.files.whole import WHOLE_INPUTS

PLAN, COMPLETION, DEBUG = "plan", "--install-completion", "XDESC_DEBUG"
PIPELINE: Words = ("pipeline",)
_XDESC = Group("This command", sort_key=7)
_HELP = """Translates local feature descriptors between types, and maps and localises with them.

`xdesc STAGE --help` lists a stage's options, `xdesc plan STAGE ...` says what it would do."""
INTERNAL_ERROR = 70  # as sysexits.h has it
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # as a shell has it


class Terminated(KeyboardInterrupt):
    """SIGTERM came, as from a scheduler; what Ctrl-C would clear away goes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one stage; returns 0, or another status behind one line that says what was wrong."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    called: list[Words] = [()]  # the stage, once it is known

    def run() -> None:
        nonlocal tokens
        app = build()
        if tokens[:1] == ["help"]:
            tokens = [*tokens[1:], "--help"]
        if stage_of(app, tokens) == (PLAN,) and (planned := _without(tokens, PLAN)):
            tokens = ["--dry-run", *planned]
        _, _, left = app.meta.parse_commands(tokens)
        if left and left[0] in FORMER:
            place = tokens.index(left[0])
            tokens[place : place + 1] = FORMER[left[0]]
        words, behind = _divided(app, tokens)
        called.append(words)
        for each in STAGES if COMPLETION in tokens else [words]:
            if each in STAGES:
                prepare(app, each, tokens)
        if words == PIPELINE and behind and not behind[0].startswith("-"):
            called.append((*PIPELINE, behind[0]))
            prepare_pipeline(app, behind[0], tokens)
        # A global option among the words of a stage would hide the later ones from --help.
        if not set(tokens).isdisjoint(app.help_flags):
            words, behind = _divided(app, tokens)
            tokens = [*words, *behind, "--help"]
        app.meta(tokens)

    return _status(run, called)


def entry() -> None:
    """The command itself: `main`, whose status ends the process.

    SIGTERM stops it as Ctrl-C does, the second one at once. A stopped one ends at once where jax or TensorFlow are
    loaded: threads of theirs may still compile or read, under which an exit in good order would take the interpreter
    away.
    """
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    status = main()
    if status in (INTERRUPTED, TERMINATED) and {"jax", "tensorflow"} & sys.modules.keys():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _terminate(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated


def run_function(function: Callable[..., Any]) -> int:
    """The command line of a function that a script holds; otherwise as `main`."""
    name, tokens = Path(sys.argv[0]).name, sys.argv[1:]

    def run() -> None:
        app = _app(name, description(function))
        app.default_command = command(function, tokens, {})
        console.set_verbosity()
        app(tokens)

    return _status(run, [()], name)


def _app(name: str, text: str) -> App:
    return App(
        name=name,
        help=text,
        help_format="plaintext",
        version=f"xdesc {__version__}",
        group_commands=_XDESC,
        group_arguments=ARGUMENTS,
        group_parameters=OPTIONS,
        default_parameter=Parameter(consume_multiple=True, negative_iterable=()),
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )


def build() -> App:
    """The whole command line, with one line a stage; `prepare` fills in the one that is called."""
    app = _app("xdesc", _HELP)
    folders: dict[Words, App] = {(): app}
    for number, (words, stage) in enumerate(STAGES.items()):
        for folder in (words[:length] for length in range(1, len(words))):
            if folder not in folders:
                folders[folder] = _folder(folders[folder[:-1]], folder[-1], *FOLDERS[folder], number)
        if any(other[:-1] == words for other in STAGES):  # a stage that holds others, too
            folders[words] = _folder(folders[words[:-1]], words[-1], stage.group, stage.help, number)
        else:
            parent = folders[words[:-1]]
            parent.command(stage.target, name=words[-1], help=stage.help, group=stage.group, sort_key=number)
    app.command(_plan, name=PLAN, sort_key=0)
    app.register_install_completion_command(COMPLETION, help="Install completion for your shell.")
    app.meta.default(_launcher(app))
    app.meta.suppress_keyboard_interrupt = False
    return app


def stage_of(app: App, tokens: Sequence[str]) -> Words:
    """The words of the command line that name a stage, or hold stages."""
    words, _ = _divided(app, tokens)
    return words


def _divided(app: App, tokens: Sequence[str]) -> tuple[Words, list[str]]:
    """The words that name a stage, and what stands behind them; without global options and --help."""
    chain, _, behind = app.meta.parse_commands([token for token in tokens if token not in app.help_flags])
    return tuple(word for word in chain if not word.startswith("-")), behind


def prepare(app: App, words: Words, tokens: Sequence[str]) -> None:
    """Gives a stage its signature and its whole help."""
    stage = STAGES[words]
    module, _, name = stage.target.partition(":")
    function = getattr(importlib.import_module(module), name)
    for word in words:
        app = app[word]
    app.help = description(function)
    app.default_command = command(function, tokens, stage.aliases, before=functools.partial(_begin, stage))


def prepare_pipeline(app: App, name: str, tokens: Sequence[str]) -> None:
    """Makes a pipeline a command of its own beside the list of all, so that it takes the global options as stages do.

    Raises:
        ValueError: none of that name.
        ModuleNotFoundError: a package that it needs.
    """
    stage, function = STAGES[PIPELINE], pipelines.load(name)

    def begin(given: dict[str, Any]) -> None:
        if active():
            raise ValueError(
                f"`xdesc pipeline {name}` has no dry run: its steps begin with what those before them make; its stages "
                "have one each"
            )
        _begin(stage, given)

    folder = _folder(app[PIPELINE[0]], name, stage.group, description(function), 0)
    folder.default_command = command(function, tokens, {}, before=begin)


def _folder(parent: App, name: str, group: Group, line: str, number: int) -> App:
    folder = App(name=name, help=line, group=group, sort_key=number)
    parent.command(folder)
    return folder


def _plan(*stage: str) -> None:
    """STAGE ...: say what a stage would read, make and skip (as --dry-run).

    Args:
        stage: a stage with its arguments and options.
    """
    raise ValueError("name a stage: xdesc plan STAGE ...")


_given: dict[str, Any] = {}  # what the command line gave the stage


def _begin(stage: Stage, given: dict[str, Any]) -> None:
    """Notes what a stage is given, and raises ModuleNotFoundError where it could not even begin."""
    for package in stage.needs:
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    _given.clear()
    _given.update(given)


def _launcher(app: App) -> Callable[..., None]:
    """What happens before each stage: the global options."""

    def launch(
        *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        plugin: Annotated[tuple[str, ...], Parameter(group=GLOBAL, consume_multiple=False, show_default=False)] = (),
        quiet: Annotated[bool, Parameter(("--quiet", "-q"), group=GLOBAL, negative=(), show_default=False)] = False,
        verbose: Annotated[bool, Parameter(("--verbose", "-v"), group=GLOBAL, negative=(), show_default=False)] = False,
        dry_run: Annotated[bool, Parameter("--dry-run", group=GLOBAL, negative=(), show_default=False)] = False,
        whole_inputs: Annotated[bool, Parameter(group=GLOBAL, negative=(), show_default=False)] = False,
    ) -> None:
        """Runs a stage.

        Args:
            words: the stage and what it is given.
            plugin: FILE.py or module that registers your own descriptors; may be given again.
            quiet: print errors and the result alone.
            verbose: print all settings, and what COLMAP, TensorFlow and jax have to say.
            dry_run: say what would be read, made and skipped; write nothing.
            whole_inputs: know large inputs again by all of their content, not by size, time and samples.
        """
        console.set_verbosity(quiet, verbose)
        if whole_inputs:
            os.environ[WHOLE_INPUTS] = "1"
        if plugin:
            from xdesc_jax.descriptors import PLUGINS

            os.environ[PLUGINS] = os.pathsep.join(filter(None, [os.environ.get(PLUGINS), *plugin]))
        if not dry_run:
            app(words)
            return
        from xdesc_jax.command_line.plan import report

        with planning() as plan:
            try:
                app(words)
            finally:
                if plan.outputs or sys.exc_info()[0] is None:
                    report(plan, _given)

    return launch


def _without(tokens: Sequence[str], word: str) -> list[str]:
    """The words without the first of these; none where no stage follows it."""
    place = list(tokens).index(word)
    rest = [*tokens[:place], *tokens[place + 1 :]]
    return rest if any(not token.startswith("-") for token in tokens[place + 1 :]) else []


def _slip(error: CycloptsError, said: str) -> str:
    """What is wrong with the words of a command line, and where to look."""
    found, _, _ = str(error).partition(" Available commands: ")
    missing = error.argument if isinstance(error, MissingArgumentError) and error.keyword is None else None
    if isinstance(error, UnusedCliTokensError) and error.target and error.unused_tokens:
        found = f"{said} expects {usage(error.target) or 'no paths'}, found also {' '.join(error.unused_tokens)}."
    elif missing is not None and error.target and missing.field_info.is_keyword:
        found = f"{said} needs {missing.name} (usage: {said} {usage(error.target, options=True)})."
    elif missing is not None and error.target:
        found = f"{said} expects {usage(error.target)}."
    return f"{found} See `{said} --help`."


def _status(run: Callable[[], Any], called: Sequence[Words], name: str = "xdesc") -> int:
    """0, or the status of what went wrong behind one line about it.

    Args:
        run: what may go wrong.
        called: the stage comes last.
        name: of the command.
    """

    def failed(message: object, status: int = 2) -> int:
        console.error(str(message))
        return status

    console.set_verbosity(False, False)  # until the global options are read
    try:
        run()
    except CycloptsError as error:
        return failed(_slip(error, " ".join([name, *called[-1]])))
    except (ValueError, OSError, KeyError, FloatingPointError) as error:
        if os.environ.get(DEBUG):
            raise
        return failed(error.args[0] if isinstance(error, KeyError) and error.args else error)
    except Terminated:
        return failed("terminated; finished work is kept", TERMINATED)
    except KeyboardInterrupt:
        return failed("interrupted; finished work is kept", INTERRUPTED)
    except Exception as error:
        said = " ".join([name, *called[-1]])
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if isinstance(cause, ModuleNotFoundError) and not (cause.name or "xdesc_jax").startswith("xdesc_jax"):
            return failed(_lacks(said, called[-1], cause.name))
        if os.environ.get(DEBUG):
            raise
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return failed(f"internal error in {said}: {text} ({DEBUG}=1 shows where)", INTERNAL_ERROR)
    return 0


def _lacks(said: str, words: Words, package: str | None) -> str:
    stage = STAGES.get(words) or STAGES.get(words[:1])  # of a pipeline
    extra = SETTING_EXTRAS.get((package or "").split(".")[0], stage.extra if stage is not None else "")
    hint = f"; install it with: pip install 'xdesc-jax[{extra}]'" if extra else ""
    return f"{said} needs the package {package!r}{hint}"


if __name__ == "__main__":
    sys.exit(main())
