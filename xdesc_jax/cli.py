"""The `xdesc` command: one sub-command per stage.

In: command-line words. Out: the stage's exit status. A stage is a function of paths and settings; its signature is its
command line, its docstring the help (see `command_line.signature`). Each is imported only when its name is on the
command line, and imports what it computes with only when it runs, so that every `--help` works on the base install.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, MissingArgumentError, Parameter

from xdesc_jax import __version__, console
from xdesc_jax.command_line.signature import ARGUMENTS, GLOBAL, OPTIONS, command, description, usage
from xdesc_jax.files.dry_run import planning

Words = tuple[str, ...]
PLAN, COMPLETION, DEBUG = "plan", "--install-completion", "XDESC_DEBUG"
_FEATURES = Group("Photos and features", sort_key=1)
_MATCHING = Group("Translate and match", sort_key=2)
_MAPS = Group("Maps", sort_key=3)
_EVALUATE = Group("Evaluate", sort_key=4)
_TRAINING = Group("Records and training", sort_key=5)
_FILES = Group("Models and files", sort_key=6)
_XDESC = Group("This command", sort_key=7)


@dataclasses.dataclass(frozen=True)
class Stage:
    """An entry of the command line.

    Attributes:
        target: 'module:function'.
        extra: of this package, which brings what the stage needs; '' for the base install.
        group: under which `xdesc --help` lists it.
        help: one line.
        needs: packages without which it cannot even begin, told before it does; others are told when they are missed.
        aliases: older name of an option -> its parameter; not shown.
    """

    target: str
    extra: str
    group: Group
    help: str
    needs: Words = ()
    aliases: dict[str, str] = dataclasses.field(default_factory=dict)


STAGES: dict[Words, Stage] = {
    ("extract",): Stage(
        "xdesc_jax.features.extract:extract", "features,colmap", _FEATURES, "Photos -> feature files.", ("cv2", "PIL")
    ),
    ("inspect",): Stage(
        "xdesc_jax.inspection.inspect:inspect", "", _FILES, "What a database, feature, match or model file holds."
    ),
    ("show",): Stage(
        "xdesc_jax.inspection.show:show", "colmap,report", _MATCHING, "Your matches or localised queries -> pictures.",
        ("matplotlib", "PIL"),
    ),
    ("scenes",): Stage(
        "xdesc_jax.data.scenes:scenes", "features", _EVALUATE, "Photos -> scenes with known homographies.",
        ("cv2", "PIL"),
    ),
    ("translate",): Stage(
        "xdesc_jax.translation.translate:translate", "", _MATCHING, "Descriptors -> another type, or the joint space.",
        aliases={"source": "descriptor"},
    ),
    ("match",): Stage(
        "xdesc_jax.matching.match:match", "", _MATCHING, "Features, also of mixed descriptors -> matches."
    ),
    ("retrieve",): Stage(
        "xdesc_jax.matching.retrieval:retrieve", "", _MATCHING, "Feature files -> pairs of photos of the same place."
    ),
    ("calibrate",): Stage(
        "xdesc_jax.evaluate.calibrate:calibrate", "features,colmap,report", _MATCHING,
        "Ratio thresholds for a model's rows.",
    ),
    ("reconstruct",): Stage(
        "xdesc_jax.mapping.reconstruct:reconstruct", "colmap", _MAPS, "Features and matches -> models.", ("pycolmap",)
    ),
    ("localize",): Stage(
        "xdesc_jax.localization.localize:localize", "colmap", _MAPS, "Query features and a map -> poses.", ("pycolmap",)
    ),
    ("map", "update"): Stage(
        "xdesc_jax.mapping.update:update", "colmap,report", _MAPS, "New photos replace translated rows of a map.",
        ("pycolmap", "matplotlib"),
    ),
    ("evaluate", "homography"): Stage(
        "xdesc_jax.evaluate.stages.homography:homography", "features,colmap,report", _EVALUATE,
        "Matching on scenes with known homographies.", ("PIL", "matplotlib"),
    ),
    ("evaluate", "localization"): Stage(
        "xdesc_jax.evaluate.stages.localization:localization", "colmap,report", _EVALUATE,
        "Localised queries against true poses.", ("pycolmap", "matplotlib"),
    ),
    ("evaluate", "sfm"): Stage(
        "xdesc_jax.evaluate.stages.sfm:sfm", "colmap,report", _EVALUATE, "A reconstruction against a reference.",
        ("pycolmap", "matplotlib"),
    ),
    ("records",): Stage(
        "xdesc_jax.data.records:records", "train,features,colmap", _TRAINING, "Photos or feature files -> records.",
        aliases={"descriptor": "descriptors"},
    ),
    ("describe",): Stage(
        "xdesc_jax.data.describe:describe", "train,features", _TRAINING,
        "Records with patches -> further descriptors.", ("jax",),
    ),
    ("pairs",): Stage(
        "xdesc_jax.data.pairs.pairs:pairs", "train,features,colmap", _TRAINING,
        "Photos -> records of corresponding patches.", ("PIL", "cv2", "scipy"),
    ),
    ("train",): Stage(
        "xdesc_jax.train.translators.stage:train", "train", _TRAINING, "Records -> run directory.",
        ("jax", "flax", "optax", "orbax"),
    ),
    ("train-descriptor",): Stage(
        "xdesc_jax.train.descriptors.stage:train_descriptor", "train", _TRAINING,
        "Records of pairs -> run directory.", ("jax", "flax", "optax", "orbax"),
    ),
    ("sweep",): Stage(
        "xdesc_jax.sweep.stage:sweep", "sweep", _TRAINING,
        "Records -> many run directories; `sweep report`: their results.", ("jax", "flax", "optax", "orbax"),
    ),
    ("sweep", "report"): Stage(
        "xdesc_jax.sweep.report:report", "sweep", _TRAINING, "Results of a sweep -> page, best configurations."
    ),
    ("configs",): Stage("xdesc_jax.config:configs", "", _TRAINING, "Configurations that ship, for --config."),
    ("models",): Stage(
        "xdesc_jax.pretrained.listing:models", "", _FILES, "What ships with the package, and how good it is."
    ),
    ("export",): Stage(
        "xdesc_jax.export.export:export", "train", _FILES, "Run or model file -> ONNX, StableHLO, PyTorch, ..."
    ),
    ("export-descriptor",): Stage(
        "xdesc_jax.train.descriptors.export:export_descriptor", "train", _FILES, "Run directory -> descriptor weights.",
        ("jax", "flax", "optax", "orbax"),
    ),
    ("import",): Stage(
        "xdesc_jax.export.pytorch_translator:import_model", "torch", _FILES,
        "The authors' PyTorch file -> one model file.",
    ),
    ("weights", "install"): Stage(
        "xdesc_jax.features.official:install", "features,torch", _FILES,
        "Published weights of hardnet, sosnet or tfeat.",
    ),
}  # fmt: skip
# Former name of a stage -> the words that it stands for now.
FORMER = {"records-beam": ["records", "--beam"]}
# Package that one setting of a stage needs -> the extra that holds it.
SETTING_EXTRAS = {"apache_beam": "beam"}
# Words that only hold other stages -> the line for them.
FOLDERS: dict[Words, tuple[Group, str]] = {
    ("map",): (_MAPS, "`map update`: new photos replace translated rows of a map."),
    ("evaluate",): (_EVALUATE, "`evaluate homography`, `localization` or `sfm`: results against the truth."),
    ("weights",): (_FILES, "`weights install`: published weights of hardnet, sosnet or tfeat."),
}
_HELP = """Translates local feature descriptors between types, and maps and localises with them.

