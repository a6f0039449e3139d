"""The terminal view of `xump top`: queues with what comes and goes, and the selectors that wait."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from xump.topology.graph import printable

HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
SECOND = 1_000_000_000


def watch(ask: Callable[[], dict[str, Any]], name: str, once: bool, seconds: float) -> None:
    """Show the view again and again, in place; once where the output is no terminal."""
    while True:
        found = ask()
        head = f"{name}  {time.strftime('%H:%M:%S')}  {len(found['connections'])} connections"
        text = f"{head}\n{table(found)}{waiting(found)}"
        if once or not sys.stdout.isatty():
            print(text)
            return
        size = shutil.get_terminal_size()
        lines = [line[:size.columns] for line in text.splitlines()[:size.lines - 1]]
        sys.stdout.write(HOME + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW)
        sys.stdout.flush()
        time.sleep(seconds)


def table(found: dict[str, Any]) -> str:
    """The queues, the busiest and fullest first."""
    rows: list[Sequence[str]] = [("queue", "ready", "delayed", "unacked", "in/s", "out/s", "oldest", "history")]
    for queue in sorted(found["queues"], key=lambda queue: (-sum(queue["rates"]), -queue["ready"], queue["name"])):
        came, went = queue["rates"]
        oldest = "" if not queue["oldest"] else duration((found["now"] - queue["oldest"]) / SECOND)
        rows.append((
            printable(queue["name"]), f"{queue['ready']:,}", f"{queue['delayed']:,}", f"{queue['outstanding']:,}", f"{came:,.0f}",
            f"{went:,.0f}", oldest, f"{queue['history']:,}"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for name, *numbers in rows:
        cells = [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def waiting(found: dict[str, Any]) -> str:
    """The selectors that take nothing now, and why."""
    lines = [f"  {called(selector)}: {printable(selector['why'])}" for selector in found["selectors"] if selector["why"]]
    return "\n\nselectors that wait\n" + "\n".join(lines) if lines else ""


def called(selector: dict[str, Any]) -> str:
    """Which selector it is: its number, its name if it has one, its queue, and what it does."""
    name = "" if selector["name"] is None else f" {printable(selector['name'])}"
    return f"{selector['id']}{name}, {printable(selector['source'])}: {printable(selector['do'])}"


def duration(seconds: float) -> str:
    """A time span in the largest unit that fits: 3s, 12m, 5h, 2d."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
