"""Draws the graph of an engine as SVG, without any other program.

Why Xump has its own: a drawing should need nothing that is not installed with Xump. On PyPI (looked up in November 2026),
`graphviz` 0.21 calls Graphviz' programs, which have to be installed separately. `grandalf` 0.8 computes a layout and does not
draw. Mermaid's own renderer runs in a browser, and the renderers without one (`merm`, `merman`, `mermaidx`) are young, all before
1.0. `pygraphviz` 2.0 brings Graphviz along in its wheels and draws well, with 108 MB of shared libraries: too much for one
picture in a package that is meant to be small. This file and `layout.py` are some 500 lines; should a drawing ever need more,
take that library.

Queues and selectors are both nodes, so that the text of a selector never lies on a line. A selector that delivers to your
program, or discards, has round ends. `xump.topology.graph` reads the graph, `xump.topology.layout` places the nodes.
Texts have the width of a fixed-width font, so nothing has to be measured. docs/stats.md explains the numbers.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from xml.sax.saxutils import escape

from xump.actions import Field
from xump.engine import Engine
from xump.topology.drawing import NO_NOTES, Notes
from xump.topology.graph import Graph, QueueShown, SelectorShown, credit_text, extract, printable, shortened
from xump.topology.layout import Line, Node, lay_out

CHAR_WIDTH = 6.7
"""The width of a character at 11 px: 0.6 em, and a little."""

NAME_CHAR_WIDTH = 7.5
"""The width of a character in the name of a queue, which is bold and at 12 px."""

LINE_HEIGHT = 15
GAP_X = 46
MARGIN = 20
CHARS_MAX = 42
"""A longer line of text is cut, and ends in an ellipsis."""

PORT = 7
"""Lines from right to left end so far below the middle of a node, so that they do not lie on the other lines."""

COLOURS = {
    "copy": "#2f6fb3", "move": "#2e7d4f", "deliver": "#4a4a55", "bounce": "#b3651d", "discard": "#8a8a94", "dead": "#b3363a",
}


def to_svg(engine: Engine, *, counts: bool = True, notes: Notes = NO_NOTES) -> str:
    """Draw the graph of an engine, and return the text of an SVG file.

    Args:
        engine: The engine.
        counts: Whether to show the counts of messages. Line width shows message volume. Without them the drawing is that of an
            engine which was never used.
        notes: More lines of text for the boxes of queues, by the name of the queue.

    Returns:
        The text of the file.

    Raises:
        Closed: The engine is closed.

    Cost: O(queues × selectors) at worst. It is meant for graphs of a size that can be read.

    >>> from xump import always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
    ...     to_svg(engine).startswith("<svg ")
    True
    """
    nodes, lines = _nodes_and_lines(extract(engine, counts), counts, notes)
    for node in nodes:
        _measure(node)
    return _draw(lay_out(nodes, lines), lines)


def _measure(node: Node) -> None:
    widths = [sum(map(_columns_of, text)) * CHAR_WIDTH for text in node.lines]
    if node.kind == "queue":
        widths[0] *= NAME_CHAR_WIDTH / CHAR_WIDTH
    node.width = max(widths) + (28 if node.kind == "end" else 20)
    node.height = len(node.lines) * LINE_HEIGHT + 10


def _columns_of(character: str) -> int:
    """How many columns of a fixed-width font a character takes: Chinese characters and the like take two."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# ---- the nodes and lines

def _nodes_and_lines(graph: Graph, counts: bool, notes: Notes) -> tuple[list[Node], list[Line]]:
    queues = {name: _queue_node(queue, notes.get(name, ())) for name, queue in graph.queues.items()}
    nodes, lines = list(queues.values()), []
    fields: dict[str, Node] = {}
    for selector in graph.selectors:
        colour = COLOURS[selector.action.verb]
        tag = _selector_node(selector, counts)
        nodes.append(tag)
        lines.append(Line(queues[selector.source], tag, colour, selector.count, arrow=tag.kind == "end"))
        target = selector.action.queue
        if isinstance(target, Field):
            if target.name not in fields:
                fields[target.name] = Node("field", [f"queue named by {_short(target.name)}"], colour)
                nodes.append(fields[target.name])
            lines.append(Line(tag, fields[target.name], colour, selector.count))
        elif target is not None:
            lines.append(Line(tag, queues[target], colour, selector.count))
    _add_dead_letters(graph, queues, nodes, lines)
    ends = {id(line.end) for line in lines if line.dashed}
    for name, node in queues.items():
        if id(node) not in ends:        # many messages of dead letter queues come from queues that are gone
            node.came = graph.queues[name].entered - sum(line.count for line in lines if line.end is node)
    return nodes or [Node("field", ["no queues"], COLOURS["discard"])], lines


