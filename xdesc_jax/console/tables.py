"""Tables as lines of text that never cut a name or a number.

In: a head, rows of text, and a width or none. Out: lines. Where the columns do not fit, text folds between words;
where that is not enough, a matrix is laid out in blocks of columns, and any other table as one entry a row. A word
that is wider than all that there is stays whole: the terminal folds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

GAP = 2  # blanks between columns
_NUMERIC = frozenset("0123456789.,+-/%() ")

Row = Sequence[str]


def lay_out(head: Row, rows: Sequence[Row], width: int | None = None, matrix: bool = False) -> tuple[list[str], int]:
    """A table's lines, its head first.

    Args:
        head: one text a column; line breaks in it are kept where there is a grid.
        rows: texts, as many each.
        width: cells of the screen; None for as many as it takes.
        matrix: the columns are of one kind, so that a few of them make a table, too.

    Returns:
        Lines without trailing blanks, and how many of them are the head.
    """
    widest = _widths(head, rows, words=False)
    if width is None or _total(widest) <= width:
        return _grid(head, rows, widest)
    least = _widths(head, rows, words=True)
    if _total(least) <= width:
        return _grid(head, rows, _spread(least, widest, width - _total(least)))
    if matrix and least[0] + GAP + max(least[1:], default=0) <= width:
        return _blocks(head, rows, least, widest, width)
    return [line for row in rows for line in _entry(head, row, width)], 0


def fold(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most `width` cells, folded between words; further lines begin with `indent`."""
    lines: list[str] = []
    for part in text.split("\n"):
        line = part[: len(part) - len(part.lstrip(" "))]
        for word in part.lstrip(" ").split(" "):
            joined = f"{line} {word}" if line.strip() else line + word
            if line.strip() and cell_len(joined) > width:
                lines.append(line)
                line = indent + word
            else:
                line = joined
        lines.append(line)
    return lines


def _widths(head: Row, rows: Sequence[Row], words: bool) -> list[int]:
    """Cells that each column takes; with `words`, that its longest word takes."""
    parts = [[part for text in column for part in (text.split() if words else text.split("\n"))]
             for column in zip(head, *rows, strict=True)]  # fmt: skip
    return [max(map(cell_len, column), default=0) for column in parts]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1) + 1


def _spread(least: Sequence[int], widest: Sequence[int], left: int) -> list[int]:
    """Widths between both, with what is left given cell by cell to the column that folds most."""
    widths = list(least)
    for _ in range(left):
        short = [want / max(have, 1) if want > have else 0.0 for want, have in zip(widest, widths, strict=True)]
        if not any(short):
            break
        widths[short.index(max(short))] += 1
    return widths


def _grid(head: Row, rows: Sequence[Row], widths: Sequence[int]) -> tuple[list[str], int]:
    right = [_is_numeric([row[i] for row in rows]) for i in range(len(head))]
    top = _line(head, widths, right, at_end=True)
    rule = " " + "─" * (_total(widths) - 1)
    return [*top, rule, *(line for row in rows for line in _line(row, widths, right))], len(top) + 1


def _line(row: Row, widths: Sequence[int], right: Sequence[bool], at_end: bool = False) -> list[str]:
    """The lines of one row; a shorter cell stands at the top, or `at_end`."""
    folded = [fold(text, width) for text, width in zip(row, widths, strict=True)]
    height = max(map(len, folded), default=0)
    padded = [[""] * (height - len(p)) + p if at_end else p + [""] * (height - len(p)) for p in folded]
    lines = []
    for parts in zip(*padded, strict=True):
        cells = [
            blanks + part if flush else part + blanks
            for part, width, flush in zip(parts, widths, right, strict=True)
            for blanks in (" " * (width - cell_len(part)),)
        ]
        lines.append((" " + (" " * GAP).join(cells)).rstrip())
    return lines


def _is_numeric(texts: Sequence[str]) -> bool:
    """Whether a column holds numbers, or nothing, so that it is flush right."""
    return all(_NUMERIC.issuperset(text) for text in texts)


def _blocks(
    head: Row, rows: Sequence[Row], least: Sequence[int], widest: Sequence[int], width: int
) -> tuple[list[str], int]:
    """Tables of as many columns as fit, the first repeated in each."""
    lines: list[str] = []
    start = 1
    while start < len(head):
        stop = start + 1
        while stop < len(head) and _total([least[0], *least[start : stop + 1]]) <= width:
            stop += 1
        chosen = [0, *range(start, stop)]
        part, _ = lay_out([head[i] for i in chosen], [[row[i] for i in chosen] for row in rows], width)
        lines += ([""] if lines else []) + part
        start = stop
    return lines, 0


def _entry(head: Row, row: Row, width: int) -> list[str]:
    """A row as 'name: head=value, ...', folded."""
    named = [f"{' '.join(name.split())}={value}" for name, value in zip(head[1:], row[1:], strict=True) if value]
    label = " ".join(row[0].split())
    return fold(f" {label}: {', '.join(named)}" if label else f" {', '.join(named)}", width, indent="   ")
