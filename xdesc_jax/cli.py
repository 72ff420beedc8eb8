"""The `xdesc` command: one sub-command per stage.

In: command-line words. Out: the stage's exit status. A stage is a function of paths and settings; its
signature is its command line, its docstring the help. Each is imported only when called, so that
`xdesc translate` runs on the base install.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_origin, get_type_hints

from xdesc_jax import console

# words -> (module:function, the extra it needs, one line of help)
STAGES: dict[tuple[str, ...], tuple[str, str, str]] = {
    ("extract",): ("xdesc_jax.features.extract:extract", "features,colmap", "photos -> feature files"),
    ("records",): ("xdesc_jax.data.records:records", "train,features,colmap", "photos or feature files -> records"),
    ("describe",): (
        "xdesc_jax.data.describe:describe",
        "train,features",
        "records with patches -> further descriptors",
    ),
    ("pairs",): (
        "xdesc_jax.data.pairs.pairs:pairs",
        "train,features,colmap",
        "photos -> records of corresponding patches",
    ),
    ("scenes",): ("xdesc_jax.data.scenes:scenes", "features", "photos -> scenes with known homographies"),
    ("train",): ("xdesc_jax.train.translators.run:command", "train", "records -> run directory"),
    ("train-descriptor",): ("xdesc_jax.train.descriptors.run:command", "train", "records of pairs -> run directory"),
    ("sweep",): ("xdesc_jax.sweep.run:sweep", "sweep", "records -> many run directories, and their results"),
    ("sweep", "report"): ("xdesc_jax.sweep.report:report", "sweep", "results of a sweep -> page, best configurations"),
    ("export",): ("xdesc_jax.export.export:export", "train", "run or model file -> ONNX, StableHLO, PyTorch, ..."),
    ("export-descriptor",): (
        "xdesc_jax.train.descriptors.export:export_descriptor",
        "train",
        "run directory -> descriptor weights",
    ),
    ("import",): (
        "xdesc_jax.export.pytorch_translator:import_model",
        "torch",
        "the authors' PyTorch file -> one model file",
    ),
    ("translate",): (
        "xdesc_jax.translation.translate:translate",
        "",
        "descriptors -> another type, or the joint space",
    ),
    ("inspect",): ("xdesc_jax.inspection.inspect:inspect", "", "what a database, feature, match or model file holds"),
    ("show",): ("xdesc_jax.inspection.show:show", "colmap,report", "your matches or localised queries -> pictures"),
    ("match",): ("xdesc_jax.matching.match:match", "", "features, also of mixed descriptors -> matches"),
    ("retrieve",): ("xdesc_jax.matching.retrieval:retrieve", "", "feature files -> pairs of photos of the same place"),
    ("reconstruct",): ("xdesc_jax.mapping.reconstruct:reconstruct", "colmap", "features and matches -> models"),
    ("localize",): ("xdesc_jax.localization.localize:localize", "colmap", "query features and a map -> poses"),
    ("map", "update"): (
        "xdesc_jax.mapping.update:update",
        "colmap,report",
        "new photos replace translated rows of a map",
    ),
    ("weights", "install"): (
        "xdesc_jax.features.official:install",
        "features,torch",
        "published weights of hardnet, sosnet or tfeat",
    ),
    ("configs",): ("xdesc_jax.config:configs", "", "configurations that ship with the package, for --config"),
    ("models",): ("xdesc_jax.pretrained.listing:models", "", "what ships with the package, and how good it is"),
    ("calibrate",): (
        "xdesc_jax.evaluate.calibrate:calibrate",
        "features,colmap,report",
        "ratio thresholds for a model's rows",
    ),
    ("evaluate", "homography"): (
        "xdesc_jax.evaluate.stages.homography:homography",
        "features,colmap,report",
        "matching on scenes with known homographies",
    ),
    ("evaluate", "localization"): (
        "xdesc_jax.evaluate.stages.localization:localization",
        "colmap,report",
        "localised queries against true poses",
    ),
    ("evaluate", "sfm"): ("xdesc_jax.evaluate.stages.sfm:sfm", "colmap,report", "a reconstruction against a reference"),
}
# former names of stages -> the words that they stand for now
FORMER: dict[str, list[str]] = {"records-beam": ["records", "--beam"]}
# packages that one setting of a stage needs -> the extra that holds them
SETTING_EXTRAS = {"apache_beam": "beam"}


def usage() -> str:
    """The list of stages."""
    width = max(len(" ".join(words)) for words in STAGES)
    lines = [f"  {' '.join(words):<{width}}  {text}" for words, (_, _, text) in STAGES.items()]
    return (
        "usage: xdesc [--plugin FILE.py|MODULE ...] STAGE ...\n\n"
        + "\n".join(lines)
        + "\n\n`xdesc STAGE --help` lists a stage's settings. --plugin imports what registers your own descriptors."
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs one stage; returns 0, or 2 behind one line that says what was wrong."""
    arguments = _take_plugins(list(sys.argv[1:] if arguments is None else arguments))
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        from xdesc_jax import __version__

        print(f"xdesc {__version__}")
        return 0
    console.set_verbosity(verbose=bool(os.environ.get("XDESC_DEBUG")))
    arguments = FORMER.get(arguments[0], arguments[:1]) + arguments[1:]
    for length in (2, 1):
        words = tuple(arguments[:length])
        if words in STAGES:
            return _run(words, arguments[length:])
    print(f"error: unknown stage {' '.join(arguments[:2])!r}\n\n{usage()}", file=sys.stderr)
    return 2


