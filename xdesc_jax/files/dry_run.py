"""What a stage would do, found out by its own checks without doing it.

In: a stage that runs inside `planning`. Out: a `Plan` of what it read and what it would make. The stage reads and
checks its inputs as always; where it compares its outputs with its configuration (`whole.already_done`) or begins to
write them, it ends instead, with `Planned`. Outside `planning` nothing here does anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

MADE = "would be made"
REPLACED = "would be replaced"
FINISHED = "is finished, would be skipped"
CONTINUED = "would go on where it stopped"
REFUSED = "was made with another configuration, would be refused"
UNKNOWN = "is there; whether it would be skipped or refused depends on what is made before"


class Planned(BaseException):
    """Ends a stage in a dry run; no error, so that nothing that handles errors takes it for one."""


@dataclasses.dataclass
class Plan:
    """What a stage would do.

    Attributes:
        inputs: files whose content counts.
        outputs: what would be made, with what would become of it, in that order.
        remarks: what else there is to say of it.
    """

    inputs: dict[Path, None] = dataclasses.field(default_factory=dict)
    outputs: dict[Path, str] = dataclasses.field(default_factory=dict)
    remarks: list[str] = dataclasses.field(default_factory=list)
    _refusals: list[Exception] = dataclasses.field(default_factory=list)
    _listing: int = 0
    _steps: int = 0


_plan: Plan | None = None


@contextlib.contextmanager
def planning() -> Iterator[Plan]:
    """A stage in the body ends, with `Planned`, before it writes anything; what it would have done is in the plan."""
    global _plan
    before, _plan = _plan, Plan()
    try:
        yield _plan
    except Planned:
        pass
    finally:
        _plan = before


def active() -> bool:
    """Whether this is a dry run."""
    return _plan is not None


def read(path: Path) -> None:
    """Notes that the content of a file counts."""
    if _plan is not None:
        _plan.inputs[path] = None


def remark(text: str) -> None:
    """Says more of an output, such as how much of it is done."""
    if _plan is not None:
        _plan.remarks.append(text)


def output(path: Path, state: str, refusal: Exception | None = None) -> None:
    """Notes what would become of an output; in a dry run this ends the stage, unless it lists several.

    Args:
        path: file or folder.
        state: what would become of it.
        refusal: the error with which the stage would end.
    """
    if _plan is None:
        return
    _plan.outputs[path] = state
    if refusal is not None:
        _plan._refusals.append(refusal)
    if not _plan._listing:
        _end(_plan)


@contextlib.contextmanager
def several() -> Iterator[None]:
    """In a dry run, the stage ends behind the body, which looks at several outputs."""
    plan = _plan
    if plan is None:
        yield
        return
    plan._listing += 1
    try:
        yield
    finally:
        plan._listing -= 1
    if not plan._listing:
        _end(plan)


@contextlib.contextmanager
def step(*later: Path) -> Iterator[None]:
    """The body is a stage by itself, whose results this one needs.

    In a dry run, what is finished lets this one go on; what is not ends it, since nobody can tell yet from what its
    own outputs would be made.

    Args:
        later: outputs of this stage.
    """
    plan = _plan
    if plan is None:
        yield
        return
    plan._steps += 1
    try:
        yield
    except Planned:
        for path in later:
            plan.outputs[path] = UNKNOWN if path.exists() else MADE
        raise
    finally:
        plan._steps -= 1


def _end(plan: Plan) -> None:
    if plan._refusals:
        raise plan._refusals[0]
    if plan._steps and all(state == FINISHED for state in plan.outputs.values()):
        return
    raise Planned
