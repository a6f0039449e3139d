"""Results that programs read: every row that a benchmark prints, with each round, as JSON.

A benchmark that is started with the variable `XUMP_BENCH_RECORD` writes its rows into that file when it ends. `python -m
benchmarks` starts all with it, and gathers them in `benchmarks/results.json`, together with the command, the machine and the
versions.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "XUMP_BENCH_RECORD"


@dataclass
class Row:
    """A row of a table."""

    name: str
    """Its first column."""
    cells: dict[str, str]
    """The other columns, as they were printed."""
    rounds: list[float] = field(default_factory=list)
    """What each round took, in nanoseconds a message; empty: the row is no measurement by rounds."""
    ratios: list[float] = field(default_factory=list)
    """Of each round, how many times as fast as the peer."""
    peer: str = ""
    """The row that it is compared with."""
    bar: float | None = None
    """The least ratio."""
    is_exact: bool = False
    """Whether its numbers are counts, the same each time."""


@dataclass
class Benchmark:
    """All that one benchmark printed."""

    machine: str = ""
    """Date, processor, load and versions."""
    rows: list[Row] = field(default_factory=list)
    """Its rows, in order."""
    printed: list[str] = field(default_factory=list)
    """What it printed."""
    command: str = ""
    """What it was measured by."""


CURRENT = Benchmark()
"""What this process prints."""


def machine(text: str) -> None:
    """The line on when and where; `describe` prints it."""
    CURRENT.machine = CURRENT.machine or text
    _write_at_the_end()


def row(name: str, columns: Sequence[str], cells: Sequence[str], is_exact: bool) -> None:
    """A row was printed."""
    CURRENT.rows.append(Row(name, dict(zip(columns, cells, strict=False)), is_exact=is_exact))


def rounds(took: Sequence[float], ratios: Sequence[float], peer: str, bar: float | None) -> None:
    """What is behind the last row."""
    last = CURRENT.rows[-1]
    last.rounds, last.ratios, last.peer, last.bar = list(took), list(ratios), peer, bar


def _write_at_the_end() -> None:
    path = os.environ.get(VARIABLE)
    if path is not None:
        atexit.register(lambda: Path(path).write_text(json.dumps(asdict(CURRENT))))


def benchmark_of(found: Mapping[str, Any]) -> Benchmark:
    """A benchmark, of its JSON."""
    return Benchmark(**{**found, "machine": found["machine"], "rows": [Row(**one) for one in found["rows"]]})


def read(path: Path) -> dict[str, Benchmark]:
    """The benchmarks of a file of results, by name. Raises `ValueError`, which says what is wrong with the file."""
    try:
        found = json.loads(path.read_text())
        return {name: benchmark_of(one) for name, one in found["benchmarks"].items()}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} has no results of `python -m benchmarks`: {error}") from None


def write(path: Path, benchmarks: Mapping[str, Benchmark]) -> None:
    """Write a file of results."""
    path.write_text(json.dumps({"benchmarks": {name: asdict(one) for name, one in benchmarks.items()}}, indent=1) + "\n")
