"""Tables of docs/results-features.md, from a result of `xdesc benchmark run cross`.

Run: python -m benchmarks.cross_tables OUT [--figure inliers] [--ways translated joint] [--descriptors orb xfeat]

In: the folder of a run. Out: a Markdown table for each condition and kind of keypoints: maps down, devices across;
natively in bold, else each way's figure, a pair, with its share of the weaker side's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from xdesc_jax.evaluate.benchmarks import results
from xdesc_jax.evaluate.benchmarks.cross.plan import SAME, under
from xdesc_jax.evaluate.benchmarks.cross.scores import SHARES
from xdesc_jax.evaluate.benchmarks.results import Row

NONE = "-"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--figure", choices=tuple(SHARES.values()), default="correct")
    parser.add_argument("--ways", nargs="+", default=["translated", "joint"])
    parser.add_argument("--descriptors", nargs="+", default=[])
    asked = parser.parse_args(words)
    rows = results.read(asked.out).rows
    print("\n\n".join(tables(rows, asked.figure, asked.ways, asked.descriptors)))


def tables(rows: Sequence[Row], figure: str, ways: Sequence[str], descriptors: Sequence[str] = ()) -> Iterator[str]:
    """One of each condition and kind of keypoints, in the order of the rows.

    Args:
        rows: of a result.
        figure: 'correct' or 'inliers'.
        ways: of a cell, in this order.
        descriptors: which; all where empty.
    """
    groups: dict[tuple[str, str], dict[tuple[str, str, str], Row]] = {}
    for row in rows:
        at = row.detail
        group = groups.setdefault((at["condition"], at["keypoints"]), {})
        group[at["map"], at["device"], row.mode] = row
    for (condition, keypoints), held in groups.items():
        maps = list(dict.fromkeys(known for known, _, _ in held if not descriptors or known in descriptors))
        devices = list(dict.fromkeys(device for _, device, _ in held if not descriptors or device in descriptors))
        whose = "COLMAP's" if keypoints == SAME else keypoints
        head = f"map, device; {under(whose, condition)}"
        lines = [_line([head, *(f"`{device}`" for device in devices)]), f"|{'---|' * (len(devices) + 1)}"]
        for known in maps:
            cells = [_cell(held, known, device, figure, ways) for device in devices]
            lines.append(_line([f"`{known}`", *cells]))
        yield "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(held: dict[tuple[str, str, str], Row], known: str, device: str, figure: str, ways: Sequence[str]) -> str:
    if native := held.get((known, device, "native")):
        value = native.values[figure]
        return NONE if value is None else f"**{value:.0f}**"
    texts = [_text(held.get((known, device, way)), figure) for way in ways]
    return NONE if set(texts) == {NONE} else "; ".join(texts)


def _text(row: Row | None, figure: str) -> str:
    if row is None or (value := row.values[figure]) is None:
        return NONE
    share = row.values[next(name for name, of in SHARES.items() if of == figure)]
    return f"{value:.0f}" if share is None else f"{value:.0f} ({share:.0f} %)"


if __name__ == "__main__":
    main()
