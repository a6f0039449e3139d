"""Pictures of results: for each benchmark with rows beside a peer, how many times as fast, as SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from benchmarks.record import Benchmark, Row

WIDTH, LINE, LEFT, RIGHT, TOP = 860, 22, 360, 70, 34
MET, MISSED, PLAIN = "#2a78d6", "#d6582a", "#8a94a0"
STYLE = (
    "text{font:13px sans-serif;fill:#333}.h{font-weight:bold}.n{text-anchor:end}line{stroke:#999}.bar{stroke:#333;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}line{stroke:#777}.bar{stroke:#eee}}")


def write(folder: Path, benchmarks: Mapping[str, Benchmark]) -> list[str]:
    """Write the pictures into the folder; returns the names of those that have one."""
    folder.mkdir(exist_ok=True)
    drawn = []
    for name, one in benchmarks.items():
        rows = [row for row in one.rows if row.ratios and row.peer != row.name]
        if rows:
            (folder / f"{name}.svg").write_text(picture(name, rows))
            drawn.append(name)
    return drawn


def picture(title: str, rows: Sequence[Row]) -> str:
    """Bars on a logarithmic axis; a thick stroke where the row should be; a thin line from the slowest round to the fastest."""
    values = [value for row in rows for value in (*row.ratios, row.bar or 1.0, 1.0)]
    low, high = math.log(min(values)) - 0.1, math.log(max(values)) + 0.1

    def at(value: float) -> float:
        return LEFT + (math.log(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    height = TOP + LINE * len(rows) + 26
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(title)}</title>'
             f'<style>{STYLE}</style><text class="h" x="8" y="20">{escape(title)}: times as fast as the peer</text>']
    for number, row in enumerate(rows):
        y = TOP + LINE * number
        middle = statistics.median(row.ratios)
        colour = PLAIN if row.bar is None else MET if middle >= row.bar else MISSED
        left, right = sorted((at(1.0), at(middle)))
        lines += [
            f'<text class="n" x="{LEFT - 8}" y="{y + 14}">{escape(row.name)}</text>',
            f'<rect x="{left:.1f}" y="{y + 3}" width="{max(right - left, 1):.1f}" height="14" fill="{colour}"/>',
            f'<line x1="{at(min(row.ratios)):.1f}" x2="{at(max(row.ratios)):.1f}" y1="{y + 10}" y2="{y + 10}"/>',
            f'<text x="{WIDTH - RIGHT + 8}" y="{y + 14}">{middle:.2f}</text>']
        if row.bar is not None:
            lines.append(f'<line class="bar" x1="{at(row.bar):.1f}" x2="{at(row.bar):.1f}" y1="{y + 1}" y2="{y + 19}"/>')
    one = at(1.0)
    lines += [f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{TOP - 4}" y2="{height - 22}"/>',
              f'<text x="{one:.1f}" y="{height - 6}" style="text-anchor:middle">1: the peer</text></svg>']
    return "\n".join(lines) + "\n"