def _take_plugins(arguments: list[str]) -> list[str]:
    """The words behind any leading `--plugin X`; the plugins are passed on in the environment."""
    from xdesc_jax.descriptors import PLUGINS

    if arguments and arguments[0].startswith("--plugin="):
        arguments = ["--plugin", arguments[0].removeprefix("--plugin="), *arguments[1:]]
    while len(arguments) > 1 and arguments[0] == "--plugin":
        os.environ[PLUGINS] = os.pathsep.join(filter(None, [os.environ.get(PLUGINS), arguments[1]]))
        arguments = arguments[2:]
    return arguments


def _run(words: tuple[str, ...], arguments: list[str]) -> int:
    target, extra, _ = STAGES[words]
    module, function = target.split(":")
    try:
        prog = f"xdesc {' '.join(words)}"
        with console.status(f"starting {prog}"):
            import tyro

            stage = getattr(importlib.import_module(module), function)
        if function == "command":  # parses its own words, since a file among them gives its defaults
            stage(prog, arguments)
        else:
            tyro.cli(_with_positionals(stage), prog=prog, args=arguments)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("xdesc_jax"):
            raise
        extra = SETTING_EXTRAS.get((error.name or "").split(".")[0], extra)
        hint = f"; install it with: pip install 'xdesc-jax[{extra}]'" if extra else ""
        console.error(f"xdesc {' '.join(words)} needs the package {error.name!r}{hint}")
        return 2
    except (ValueError, OSError, KeyError, FloatingPointError) as error:
        if os.environ.get("XDESC_DEBUG"):
            raise
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        console.error(str(text))
        return 2
    except KeyboardInterrupt:
        console.error("interrupted; finished work is kept")
        return 130
    return 0


def _with_positionals(stage: Callable[..., Any]) -> Callable[..., Any]:
    """The stage, told to tyro as Python calls it: what stands before '*' without default is positional.

    Of positionals `(several: tuple[X, ...], last: X)`, tyro would give all words to the first, so it sees one.
    """
    import tyro

    signature, hints = inspect.signature(stage), get_type_hints(stage, include_extras=True)
    positional = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
    ]
    several = len(positional) == 2 and get_origin(hints[positional[0]]) is tuple

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if several:
            paths = given[positional[0]]
            if len(paths) < 2:
                raise ValueError(f"expected {_metavar(positional)}, found {len(paths)} paths")
            given |= {positional[0]: paths[:-1], positional[1]: paths[-1]}
        return stage(**given)

    shown = tyro.conf.arg(metavar=_metavar(positional)) if several else None
    for name in positional[: 1 if several else None]:
        note = shown or tyro.conf.arg(metavar=name.upper())
        hints[name] = tyro.conf.Positional[Annotated[hints[name], note]]  # type: ignore
    if several:
        kept = [p for name, p in signature.parameters.items() if name != positional[1]]
        signature = signature.replace(parameters=kept)
        hints.pop(positional[1])
    call.__signature__, call.__annotations__, call.__doc__ = signature, hints, stage.__doc__  # type: ignore
    return call


def _metavar(names: list[str]) -> str:
    return f"{names[0].upper()}... {names[1].upper()}"


if __name__ == "__main__":
    sys.exit(main())
