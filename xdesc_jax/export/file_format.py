"""What the file formats of other run times have in common.

In: a translation (see `translation_graph`), and what a format does of its own. Out: files that are written, read back
and compared with numpy, and errors that name the file.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path

from xdesc_jax.export.translation_graph import Graph, Run, deviation


@dataclasses.dataclass(frozen=True)
class FileFormat:
    """A format of one translation in one file.

    Attributes:
        a_file: what such a file is called, with its article.
        packages: that write and read it.
        extra: of this package, that holds them.
        write: writes a translation.
        opened: gives a function that runs a file; raises any error for one that it cannot read.
        readable: what a file is found not to be where that fails.
        least_rows: that a file can compute with.
    """

    a_file: str
    packages: tuple[str, ...]
    extra: str
    write: Callable[[Path, Graph], None]
    opened: Callable[[Path], Run]
    readable: str
    least_rows: int

    def require(self, where: Path | str) -> None:
        """Raises ValueError, naming the extra, where one of the packages cannot be imported."""
        for package in self.packages:
            try:
                importlib.import_module(package)
            except ImportError as error:
                raise ValueError(
                    f"{where}: {self.a_file} needs the package {package!r} ({error}); "
                    f"install it with: pip install 'xdesc-jax[{self.extra}]'"
                ) from error

    def load(self, path: Path | str) -> Run:
        """A function that runs a file.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a package is missing, or no file of this format, or one cut short.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such {self.a_file.split(maxsplit=1)[1]}")
        self.require(path)
        try:
            return self.opened(path)
        except Exception as error:  # the packages raise types of their own, which derive from Exception alone
            raise ValueError(f"{path}: not {self.readable}, or cut short ({error})") from error

    def write_checked(self, path: Path, graph: Graph, where: str) -> float:
        """Writes a translation and runs the file; gives its largest deviation from numpy's results.

        Raises:
            ValueError: the file does not compute what numpy does; names `where`.
        """
        self.write(path, graph)
        return deviation(graph, self.load(path), where, self.least_rows)