`xdesc STAGE --help` lists a stage's options, `xdesc plan STAGE ...` says what it would do."""
INTERNAL_ERROR = 70  # as sysexits.h has it


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one stage; returns 0, or another status behind one line that says what was wrong."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    called: list[Words] = [()]  # the stage, once it is known

    def run() -> None:
        nonlocal tokens
        app = build()
        if tokens[:1] == ["help"]:
            tokens = [*tokens[1:], "--help"]
        _, _, left = app.meta.parse_commands(tokens)
        if left and left[0] in FORMER:
            place = tokens.index(left[0])
            tokens[place : place + 1] = FORMER[left[0]]
        called.append(stage_of(app, tokens))
        if called[-1] == (PLAN,) and (planned := _without(tokens, PLAN)):
            tokens = ["--dry-run", *planned]
            called.append(stage_of(app, tokens))
        for words in STAGES if COMPLETION in tokens else [called[-1]]:
            if words in STAGES:
                prepare(app, words, tokens)
        app.meta(tokens)

    return _status(run, called)


def run_function(function: Callable[..., Any], arguments: Sequence[str] | None = None) -> int:
    """The command line of a function that is no stage, such as a pipeline; otherwise as `main`."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    app = _app(Path(sys.argv[0]).name, description(function))
    app.default_command = command(function, tokens, {})
    return _status(lambda: app(tokens), [()], app.name[0])


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
    chain, _, _ = app.meta.parse_commands([token for token in tokens if token not in app.help_flags])
    return tuple(word for word in chain if not word.startswith("-"))


def prepare(app: App, words: Words, tokens: Sequence[str]) -> None:
    """Gives a stage its signature and its whole help."""
    stage = STAGES[words]
    module, _, name = stage.target.partition(":")
    function = getattr(importlib.import_module(module), name)
    for word in words:
        app = app[word]
    app.help = description(function)
    app.default_command = command(function, tokens, stage.aliases, before=functools.partial(_begin, stage))


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
    ) -> None:
        """Runs a stage.

        Args:
            words: the stage and what it is given.
            plugin: FILE.py or module that registers your own descriptors; may be given again.
            quiet: print errors and warnings alone.
            verbose: print more of what happens.
            dry_run: say what would be read, made and skipped; write nothing.
        """
        console.set_verbosity(quiet, verbose)
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

    try:
        run()
    except CycloptsError as error:
        found, _, _ = str(error).partition(" Available commands: ")
        missing = error.argument if isinstance(error, MissingArgumentError) else None
        if missing is not None and error.target and not missing.field_info.is_keyword:
            found = f"{' '.join([name, *called[-1]])} expects {usage(error.target)}."
        return failed(f"{found} See `{' '.join([name, *called[-1]])} --help`.")
    except (ValueError, OSError, KeyError, FloatingPointError) as error:
        if os.environ.get(DEBUG):
            raise
        return failed(error.args[0] if isinstance(error, KeyError) and error.args else error)
    except KeyboardInterrupt:
        console.error("interrupted; finished work is kept")
        return 130
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
    extra = SETTING_EXTRAS.get((package or "").split(".")[0], STAGES[words].extra if words in STAGES else "")
    hint = f"; install it with: pip install 'xdesc-jax[{extra}]'" if extra else ""
    return f"{said} needs the package {package!r}{hint}"


if __name__ == "__main__":
    sys.exit(main())
