"""Draws the graph of an engine as text: a Mermaid flowchart, or Graphviz' language.

    queue               a box: name, store and limit, and how many messages are ready, outstanding and in the history
    selector            a line: number or name and condition; then the action and the credit
    destination         a round node: your program takes deliveries under that name
    named by a field    a hexagon: the message names the target, so there is no line to a single queue
    discarded           a small circle
    dead letters        a dashed line; to a dashed box if the dead letter queue does not exist

A name may be any text. Nodes get numbers as ids, so names are in labels only, where every character that either language would
read is escaped. `xump.topology.picture` draws SVG with the same texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field as dataclass_field
from typing import TYPE_CHECKING

from xump.actions import Action, Field
from xump.topology.graph import CHARS_MAX, SelectorShown, credit_text, extract, shortened
from xump_ext.infinite import INFINITE

if TYPE_CHECKING:
    from xump.engine import Engine

Notes = Mapping[str, Sequence[str]]
"""More lines of text for the box of a queue, by its name. A program may know of queues and selectors that were deleted."""

NO_NOTES: Notes = {}


@dataclass
class Node:
    """Something that lines go to or from."""

    id: str
    """Its id in the drawing."""
    kind: str
    """`"queue"`, `"missing"` (a queue that does not exist), `"destination"`, `"field"` or `"discarded"`."""
    lines: list[str]
    """Its text, line by line."""


@dataclass
class Edge:
    """A selector, or the path of dead letters."""

    source: str
    """The id of the node that it begins at."""
    target: str
    """The id of the node that it ends at."""
    lines: list[str]
    """Its text, line by line."""
    kind: str = "selector"
    """`"selector"`, `"disabled"` or `"dead letters"`."""


@dataclass
class Drawing:
    """The nodes and edges of a graph, in the order of the engine."""

    nodes: dict[tuple[str, str], Node] = dataclass_field(default_factory=dict)
    """The nodes by kind and name."""
    edges: list[Edge] = dataclass_field(default_factory=list)
    """The edges."""

    def node(self, kind: str, name: str, lines: list[str]) -> str:
        """The id of the node of that kind and name, which is created if it does not exist."""
        node = self.nodes.get((kind, name))
        if node is None:
            node = self.nodes[kind, name] = Node(f"n{len(self.nodes) + 1}", kind, lines)
        return node.id


def draw(engine: Engine, *, counts: bool = True, notes: Notes = NO_NOTES) -> Drawing:
    """The graph as it is now. Without counts the drawing is that of an engine which was never used."""
    graph = extract(engine, counts)
    drawing = Drawing()
    for queue in graph.queues.values():
        lines = [_short(queue.name), *(", ".join(texts) for texts in (queue.properties, queue.counts) if texts)]
        drawing.node("queue", queue.name, [*lines, *map(_short, notes.get(queue.name, ()))])
    for selector in graph.selectors:
        kind = "selector" if selector.enabled else "disabled"
        target = _target(drawing, selector.action)
        drawing.edges.append(Edge(drawing.nodes["queue", selector.source].id, target, _selector_lines(selector, counts), kind))
    for path in graph.dead_letters:
        kind = "queue" if path.target in graph.queues else "missing"
        target = drawing.node(kind, path.target, [_short(path.target), "no such queue"])
        lines = ["dead letters", *([", ".join(path.reasons)] if path.reasons else [])]
        drawing.edges.append(Edge(drawing.nodes["queue", path.source].id, target, lines, "dead letters"))
    return drawing


def _selector_lines(selector: SelectorShown, counts: bool) -> list[str]:
    title = f"{selector.id}" if selector.name is None else f"{selector.id} {_short(selector.name)}"
    verb, numbers = selector.action.verb, selector.numbers
    if verb == "deliver" and selector.action.queue is not None:
        verb += f" to {_name(selector.action.destination)}"
    does = [f"{verb} {selector.count:,}" if counts else verb]
    if counts and numbers["dropped"]:
        does.append(f"{numbers['dropped']:,} dropped")
    if selector.action.credited:
        if selector.credit is INFINITE or not counts:
            does.append(credit_text(selector.credit))
        else:
            does.append(f"{numbers['available']:,} of {numbers['credit']:,} credits left")
    if selector.ack_timeout is not None:
        does.append(f"ack within {selector.ack_timeout} s")
    if selector.rank:
        does.append(f"rank {selector.rank:,}")
    if selector.ahead is not None:
        does.append(f"{selector.ahead:,} ahead")
    if selector.window is not None:
        does.append(f"window {_short(selector.window)}")
    if counts and numbers["blocked"]:
        does.append("blocked")
    if not selector.enabled:
        does.append("disabled")
    return [f"{title}, {_short(' & '.join(selector.conditions))}", ", ".join(does)]


def _target(drawing: Drawing, action: Action) -> str:
    queue, destination = action.queue, action.destination
    if isinstance(queue, Field):
        return drawing.node("field", f"queue {queue.name}", ["the queue named by", _short(queue.name)])
    if queue is not None:
        return drawing.nodes["queue", queue].id
    if isinstance(destination, Field):
        return drawing.node("field", f"destination {destination.name}", ["the destination named by", _short(destination.name)])
    if destination is not None:
        return drawing.node("destination", destination, [_short(destination)])
    return drawing.node("discarded", "", ["discarded"])


def _name(name: str | Field | None) -> str:
    return _short(name.name if isinstance(name, Field) else str(name))


def _short(text: str) -> str:
    return shortened(text, CHARS_MAX)


# ---- Mermaid

MERMAID_NODES = {
    "queue": '["{}"]', "missing": '["{}"]', "destination": '(["{}"])', "field": '{{"{}"}}', "discarded": '(("{}"))',
}
MERMAID_PLAIN = re.compile(r"[^\w ,.()/=?!'+-]|(?<![^\W_])_|_(?![^\W_])", re.UNICODE)
MERMAID_START = re.compile(r"^( +|[-+=]|\d+[.)])")


def to_mermaid(engine: Engine, *, counts: bool = True, notes: Notes = NO_NOTES) -> str:
    """Draw the graph as a Mermaid flowchart. Cost: O(queues + selectors)."""
    drawing = draw(engine, counts=counts, notes=notes)
    lines = ["flowchart LR"]
    for node in drawing.nodes.values():
        label = _joined(node.lines, "<br/>", mermaid_text)
        lines.append(f"    {node.id}{MERMAID_NODES[node.kind].replace('{}', label)}")
    for edge in drawing.edges:
        label, arrow = _joined(edge.lines, "<br/>", mermaid_text), "-->" if edge.kind == "selector" else "-.->"
        lines.append(f'    {edge.source} {arrow}|"{label}"| {edge.target}')
    missing = [node.id for node in drawing.nodes.values() if node.kind == "missing"]
    if missing:
        lines += ["    classDef missing stroke-dasharray: 4 4", f"    class {','.join(missing)} missing"]
    return "\n".join(lines) + "\n"


def mermaid_text(text: str) -> str:
    """Escape text for a quoted label: each character that is not a letter, a digit or harmless becomes an entity, `#number;`.

    That covers quotes, the `#` and `;` of entities, HTML, `%%` (a comment even in a label), and Markdown, which newer versions
    read in every label. Characters that are special only at the beginning of a line (a list, a rule, a block of code) are escaped
    there.

    >>> mermaid_text('say "#1"')
    'say #34;#35;1#34;'
    """
    text = MERMAID_PLAIN.sub(lambda found: f"#{ord(found[0])};", text)
    return MERMAID_START.sub(lambda found: f"{found[0][:-1]}#{ord(found[0][-1])};" if found[0] != " " * len(found[0])
                             else "#32;" * len(found[0]), text)


# ---- Graphviz

DOT_NODES = {
    "queue": "shape=box, style=rounded", "missing": 'shape=box, style="rounded,dashed"', "destination": "shape=ellipse",
    "field": "shape=hexagon", "discarded": "shape=circle",
}
LINE_END = "\\n"
DOT_EDGES = {"selector": "style=solid", "disabled": "style=dotted", "dead letters": "style=dashed"}


def to_dot(engine: Engine, *, counts: bool = True, notes: Notes = NO_NOTES) -> str:
    """Draw the graph in Graphviz' language. Cost: O(queues + selectors)."""
    drawing = draw(engine, counts=counts, notes=notes)
    lines = [
        "digraph xump {", "    rankdir=LR",
        '    node [fontname="sans-serif", fontsize=11]', '    edge [fontname="sans-serif", fontsize=9]',
    ]
    for node in drawing.nodes.values():
        label = _joined(node.lines, LINE_END, dot_text)
        lines.append(f'    {node.id} [label="{label}", {DOT_NODES[node.kind]}]')
    for edge in drawing.edges:
        label = _joined(edge.lines, LINE_END, dot_text)
        lines.append(f'    {edge.source} -> {edge.target} [label="{label}", {DOT_EDGES[edge.kind]}]')
    return "\n".join([*lines, "}"]) + "\n"


def dot_text(text: str) -> str:
    r"""Escape text for a quoted label, where a backslash begins an escape, and an ampersand an entity.

    >>> print(dot_text(r'say "\N"'))
    say \"\\N\"
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")


def _joined(lines: list[str], by: str, escape: Callable[[str], str]) -> str:
    return by.join(map(escape, lines))
