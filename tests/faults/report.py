"""docs/reliability.md: what the battery did, and what it found. Each part writes its own section, whenever it is run."""

from __future__ import annotations

import datetime
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path

import lmdb

import xump

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
HEAD = """# Reliability: attacks, and what they found

`make faults` (`python -m tests.faults`) attacks the engine and its stores, and writes this page. Each section has an
attack, its date, versions and seed, and the violations that it found. The same seed makes the same attack again.

"""


@dataclass
class Section:
    """What a part did."""

    name: str
    title: str
    text: str
    """What was tried, and what counts as a violation."""
    columns: list[str] = field(default_factory=list)
    rows: list[list[object]] = field(default_factory=list)
    """The first cell says what over; if there is a column `violations`, it is the last one."""
    violations: list[str] = field(default_factory=list)
    kept: list[list[str]] = field(default_factory=list)
    """Rows of runs before over other stores, as they are on the page."""
    keys: int = 1
    """How many of the first columns say over what a row is."""

    def markdown(self, command: str, seed: int) -> str:
        lines = [f"## {self.title}", "", self.text.strip(), ""]
        today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
        rows = self.kept + [[*map(shown, row), str(seed), today] for row in self.rows]
        if rows:
            columns = [*self.columns, *RUN]
            lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
            lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
        number = len(self.violations)
        if self.kept:
            number += sum(int(row[self.columns.index("violations")]) for row in self.kept)
        found = f"**{number} violation{'s' * (number > 1)}.**" if number else "No violation."
        lines += [f"{found} `{command}`, {today}, {versions()}.", ""]
        return "\n".join(lines)


RUN = ("seed", "date")
"""The last columns of each table."""


def shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def versions() -> str:
    return (f"Xump {xump.__version__}, Python {platform.python_version()}, py-lmdb {lmdb.__version__} with LMDB "
            f"{'.'.join(map(str, lmdb.version()))}, {platform.system()} {platform.machine()}")


def write(section: Section, command: str, seed: int, only: bool = False) -> None:
    """Puts a section in the place of the one that it had, or at the end. `only`: over some of the stores; the page keeps the rows
    over others."""
    text = PAGE.read_text() if PAGE.exists() else HEAD
    begin, end = f"<!-- part: {section.name} -->\n", f"<!-- end of {section.name} -->\n"
    before = re.search(re.escape(begin) + "(.*?)" + re.escape(end), text, re.DOTALL)
    if only and before is not None:
        again = {tuple(map(str, row[: section.keys])) for row in section.rows}
        section.kept = [row for row in rows_of(before[1]) if tuple(row[: section.keys]) not in again]
    new = begin + section.markdown(command, seed) + end
    text = text.rstrip("\n") + "\n\n" + new if before is None else text.replace(before[0], new)
    PAGE.write_text(text)


def rows_of(text: str) -> list[list[str]]:
    """Of the table in a section, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.strip("|").strip().split(" | ") for line in lines[1:]]
