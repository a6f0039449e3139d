"""The graph of an engine as a picture: SVG text, drawn without any other program.

Queues and selectors are both drawn as nodes, so that what a selector says never lies on top of a line; one that ends in the
application, or nowhere, has round ends. What reads well is a layered drawing, from left to right, made in the usual four passes
(Sugiyama, Tagawa, Toda 1981):

    1. rank     of each cycle the line that fewest messages went along is turned round for the layout; then every node stands
                one column behind the last of those that feed it
    2. split    a line over several columns gets a bend in each of them
    3. order    within a column, by the mean place of the neighbours, forth and back; the order with the fewest crossings stays
    4. place    each node as near to the mean height of its neighbours as its order and the gaps allow

The sizes of texts are those of a fixed-width font, so nothing has to be measured. What the numbers mean: `Engine.stats`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field as dataclass_field
from typing import Any
from xml.sax.saxutils import escape

from xump.actions import Field
from xump.conditions import All
from xump.engine import Engine
from xump.selector import Selector

CHAR_WIDTH = 6.7
"""Of the font at 11 px: 0.6 em, and a little."""

LINE_HEIGHT = 15
GAP_X = 46
GAP_Y = 12
MARGIN = 20
CONDITION_CHARS_MAX = 42
SWEEPS = 24
"""More change nothing in graphs that anybody would look at."""

COLOURS = {
    "copy": "#2f6fb3", "move": "#2e7d4f", "deliver": "#4a4a55", "bounce": "#b3651d", "discard": "#8a8a94", "dead": "#b3363a",
}


@dataclass
class Node:
    """Something drawn: a queue, a selector, an end (a selector with nothing behind it), a field that names the target, a bend."""

    kind: str
    lines: list[str]
    colour: str = ""
    title: str = ""
    came: int = 0
    """Queues: messages that came in along no line."""
    rank: int = 0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    before: list[Node] = dataclass_field(default_factory=list)
    after: list[Node] = dataclass_field(default_factory=list)

    def measure(self) -> None:
        if self.kind == "bend":
            return
        self.width = max(map(len, self.lines)) * CHAR_WIDTH + (28 if self.kind == "end" else 20)
        self.height = len(self.lines) * LINE_HEIGHT + 10


@dataclass
class Line:
    """From node to node, through bends; `count` messages went along it."""

    start: Node
    end: Node
    colour: str
    count: int
    dashed: bool = False
    arrow: bool = True
    turned: bool = False
    bends: list[Node] = dataclass_field(default_factory=list)


def to_svg(engine: Engine, *, dead_letter: str | None = None) -> str:
    """The live graph with its counts, as the text of an SVG file. O(queues × selectors) at worst; meant for graphs to look at.

    `dead_letter` names the queue for what no queue's own dead letter takes, as given to the engine. A line is the thicker the
    more messages went along it.

    >>> from xump import always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
    ...     to_svg(engine).startswith("<svg ")
    True
    """
    nodes, lines = _graph(engine, dead_letter)
    for node in nodes:
        node.measure()
    _rank(nodes, lines)
    columns = _columns(nodes, lines)
    _order(columns)
    _place(columns)
    return _draw(columns, lines)


# ---- what there is

def _graph(engine: Engine, dead_letter: str | None) -> tuple[list[Node], list[Line]]:
    stats = engine.stats()
    queues = {name: _queue_node(name, counts) for name, counts in stats["queues"].items()}
    nodes, lines = list(queues.values()), []
    fields: dict[str, Node] = {}
    for selector in sorted(engine.selectors.values(), key=lambda selector: selector.id):
        counts = stats["selectors"].get(selector.id)
        if counts is None or selector.source.name not in queues:
            continue
        count = counts["copied"] if selector.do.verb == "copy" else counts["served"]
        colour = COLOURS[selector.do.verb]
        tag = _selector_node(selector, counts, count)
        nodes.append(tag)
        lines.append(Line(queues[selector.source.name], tag, colour, count, arrow=tag.kind == "end"))
        target = selector.do.queue
        if isinstance(target, Field):
            if target.name not in fields:
                fields[target.name] = Node("field", [f"queue named by {target.name}"], colour)
                nodes.append(fields[target.name])
            lines.append(Line(tag, fields[target.name], colour, count))
        elif target is not None:
            lines.append(Line(tag, queues[str(target)], colour, count))
    for name, counts in stats["queues"].items():
        letters = engine.queues[name].dead_letter or dead_letter
        reasons = counts["dead_lettered"]
        if letters in queues and letters != name and reasons:
            total = sum(reasons.values())
            tag = Node("tag", ["dead letters", *(f"{reason} {count:,}" for reason, count in reasons.items())], COLOURS["dead"])
            nodes.append(tag)
            lines.append(Line(queues[name], tag, COLOURS["dead"], total, dashed=True, arrow=False))
            lines.append(Line(tag, queues[letters], COLOURS["dead"], total, dashed=True))
    letters_queues = {id(line.end) for line in lines if line.dashed}
    for name, node in queues.items():
        if id(node) not in letters_queues:      # there, much comes from queues that are gone
            node.came = stats["queues"][name]["entered"] - sum(line.count for line in lines if line.end is node)
    return nodes, lines


def _queue_node(name: str, counts: dict[str, Any]) -> Node:
    texts = [name, f"{counts['entered']:,} entered"]
    texts += [f"{counts[what]:,} {what}" for what in ("ready", "outstanding", "history") if counts[what]]
    dropped = sum(counts["dropped"].values())
    if dropped:
        texts.append(f"{dropped:,} dropped")
    return Node("queue", texts)


def _selector_node(selector: Selector, counts: dict[str, Any], count: int) -> Node:
    parts = selector.when.parts if isinstance(selector.when, All) else (selector.when,)
    texts = [_short(("& " if at else "") + repr(part)) for at, part in enumerate(parts)]
    verb = f"{selector.do.verb} {count:,}"
    if counts["dropped"]:
        verb += f", dropped {counts['dropped']:,}"
    if not selector.enabled:
        verb += ", disabled"
    kind = "tag" if selector.do.queue is not None else "end"
    if selector.do.verb == "deliver" and kind == "end":
        destination = selector.do.destination
        texts.append("deliver " + (f"named by {destination.name}" if isinstance(destination, Field) else f"to {destination}"))
        verb = verb.removeprefix("deliver ")
    if kind == "end" and texts[0] == "always":
        del texts[0]
    texts.append(verb)
    title = f"{selector.id}: when {selector.when!r}, do {selector.do!r}, credit {selector.credit!r}"
    return Node(kind, texts, COLOURS[selector.do.verb], title)


def _short(text: str) -> str:
    return text if len(text) <= CONDITION_CHARS_MAX else text[: CONDITION_CHARS_MAX - 1] + "…"


# ---- 1. rank

def _rank(nodes: list[Node], lines: list[Line]) -> None:
    outgoing: dict[int, list[Line]] = {id(node): [] for node in nodes}
    for line in lines:
        outgoing[id(line.start)].append(line)
    while (sequence := _sequence(nodes, outgoing)) is None:
        pass
    fed = {id(line.end) for line in lines if not line.turned}
    for node in reversed(sequence):
        for line in outgoing[id(node)]:
            if not line.turned:
                line.end.rank = max(line.end.rank, node.rank + 1)
    for node in sequence:               # what nothing feeds stands directly before what it feeds
        ahead = [line.end.rank for line in outgoing[id(node)] if not line.turned]
        if id(node) not in fed and ahead:
            node.rank = min(ahead) - 1


def _sequence(nodes: list[Node], outgoing: dict[int, list[Line]]) -> list[Node] | None:
    """All nodes, those behind a line before the one in front of it. At a cycle: turns a line of it and gives None."""
    done: dict[int, bool] = {}          # False: on the path being walked
    sequence: list[Node] = []
    for root in nodes:
        if id(root) in done:
            continue
        done[id(root)] = False
        path: list[Line] = []
        stack = [(root, iter(outgoing[id(root)]))]
        while stack:
            node, rest = stack[-1]
            line = next((line for line in rest if not line.turned), None)
            if line is None:
                done[id(node)] = True
                sequence.append(node)
                stack.pop()
                path[-1:] = []
                continue
            path.append(line)
            if done.get(id(line.end)) is False:
                cycle = path[next(at for at, one in enumerate(path) if one.start is line.end):]
                min(cycle, key=lambda one: (one.count, -one.end.came)).turned = True
                return None
            if id(line.end) in done:
                path.pop()
            else:
                done[id(line.end)] = False
                stack.append((line.end, iter(outgoing[id(line.end)])))
    return sequence


# ---- 2. split

def _columns(nodes: list[Node], lines: list[Line]) -> list[list[Node]]:
    columns: list[list[Node]] = [[] for _ in range(max((node.rank for node in nodes), default=-1) + 1)]
    for node in nodes:
        columns[node.rank].append(node)
    for line in lines:
        left, right = (line.end, line.start) if line.turned else (line.start, line.end)
        previous = left
        for rank in range(left.rank + 1, right.rank):
            bend = Node("bend", [], rank=rank)
            columns[rank].append(bend)
            line.bends.append(bend)
            _join(previous, bend)
            previous = bend
        _join(previous, right)
        if line.turned:
            line.bends.reverse()
    return columns


def _join(left: Node, right: Node) -> None:
    left.after.append(right)
    right.before.append(left)


# ---- 3. order

def _order(columns: list[list[Node]]) -> None:
    best, fewest = [list(column) for column in columns], _crossings(columns)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        for column in columns if forth else reversed(columns):
            places = _places(columns)
            column.sort(key=lambda node: _mean([places[id(other)] for other in (node.before if forth else node.after)],
                                               places[id(node)]))
        crossings = _crossings(columns)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    for column, order in zip(columns, best, strict=True):
        column[:] = order


def _places(columns: list[list[Node]]) -> dict[int, float]:
    return {id(node): place / len(column) for column in columns for place, node in enumerate(column)}


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(columns: list[list[Node]]) -> int:
    places = _places(columns)
    crossings = 0
    for column in columns:
        ends = [(places[id(node)], places[id(other)]) for node in column for other in node.after]
        crossings += sum(
            (a - c) * (b - d) < 0 for at, (a, b) in enumerate(ends) for c, d in ends[at + 1:]
        )
    return crossings


# ---- 4. place

def _place(columns: list[list[Node]]) -> None:
    for column in columns:
        _settle(column, [0.0] * len(column))
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            _settle(column, [_mean([other.y for other in node.before + node.after], node.y) for node in column])
    top = min((node.y - node.height / 2 for column in columns for node in column), default=0.0)
    for column in columns:
        for node in column:
            node.y -= top


def _settle(column: list[Node], wanted: list[float]) -> None:
    """Heights nearest to those wanted (least squares) that keep order and gaps: neighbours that are too near are pooled."""
    offset, offsets = 0.0, []
    for at, node in enumerate(column):
        if at:
            offset += (column[at - 1].height + node.height) / 2 + GAP_Y
        offsets.append(offset)
    pools: list[list[float]] = []       # sum of what is wanted, number of nodes
    for want, offset in zip(wanted, offsets, strict=True):
        pools.append([want - offset, 1.0])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, number = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += number
    at = 0
    for total, number in pools:
        for _ in range(int(number)):
            column[at].y = total / number + offsets[at]
            at += 1


# ---- the drawing

STYLE = (
    "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:11px;fill:#26262e}"
    ".name{font-weight:bold;font-size:12px}.small{fill:#5c5c68}"
)


def _draw(columns: list[list[Node]], lines: list[Line]) -> str:
    widths = [max((node.width for node in column), default=0.0) for column in columns]
    lefts = [MARGIN + sum(widths[:rank]) + rank * GAP_X for rank in range(len(columns))]
    width = math.ceil(MARGIN + sum(widths) + max(len(columns) - 1, 0) * GAP_X + MARGIN)
    height = math.ceil(max((node.y + node.height / 2 for column in columns for node in column), default=0.0) + 2 * MARGIN)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_markers({line.colour for line in lines}),
    ]
    out += [_draw_line(line, lefts, widths) for line in lines]
    out += [_draw_node(node, lefts[node.rank]) for column in columns for node in column if node.kind != "bend"]
    return "\n".join([*out, "</svg>\n"])


def _markers(colours: set[str]) -> list[str]:
    return [
        f'<marker id="arrow-{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
        f'markerUnits="userSpaceOnUse"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for colour in sorted(colours)
    ]


def _draw_line(line: Line, lefts: list[float], widths: list[float]) -> str:
    """Smooth between columns, level within one: along a bend, and from a narrow node to the edge of its column."""
    def edges(node: Node) -> tuple[float, float]:
        return lefts[node.rank], lefts[node.rank] + widths[node.rank]

    y = line.start.y + MARGIN
    left, right = edges(line.start)
    path = f"M{left:.1f} {y:.1f}" if line.turned else f"M{left + line.start.width:.1f} {y:.1f}H{right:.1f}"
    x = left if line.turned else right
    for node in [*line.bends, line.end]:
        left, right = edges(node)
        enter, leave = (right, left) if line.turned else (left, right)
        middle, level = (x + enter) / 2, node.y + MARGIN
        path += f"C{middle:.1f} {y:.1f} {middle:.1f} {level:.1f} {enter:.1f} {level:.1f}"
        if node.kind == "bend":
            path += f"H{leave:.1f}"
        elif line.turned:
            path += f"H{left + node.width:.1f}"
        x, y = leave, level
    thickness = 1.0 + 0.5 * math.log10(line.count + 1)
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    arrow = f' marker-end="url(#arrow-{line.colour[1:]})"' if line.arrow else ""
    stroke = f'stroke="{line.colour}" stroke-width="{thickness:.1f}" stroke-opacity=".8"'
    return f'<path d="{path}" fill="none" {stroke}{dash}{arrow}/>'


def _draw_node(node: Node, x: float) -> str:
    y = node.y - node.height / 2 + MARGIN
    radius = {"queue": 4.0, "tag": 0.0, "end": node.height / 2, "field": 4.0}[node.kind]
    fill = {"queue": "#f3ecd8", "tag": "#ffffff", "end": "#eeeef2", "field": "#ffffff"}[node.kind]
    stroke = "#8d7a45" if node.kind == "queue" else node.colour
    dash = ' stroke-dasharray="3 3"' if node.kind == "field" else ""
    parts = [f"<g><title>{escape(node.title or ', '.join(node.lines))}</title>"]
    parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{node.width:.1f}" height="{node.height:.1f}" rx="{radius:.1f}" '
                 f'fill="{fill}" stroke="{stroke}"{dash}/>')
    for number, text in enumerate(node.lines):
        style = ' class="name"' if node.kind == "queue" and number == 0 else ' class="small"' if number else ""
        parts.append(f'<text x="{x + node.width / 2:.1f}" y="{y + 16 + number * LINE_HEIGHT:.1f}" text-anchor="middle"{style}>'
                     f"{escape(text)}</text>")
    return "".join([*parts, "</g>"])
