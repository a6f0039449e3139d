"""The graph of an engine as text: a Mermaid flowchart, or Graphviz' language.

    queue               a box: its name, its store and limit, what is ready, outstanding and in its history
    selector            a line: its number or name, when; then what it does and with how much credit
    destination         a round node: what the application takes under that name
    named by a field    a hexagon: the message names the target, so there is no line to any one queue
    discarded           a small circle
    dead letters        a dashed line; to a dashed box if there is no such queue, so that it counts as none

Any text may be in a name. Node ids are numbers of our own, so names stand in labels only, and what either language or the
markup inside it would read is escaped. A picture of SVG itself is not made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field as dataclass_field
from typing import TYPE_CHECKING

from xump.actions import Field
from xump.conditions import Condition, Where
from xump_ext.selector import INFINITE

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector

CHARS_MAX = 60
"""Of a name or a condition in a label; what is longer ends in an ellipsis."""


@dataclass
class Node:
    """Something that lines go to or from."""

    id: str
    kind: str
    lines: list[str]


@dataclass
class Edge:
    """A selector, or the way of dead letters."""

    source: str
    target: str
    lines: list[str]
    kind: str = "selector"


@dataclass
class Drawing:
    """Nodes by what they stand for, and edges, each in the order of the engine."""

    nodes: dict[tuple[str, str], Node] = dataclass_field(default_factory=dict)
    edges: list[Edge] = dataclass_field(default_factory=list)

    def node(self, kind: str, name: str, lines: list[str]) -> str:
        """The id of the node that stands for a thing, which is made if it is not there."""
        node = self.nodes.get((kind, name))
        if node is None:
            node = self.nodes[kind, name] = Node(f"n{len(self.nodes) + 1}", kind, lines)
        return node.id


def draw(engine: Engine, *, counts: bool = True) -> Drawing:
    """The graph as it is now. Without counts: what it is built like, as for an engine that was never used."""
    engine._check_open()
    drawing = Drawing()
    with engine._build_lock:
        for queue in engine.queues.values():
            drawing.node("queue", queue.name, _queue_lines(queue, counts))
        for selector in engine.selectors.values():
            target = _target(drawing, selector)
            drawing.edges.append(Edge(drawing.nodes["queue", selector.source.name].id, target, _selector_lines(selector, counts),
                                      "selector" if selector.enabled else "disabled"))
        for queue in engine.queues.values():
            if queue.dead_letter is not None:
                kind = "queue" if queue.dead_letter in engine.queues else "missing"
                target = drawing.node(kind, queue.dead_letter, [_short(queue.dead_letter), "no such queue"])
                drawing.edges.append(Edge(drawing.nodes["queue", queue.name].id, target, ["dead letters"], "dead letters"))
    return drawing


def _queue_lines(queue: Queue, counts: bool) -> list[str]:
    lines = [_short(queue.name)]
    properties = [] if queue.store.name == "ram" else [f"in {_short(queue.store.name)}"]
    if queue.limit is not None:
        properties.append(f"limit {queue.limit:,}")
    if queue.history_limit is None or (queue.history_limit and not counts):
        properties.append("keeps all history" if queue.history_limit is None else f"keeps {queue.history_limit:,}")
    if queue.auto_delete:
        properties.append("deletes itself")
    if queue.held and counts:
        properties.append("held")
    if properties:
        lines.append(", ".join(properties))
    if counts:
        lines.append(f"{queue.ready:,} ready, {queue.outstanding:,} outstanding, {queue.history:,} in history")
    return lines


def _selector_lines(selector: Selector, counts: bool) -> list[str]:
    title = f"{selector.id}" if selector.name is None else f"{selector.id} {_short(selector.name)}"
    does = selector.do.verb
    if does == "deliver" and selector.do.queue is not None:
        does += f" to {_name(selector.do.destination)}"
    if selector.do.consuming and does != "discard":
        if selector.credit is INFINITE or not counts:
            does += f", credit {selector.credit!r}"
        else:
            does += f", {selector.available:,} of {selector.credit:,} credits left"
    state = [word for word in ("blocked" if counts and selector.blocked else "", "" if selector.enabled else "disabled") if word]
    return [f"{title}, {_when(selector.when)}", ", ".join([does, *state])]


def _target(drawing: Drawing, selector: Selector) -> str:
    queue, destination = selector.do.queue, selector.do.destination
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


def _when(when: Condition) -> str:
    """Without addresses of functions: one graph gives one text."""
    try:
        parts = when.terms()
    except TypeError:
        return repr(when)
    called = [part.source for part in parts if isinstance(part, Where) and callable(part.source)]
    if not called:
        return _short(" & ".join(map(repr, parts)))
    named = iter([f"where({getattr(source, '__qualname__', type(source).__qualname__)})" for source in called])
    return _short(" & ".join(next(named) if isinstance(part, Where) and callable(part.source) else repr(part) for part in parts))


def _short(text: str) -> str:
    """Control characters are shown as escapes; they would be spaces, or nothing."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= CHARS_MAX else text[: CHARS_MAX - 1] + "…"


# ---- Mermaid

MERMAID_NODES = {
    "queue": '["{}"]', "missing": '["{}"]', "destination": '(["{}"])', "field": '{{"{}"}}', "discarded": '(("{}"))',
}
MERMAID_PLAIN = re.compile(r"[^\w ,.()/=?!'+-]|(?<![^\W_])_|_(?![^\W_])", re.UNICODE)
MERMAID_START = re.compile(r"^( +|[-+=]|\d+[.)])")


def to_mermaid(engine: Engine, *, counts: bool = True) -> str:
    """The graph as a Mermaid flowchart. O(queues + selectors)."""
    drawing = draw(engine, counts=counts)
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
    """Text inside a quoted label: whatever is no letter, digit or harmless sign becomes an entity, `#number;`.

    That covers quotes, the `#` and `;` of entities, HTML, `%%` (a comment even in a label), and Markdown, which newer versions
    read in every label; what is special at the beginning of a line only (a list, a rule, a block of code) is escaped there.

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


def to_dot(engine: Engine, *, counts: bool = True) -> str:
    """The graph in Graphviz' language. O(queues + selectors)."""
    drawing = draw(engine, counts=counts)
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
    r"""Text inside a quoted label: a backslash begins an escape there, and an ampersand an entity.

    >>> print(dot_text(r'say "\N"'))
    say \"\\N\"
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")


def _joined(lines: list[str], by: str, escape: Callable[[str], str]) -> str:
    return by.join(map(escape, lines))
