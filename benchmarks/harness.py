"""What the benchmarks share: contestants take turns, medians are compared, a table says whether the bar is met.

A contestant is a function that times itself and returns nanoseconds a message, or several figures by name. In each round
every contestant runs once, in a new order, so that all share what else the machine does. A ratio is the median over the rounds of
what both took in the same round: it holds where the nanoseconds drift.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks import record

BODY = b"x" * 100
ROUNDS = 5

Figures = float | Mapping[str, float]
Contestant = Callable[[], Figures]
Times = dict[str, list[float]]


def take_turns(contestants: Mapping[str, Contestant], rounds: int = ROUNDS) -> Times:
    """What each took, round by round; a figure among several is named `contestant, figure`. One round before is not counted."""
    draw = random.Random(7)
    order = list(contestants)
    times: Times = {}
    gc.collect()
    gc.freeze()  # what is there already is not looked at before each turn
    for number in range(rounds + 1):
        draw.shuffle(order)
        for name in order:
            gc.collect()
            figures = contestants[name]()
            if number == 0:
                continue
            if not isinstance(figures, Mapping):
                figures = {"": figures}
            for part, figure in figures.items():
                times.setdefault(f"{name}, {part}" if part else name, []).append(figure)
    gc.unfreeze()
    places = {name: place for place, name in enumerate(contestants)}
    return dict(sorted(times.items(), key=lambda item: places.get(item[0], places.get(item[0].rpartition(", ")[0], 0))))


def speed(own: Sequence[float], peer: Sequence[float]) -> float:
    """How many times as fast as the peer: the median over the rounds."""
    return statistics.median(theirs / ours for ours, theirs in zip(own, peer, strict=True))


def verdict(met: bool) -> str:
    return "met" if met else "missed"


class Table:
    """Rows of texts, the first column to the left, the others to the right; printed as they come."""

    def __init__(self, first: int, *columns: str, width: int = 8, is_exact: bool = False) -> None:
        self.first = first
        self.columns = columns
        self.is_exact = is_exact
        self.width = max(width, *(len(column) + 1 for column in columns))
        self._line("", columns)

    def print(self, name: str, *cells: str) -> None:
        record.row(name, self.columns, cells, self.is_exact)
        self._line(name, cells)

    def _line(self, name: str, cells: Sequence[str]) -> None:
        line = f"    {name:{self.first}}" + "".join(f"{cell:>{self.width}}" for cell in cells)
        print(line.rstrip(), flush=True)


def speed_table(first: int = 46, width: int = 8) -> Table:
    """For `compare`: nanoseconds a message, the least and the most of them, the ratio to the peer, and the bar for that."""
    return Table(first, "ns", "min", "max", "ratio", "bar", "", width=width)


def compare(table: Table, times: Times, peer: str, names: Iterable[str], bar: float | None) -> None:
    """Rows of the peer, if it was not printed yet, and of those who are measured by it. The bar is on the ratio of rates."""
    rows = [(peer, None), *((name, bar) for name in names)]
    for name, least in rows:
        took = times[name]
        ratios = [theirs / ours for ours, theirs in zip(took, times[peer], strict=True)]
        ratio = statistics.median(ratios)
        cells = [f"{statistics.median(took):.0f}", f"{min(took):.0f}", f"{max(took):.0f}", f"{ratio:.2f}"]
        if least is not None:
            cells += [f"{least:.2f}".removesuffix("0"), verdict(ratio >= least)]
        table.print(name, *cells)
        record.rounds(took, ratios, peer, least)


def describe(*packages: str) -> None:
    """A line on when and where: a figure without it says little."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    versions = "".join(f", {package} {version(package)}" for package in packages)
    text = (f"{datetime.now().astimezone():%Y-%m-%d}, {model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}; "
            f"Python {platform.python_version()}, xump {version('xump')}{versions}")  # fmt: skip
    record.machine(text)
    print(text)


def parser_of(module_text: str | None) -> argparse.ArgumentParser:
    """The command line that all have."""
    parser = argparse.ArgumentParser(description=module_text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything: a look, no verdict to rely on")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how many, five or more for a median to mean something")
    return parser
