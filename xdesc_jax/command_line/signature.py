"""From a stage, which is a function, to a command line, which the library cyclopts parses.

In: a function with type hints and a docstring, and the words that follow its name. Out: a function of the same meaning
whose signature cyclopts reads: what stands before `*` without default is positional, the rest are options. The fields
of a parameter that is a configuration (a dataclass) are options of their own, `--loss.alpha`; the file that `--config`
names gives their defaults, and an option overrides its field alone. Stages import nothing of this.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter

from xdesc_jax.config import load_config
from xdesc_jax.files.fields import leaves, replaced

CONFIG = "config"  # the parameter whose fields a file may set
FLAT = (CONFIG, "settings")  # parameters whose fields need no name before theirs
ONE_BY_ONE = ("descriptor", "query_descriptor")  # of several values, each behind the option anew: paths may follow it
ARGUMENTS = Group("Arguments", sort_key=10)
OPTIONS = Group("Options", sort_key=11)
GLOBAL = Group("Global options", sort_key=13)
_FIELDS = Group("Configuration", sort_key=12)
_SETTINGS = Group("Settings", sort_key=12)


def command(
    stage: Callable[..., Any],
    words: Sequence[str],
    aliases: Mapping[str, str],
    before: Callable[[dict[str, Any]], None] = lambda given: None,
) -> Callable[..., Any]:
    """The stage as cyclopts is to see it.

    Args:
        stage: the function.
        words: of the command line behind the stage's name; `--config` among them is looked up.
        aliases: older name of an option -> its parameter; parsed, not shown.
        before: called with the stage's arguments before it runs.

    Returns:
        A function that passes on what was given.

    Raises:
        ValueError, OSError: the file of `--config` cannot be used.
    """
    signature = inspect.signature(stage)
    hints, told = parameter_hints(stage), told_of(stage)
    parameters: list[inspect.Parameter] = []
    nested: dict[str, tuple[str, Any]] = {}  # parameter of the command -> (dotted field, configuration's parameter)
    defaults: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            required = parameter.default is parameter.empty
            default = hint() if required else parameter.default
            if name == CONFIG:
                parameters.append(_config_option(required))
                file = _value_of("--config", words)
                default = load_config(file, hint) if file else default
            defaults[name] = default
            fields = _field_options(name, default)
            nested |= {option.name: (field, name) for field, option in fields.items()}
            parameters += fields.values()
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty:
            parameters.append(_positional(parameter, hint, told.get(name)))
        else:
            parameters.append(_option(parameter, hint, told.get(name)))
    known = {p.name: p for p in parameters}
    for old, name in aliases.items():
        hidden = Parameter(name=_option_name(old), show=False)
        annotation: Any = Annotated[known[name].annotation, hidden]
        parameters.append(known[name].replace(name=old, annotation=annotation, default=None))
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(positional, args, strict=True)) | kwargs
        for old, name in aliases.items():
            if given.get(old) is not None:
                if name in given:
                    raise ValueError(f"{_option_name(old)} is an older name of {_option_name(name)}: give one of them")
                given[name] = given.pop(old)
            given.pop(old, None)
        given.pop("config_file", None)
        changed: dict[str, dict[str, Any]] = {name: {} for name in defaults}
        for option, (field, name) in nested.items():
            if option in given:
                changed[name][field] = given.pop(option)
        made = {name: replaced(default, changed[name]) for name, default in defaults.items()}
        before(given | made)
        paths = [given.pop(name) for name in positional]
        return stage(*paths, **given, **made)

    positionals = [p for p in parameters if p.kind is p.POSITIONAL_ONLY]
    options = [p for p in parameters if p.kind is not p.POSITIONAL_ONLY]
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*positionals, *options], return_annotation=inspect.Signature.empty
    )
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    call.__name__, call.__module__ = stage.__name__, stage.__module__
    return call


def parameter_hints(stage: Callable[..., Any]) -> dict[str, Any]:
    """Types of a stage's parameters; what it returns may need packages that are not there."""
    names = {name: hint for name, hint in stage.__annotations__.items() if name != "return"}
    return get_type_hints(types.SimpleNamespace(__annotations__=names), stage.__globals__)


def _positional(parameter: inspect.Parameter, hint: Any, told: str | None) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.POSITIONAL_ONLY, annotation=Annotated[hint, Parameter(help=told)])


def _option(parameter: inspect.Parameter, hint: Any, told: str | None) -> inspect.Parameter:
    note = Parameter(
        name=_option_name(parameter.name),
        help=told,
        show_default=_is_telling(parameter.default),
        consume_multiple=parameter.name not in ONE_BY_ONE,
    )
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, note])


def _config_option(required: bool) -> inspect.Parameter:
    note = Parameter(name="--config", help="Python file with get_config(); gives the defaults below.")
    return inspect.Parameter(
        "config_file",
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[Path if required else Path | None, note],
    )


def _field_options(name: str, config: Any) -> dict[str, inspect.Parameter]:
    """Dotted field -> its option, for the fields that can be written in a few words."""
    options = {}
    for field, leaf in leaves(config).items():
        if not _is_plain(leaf.hint):
            continue
        shown = field if name in FLAT else f"{name}.{field}"
        group = _FIELDS if name == CONFIG else _SETTINGS
        told = told_of(leaf.owner).get(field.rpartition(".")[2])
        note = Parameter(name=_option_name(shown), group=group, help=told, show_default=_is_telling(leaf.value))
        options[field] = inspect.Parameter(
            f"{name}_{field}".replace(".", "_"),
            inspect.Parameter.KEYWORD_ONLY,
            default=leaf.value,
            annotation=Annotated[leaf.hint, note],
        )
    return options


def usage(made: Callable[..., Any], *, options: bool = False) -> str:
    """What has to be given to a function that `command` made: its paths, as in FEATURES... OUT.

    Args:
        made: the function.
        options: add those that have no default, as in FEATURES... OUT --pairs PAIRS [OPTIONS].
    """
    paths, required, optional = [], [], []
    for parameter in inspect.signature(made).parameters.values():
        hint, note = get_args(parameter.annotation)[:2]
        value = parameter.name.upper() + "..." * (get_origin(hint) is tuple)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            paths.append(value)
        elif parameter.default is parameter.empty:
            required.append(f"{note.name[0]} {value}")
        else:
            optional = ["[OPTIONS]"]
    return " ".join([*paths, *required, *optional] if options else paths)


def description(stage: Callable[..., Any]) -> str:
    """What a stage's docstring says before its arguments, a line a paragraph."""
    before, _, _ = (inspect.getdoc(stage) or "").partition("\nArgs:\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in before.strip().split("\n\n"))


@functools.cache
def told_of(described: Any) -> dict[str, str]:
    """What a function says of its arguments, or a class of its fields, in its docstring or behind each."""
    from docstring_parser import parse_from_object

    return {p.arg_name: " ".join((p.description or "").split()) for p in parse_from_object(described).params}


def _is_telling(default: Any) -> bool:
    """Whether a default is worth a word."""
    return default is not None and default is not False and default != ()


def _is_plain(hint: Any) -> bool:
    """Whether values of this type are words: a number, a name, one of several, none, or a tuple of such."""
    if hint in (bool, int, float, str, Path, type(None), Ellipsis):
        return True
    origin = get_origin(hint)
    return origin is Literal or (origin in (tuple, Union, types.UnionType) and all(map(_is_plain, get_args(hint))))


def _option_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def _value_of(option: str, words: Sequence[str]) -> str | None:
    for word, following in itertools.pairwise([*words, None]):
        if word == option:
            return following
        if word is not None and word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None
