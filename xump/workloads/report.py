"""Shows a report of `bench`: as tables, as JSON, as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from xump.topology.graph import printable
from xump.workloads.running import Report

SHOWN = 12
"""So many queues and selectors are shown; the JSON has all."""
WIDTH, LINE, LEFT = 820, 22, 300
STYLE = ("text{font:13px sans-serif;fill:#333}.h{font-weight:bold}.n{text-anchor:end}rect{fill:#2a78d6}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}}")

Rows = list[Sequence[str]]


def to_json(report: Report) -> str:
    """All of it."""
    return json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n"


def tables(report: Report) -> Iterator[tuple[str, Sequence[str], Rows]]:
    """A title, the heads of the columns, and the rows, of each table. Names are made printable."""
    yield printable(report.topology), ("", ""), [
        ("messages", f"{report.published:,} published, {report.delivered:,} delivered, {report.refused:,} refused"),
        ("throughput", f"{report.messages_per_second:,.0f} messages a second, {report.seconds:.2f} s"),
        ("latency", _listed(f"{name} {value:,.1f} µs" for name, value in report.latency_microseconds.items())),
        ("memory", "unknown" if report.memory_bytes is None else f"{report.memory_bytes / 2**20:,.1f} MiB more at its largest"),
        ("dropped, dead-lettered", _listed(f"{count:,} {reason}" for reason, count in report.dropped.items())),
        ("profile", f"{report.profile}, bodies of {'many sizes' if report.size is None else f'{report.size:,} bytes'}, "
                    f"seed {report.seed}"),
        ("machine", f"{report.machine['cpu']}, {report.machine['cores']} cores, Python {report.machine['python']}"),
    ]
    yield "where messages wait", ("queue", "mean", "most", "at the end"), [
        (printable(one.queue), f"{one.mean:,.1f}", f"{one.most:,}", f"{one.left:,}") for one in report.waiting[:SHOWN]]
    yield "what each selector costs", ("selector", "share", "ns a message", "served"), [
        (printable(cost.selector), f"{cost.share:.0%}", f"{cost.nanoseconds:,.0f}", f"{cost.served:,}")
        for cost in report.costs[:SHOWN]]


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "none"


def to_text(report: Report) -> str:
    """The tables, without colours."""
    lines: list[str] = []
    for title, heads, rows in tables(report):
        lines += ["", title] if lines else [title]
        shown = [heads, *rows] if any(heads) else rows
        widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
        for first, *others in shown:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)] if any(heads) else others
            lines.append("  ".join(["", first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines) + "\n"


def show(report: Report) -> None:
    """Print the tables: in colour by `rich` if that is installed, else as plain text."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        print(to_text(report), end="")
        return
    console = Console()
    if not console.is_terminal:
        print(to_text(report), end="")
        return
    for title, heads, rows in tables(report):
        table = Table(title=Text(title), title_justify="left", title_style="bold", show_header=any(heads))
        for number, head in enumerate(heads):
            table.add_column(head, justify="right" if number and any(heads) else "left")
        for row in rows:
            table.add_row(*map(Text, row))      # as they are: [a] in a name is no markup
        console.print(table)


def to_svg(report: Report) -> str:
    """Bars: latency, where messages wait, what selectors cost."""
    charts: list[tuple[str, list[tuple[str, float, str]]]] = [
        ("latency, µs", [(name, value, f"{value:,.1f}") for name, value in report.latency_microseconds.items()]),
        ("messages that wait, on the mean", [(one.queue, one.mean, f"{one.mean:,.1f}") for one in report.waiting[:SHOWN]]),
        ("share of the cost, by selector",
         [(one.selector, max(one.share, 0.0), f"{one.share:.0%}") for one in report.costs[:SHOWN]]),
    ]
    title = f"{report.topology}: {report.messages_per_second:,.0f} messages a second ({report.profile})"
    lines: list[str] = [_text(8, 20, title, "h")]
    y = 34
    for name, bars in charts:
        lines.append(_text(8, y + 20, name, "h"))
        y += 30
        most = max((value for _, value, _ in bars), default=0.0) or 1.0
        for label, value, said in bars:
            length = value / most * (WIDTH - LEFT - 90)
            shown = label if len(label) <= 44 else label[:43] + "…"
            lines += [_text(LEFT - 8, y + 14, shown, "n"),
                      f'<rect x="{LEFT}" y="{y + 3}" width="{max(length, 1):.1f}" height="14"/>',
                      _text(LEFT + length + 8, y + 14, said)]
            y += LINE
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 12}" role="img">'
            f"<title>{_escaped(title)}</title><style>{STYLE}</style>")
    return "\n".join([head, *lines, "</svg>"]) + "\n"


def _text(x: float, y: float, said: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y}">{_escaped(said)}</text>'


def _escaped(said: Any) -> str:
    """Without characters that XML does not allow."""
    return escape("".join(character if character.isprintable() else "�" for character in str(said)))
