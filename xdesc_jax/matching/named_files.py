"""What files hold that do not say it, as somebody names it: all of them, or one by one.

In: names of descriptors, of which NAME=FILE is of one file. Out: the name for a file. Runs on the base install.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from xdesc_jax.descriptors import DescriptorSpec


@dataclasses.dataclass(frozen=True)
class NamedFiles:
    """What files hold.

    Attributes:
        rest: what every file holds that does not say, and that `each` does not name; None where nothing is said.
        each: resolved path -> what this file holds.
    """

    rest: str | DescriptorSpec | None = None
    each: Mapping[Path, str | DescriptorSpec] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, words: str | Sequence[str] | None, paths: Sequence[Path], option: str = "--descriptor") -> NamedFiles:
        """Of words 'NAME' and 'NAME=FILE'.

        Args:
            words: one or several; at most one NAME alone.
            paths: the files that a word may name.
            option: that the words were given by, for errors.

        Raises:
            ValueError: a word of another form, a file that is not among `paths`, or two names for one file or for all.
        """
        rest: str | None = None
        each: dict[Path, str | DescriptorSpec] = {}
        known = {path.resolve() for path in paths}
        for word in [words] if isinstance(words, str) else words or ():
            name, separator, file = word.partition("=")
            if not name or bool(file) != bool(separator):
                raise ValueError(f"{option} {word!r}: expected NAME or NAME=FILE")
            path = Path(file).resolve()
            if file and path not in known:
                raise ValueError(f"{option} {word}: {file} is not among {', '.join(map(str, paths))}")
            other = each.get(path) if file else rest
            if other not in (None, name):
                raise ValueError(f"{option}: {other!r} and {name!r} are named for {file or 'the same files'}")
            if file:
                each[path] = name
            else:
                rest = name
        return cls(rest, each)

    def config(self, paths: Sequence[Path]) -> str | list[str | None] | None:
        """As a stage's configuration keeps it: one name, or one a file."""
        names = [_name(self.each.get(path.resolve(), self.rest)) for path in paths]
        return names[0] if len(set(names)) == 1 else names


def _name(held: str | DescriptorSpec | None) -> str | None:
    return held.name if isinstance(held, DescriptorSpec) else held
