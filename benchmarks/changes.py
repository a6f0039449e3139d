"""`python -m benchmarks compare A.json B.json`: what changed between two files of results more than noise explains.

A row that was measured beside a peer is compared by its ratio to the peer, which holds where nanoseconds drift. It has changed if
all rounds of one file are above all rounds of the other one, and the medians differ by 3 % or more: with five rounds each, chance
does that to one row of 126. A count, such as instructions, has changed if it differs by 1 % or more.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.record import Benchmark, Row, read

LEAST = 0.03
"""Of a ratio: a change below is of no interest, however sure."""
LEAST_COUNT = 0.01
"""The same of a count."""
ROUNDS_MIN = 4
"""With fewer rounds on each side, chance separates them too often."""


class Change(NamedTuple):
    """A figure that changed."""

    benchmark: str
    row: str
    was: float
    now: float
    is_better: bool


def main(arguments: Sequence[str]) -> int:
    """Print what changed. Returns 1 if something is worse."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="A.json", help="results of `python -m benchmarks --write`")
    parser.add_argument("after", type=Path, metavar="B.json", help="later ones")
    options = parser.parse_args(arguments)
    try:
        before, after = read(options.before), read(options.after)
    except ValueError as error:
        parser.error(str(error))
    found = list(changes(before, after))
    for one in found:
        print(f"{one.benchmark}: {one.row}: {one.was:.4g} -> {one.now:.4g} ({one.now / one.was - 1:+.1%}), "
              f"{'better' if one.is_better else 'worse'}")
    rows = sum(is_compared(row) or row.is_exact for name, one in before.items() if name in after for row in one.rows)
    print(f"{len(found)} figures of {rows} rows changed more than noise explains")
    return int(any(not one.is_better for one in found))


def changes(before: Mapping[str, Benchmark], after: Mapping[str, Benchmark]) -> Iterator[Change]:
    """What changed, in the order of the benchmarks and rows of the first file."""
    for name, one in before.items():
        others = keyed(after[name].rows) if name in after else {}
        for key, row in keyed(one.rows).items():
            if key in others:
                for change in (of_counts(name, row, others[key]), of_ratios(name, row, others[key])):
                    yield from change


def of_ratios(name: str, row: Row, other: Row) -> Iterator[Change]:
    """The change of a row that was measured by rounds."""
    if not is_compared(row) or min(len(row.ratios), len(other.ratios)) < ROUNDS_MIN:
        return
    was, now = statistics.median(row.ratios), statistics.median(other.ratios)
    apart = min(other.ratios) > max(row.ratios) or max(other.ratios) < min(row.ratios)
    if apart and abs(now / was - 1) >= LEAST:
        yield Change(name, row.name, was, now, now > was)


def of_counts(name: str, row: Row, other: Row) -> Iterator[Change]:
    """The changes of a row of counts, of which less is better."""
    for column, text in row.cells.items():
        was, now = number_in(text), number_in(other.cells.get(column, ""))
        if row.is_exact and was and now is not None and abs(now / was - 1) >= LEAST_COUNT:
            yield Change(name, f"{row.name}, {column}", was, now, now < was)


def keyed(rows: Sequence[Row]) -> dict[tuple[str, int], Row]:
    """The rows by name, and by their place among those of the same name."""
    seen: dict[str, int] = {}
    found = {}
    for row in rows:
        seen[row.name] = seen.get(row.name, 0) + 1
        found[row.name, seen[row.name]] = row
    return found


def is_compared(row: Row) -> bool:
    """Whether it was measured by rounds, beside another row."""
    return bool(row.ratios) and row.peer != row.name


def number_in(text: str) -> float | None:
    """The number that a cell is, or None."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
