"""Where all output goes: results to standard output, messages to the logger `xdesc_jax`.

In: messages and their levels. Out: as a command, lines on standard error by rich; as a library nothing but Python's
own logging, so that a program configures it as any other (without, warnings alone appear on standard error).

    level      what
    ERROR      why a stage ended
    WARNING    what deserves a look: photos left out, rows that look foreign
    INFO       settings, what was made, how far long work is
    DEBUG      all settings, and what COLMAP, TensorFlow and jax have to say
"""

from __future__ import annotations

import logging
import os

from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text

from xdesc_jax.console.tables import fold

log = logging.getLogger("xdesc_jax")
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)

HEADING = "heading"  # attribute of a record whose first line is one
_STYLES = {logging.DEBUG: "dim", logging.WARNING: "yellow", logging.ERROR: "red"}
_LONGEST = 1500  # characters of an error
_LIBRARIES = ("absl", "apache_beam", "jax", "orbax", "tensorflow")


class _Verbosity:
    """What `set_verbosity` chose; a library starts with neither."""

    quiet = False
    verbose = False


def set_verbosity(quiet: bool = False, verbose: bool = False) -> None:
    """Shows the messages of this process on standard error; called once, by a command line, before other imports.

    Args:
        quiet: errors alone; the stage's result, tables and paths, still goes to standard output.
        verbose: all settings, and the messages of COLMAP, TensorFlow and jax; wins over `quiet`.
    """
    _Verbosity.quiet, _Verbosity.verbose = quiet and not verbose, verbose
    log.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO)
    # Of the root, so that no library adds one there, which would say everything twice; nor keeps one that it added when
    # it was imported before.
    for plain in [handler for handler in logging.root.handlers if type(handler) is logging.StreamHandler]:
        logging.root.removeHandler(plain)
    if not any(isinstance(handler, Handler) for handler in logging.root.handlers):
        logging.root.addHandler(Handler())
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.ERROR)
    # What C++ prints; read at import, also by worker processes.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if verbose else "3")


def is_quiet() -> bool:
    """Whether only errors and results are shown."""
    return _Verbosity.quiet


def is_verbose() -> bool:
    """Whether libraries may say what they do."""
    return _Verbosity.verbose


def info(message: str) -> None:
    """Says how things go."""
    log.info("%s", message)


def warn(message: str) -> None:
    """Warns of what deserves a look."""
    log.warning("%s", message)


def error(message: str) -> None:
    """Says why a stage ends: in one line, whatever of a damaged file stands in the message."""
    log.error("%s", one_line(message))


def one_line(message: str) -> str:
    """A message without what breaks or rewrites lines, and without the middle of one that is longer than a screen."""
    line = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in message.strip())
    if len(line) <= _LONGEST:
        return line
    return f"{line[: _LONGEST * 2 // 3]} ... {line[-_LONGEST // 3 :]}"


class Handler(RichHandler):
    """Shows a record as its message alone, with its level where that is a warning or worse; of other loggers errors
    alone, unless the command is verbose."""

    def __init__(self) -> None:
        super().__init__(console=err)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name == log.name or is_verbose() or record.levelno >= logging.ERROR

    def emit(self, record: logging.LogRecord) -> None:
        try:
            named = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
            # Text, because rich reads markup in strings, and a path may look like it.
            message = named + self.format(record)
            if err.is_terminal:  # a file has lines as long as they are
                message = "\n".join(part for line in message.split("\n") for part in fold(line, err.width, "    "))
            text = Text(message, style=_STYLES.get(record.levelno, ""))
            if getattr(record, HEADING, False):
                text.stylize("bold", 0, len(message.split("\n")[0]))
            err.print(text, soft_wrap=True)
        except Exception:  # as all handlers do: a message must not end the work
            self.handleError(record)
