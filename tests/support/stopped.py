"""A run that is stopped in the middle, within this process: where a test says, as if it had been killed there."""

from __future__ import annotations

from typing import Any


class Stopped(BaseException):
    """Ends a stage from without; no error that a stage handles."""


class Calls:
    """Counts the calls of a function, and stops the run instead of the call behind the first `until`.

    Args:
        monkeypatch: of the test.
        owner, name: where the function is.

    Attributes:
        done: how many calls there were; set to 0 to count anew.
        until: how many there may be; None for any number.
    """

    def __init__(self, monkeypatch: Any, owner: Any, name: str):
        self.done, self.until = 0, None
        real = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            if self.done == self.until:
                raise Stopped
            self.done += 1
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)
