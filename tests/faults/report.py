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
    violations: list[str] = field(default_factory=list)

    def markdown(self, command: str) -> str:
        lines = [f"## {self.title}", "", self.text.strip(), ""]
        if self.rows:
            lines += [f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]
            lines += [f"| {' | '.join(map(shown, row))} |" for row in self.rows] + [""]
        number = len(self.violations)
        found = f"**{number} violation{'s' * (number > 1)}.**" if number else "No violation."
        lines += [f"{found} `{command}`, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {versions()}.", ""]
        return "\n".join(lines)


def shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def versions() -> str:
    return (f"Xump {xump.__version__}, Python {platform.python_version()}, py-lmdb {lmdb.__version__} with LMDB "
            f"{'.'.join(map(str, lmdb.version()))}, {platform.system()} {platform.machine()}")


def write(section: Section, command: str) -> None:
    """Puts a section in the place of the one that it had, or at the end."""
    text = PAGE.read_text() if PAGE.exists() else HEAD
    begin, end = f"<!-- part: {section.name} -->\n", f"<!-- end of {section.name} -->\n"
    new = begin + section.markdown(command) + end
    if begin in text:
        text = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: new, text, flags=re.DOTALL)
    else:
        text = text.rstrip("\n") + "\n\n" + new
    PAGE.write_text(text)