def _add_dead_letters(graph: Graph, queues: dict[str, Node], nodes: list[Node], lines: list[Line]) -> None:
    missing: dict[str, Node] = {}
    for path in graph.dead_letters:
        if path.target not in queues and path.target not in missing:
            missing[path.target] = Node("missing", [_short(path.target), "no such queue"], COLOURS["dead"])
            nodes.append(missing[path.target])
        tag = Node("tag", ["dead letters", *path.reasons], COLOURS["dead"])
        nodes.append(tag)
        lines.append(Line(queues[path.source], tag, COLOURS["dead"], path.count, dashed=True, arrow=False))
        lines.append(Line(tag, queues.get(path.target) or missing[path.target], COLOURS["dead"], path.count, dashed=True))


def _queue_node(queue: QueueShown, notes: Sequence[str]) -> Node:
    texts = [queue.name, *queue.properties, *queue.counts, *notes]
    return Node("queue", list(map(_short, texts)), title=queue.name)


def _selector_node(selector: SelectorShown, counts: bool) -> Node:
    parts, action, numbers = selector.conditions, selector.action, selector.numbers
    texts = [("& " if at else "") + part for at, part in enumerate(parts)]
    verb, destination = action.verb, action.destination
    kind = "tag" if action.queue is not None else "end"
    if destination is not None:
        texts.append(f"deliver named by {destination.name}" if isinstance(destination, Field) else f"deliver to {destination}")
        verb = ""
    if kind == "end" and texts[0] == "always":
        del texts[0]
    if selector.name is not None:
        texts.insert(0, selector.name)
    state = [f"{verb} {selector.count:,}".strip() if counts else verb]
    if counts and numbers["dropped"]:
        state.append(f"dropped {numbers['dropped']:,}")
    if action.credited:
        if not counts:
            state.append(credit_text(selector.credit))
        elif numbers["available"] == 0:
            state.append("no credit left")
    if counts and numbers["blocked"]:
        state.append("blocked")
    if not selector.enabled:
        state.append("disabled")
    texts.append(", ".join(filter(None, state)))
    name = "" if selector.name is None else f" {selector.name}"
    title = f"{selector.id}{name}: when {' & '.join(parts)}, do {action!r}, credit {selector.credit!r}"
    return Node(kind, list(map(_short, filter(None, texts))), COLOURS[action.verb], title)


def _short(text: str) -> str:
    return shortened(text, CHARS_MAX)


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
    """A line: a curve between columns, level within a column (along a bend, and from a narrow node to the edge of the column).

    A line from right to left ends lower, so that it does not lie on the lines from left to right.
    """
    def edges(node: Node) -> tuple[float, float]:
        return lefts[node.rank], lefts[node.rank] + widths[node.rank]

    port = PORT if line.backwards else 0
    y = line.start.y + MARGIN + port
    left, right = edges(line.start)
    path = f"M{left:.1f} {y:.1f}" if line.backwards else f"M{left + line.start.width:.1f} {y:.1f}H{right:.1f}"
    x = left if line.backwards else right
    for node in [*line.bends, line.end]:
        left, right = edges(node)
        enter, leave = (right, left) if line.backwards else (left, right)
        middle, level = (x + enter) / 2, node.y + MARGIN + (0 if node.kind == "bend" else port)
        path += f"C{middle:.1f} {y:.1f} {middle:.1f} {level:.1f} {enter:.1f} {level:.1f}"
        if node.kind == "bend":
            path += f"H{leave:.1f}"
        elif line.backwards:
            path += f"H{left + node.width:.1f}"
        x, y = leave, level
    thickness = 1.0 + 0.5 * math.log10(line.count + 1)
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    arrow = f' marker-end="url(#arrow-{line.colour[1:]})"' if line.arrow or line.backwards else ""
    stroke = f'stroke="{line.colour}" stroke-width="{thickness:.1f}" stroke-opacity=".8"'
    return f'<path d="{path}" fill="none" {stroke}{dash}{arrow}/>'


def _draw_node(node: Node, x: float) -> str:
    y = node.y - node.height / 2 + MARGIN
    radius = {"queue": 4.0, "tag": 0.0, "end": node.height / 2, "field": 4.0, "missing": 4.0}[node.kind]
    fill = {"queue": "#f3ecd8", "end": "#eeeef2"}.get(node.kind, "#ffffff")
    stroke = "#8d7a45" if node.kind == "queue" else node.colour
    dash = ' stroke-dasharray="3 3"' if node.kind in ("field", "missing") else ""
    parts = [f"<g><title>{escape(printable(node.title or ', '.join(node.lines)))}</title>"]
    parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{node.width:.1f}" height="{node.height:.1f}" rx="{radius:.1f}" '
                 f'fill="{fill}" stroke="{stroke}"{dash}/>')
    for number, text in enumerate(node.lines):
        style = ' class="name"' if node.kind == "queue" and number == 0 else ' class="small"' if number else ""
        parts.append(f'<text x="{x + node.width / 2:.1f}" y="{y + 16 + number * LINE_HEIGHT:.1f}" text-anchor="middle"{style}>'
                     f"{escape(text)}</text>")
    return "".join([*parts, "</g>"])
