"""Draws the graph of an engine as text: a Mermaid flowchart, or Graphviz' language.

    queue               a box: name, store and limit, and how many messages are ready, outstanding and in the history
    selector            a line: number or name and condition; then the action and the credit
    destination         a round node: the application takes deliveries under that name
    named by a field    a hexagon: the message names the target, so there is no line to a single queue
    discarded           a small circle
    dead letters        a dashed line; to a dashed box if the dead letter queue does not exist

A name may be any text. Nodes get numbers as ids, so names are in labels only, where every character that either language would
read is escaped. `xump.topology.picture` draws SVG with the same texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field as dataclass_field
from typing import TYPE_CHECKING, Any

from xump.actions import Field
from xump.conditions import All, Condition, Where
from xump_ext.infinite import INFINITE, Infinite

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector

CHARS_MAX = 60
"""A longer name or condition is cut in a label, and ends in an ellipsis."""


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
    engine._check_open()
    drawing = Drawing()
    with engine._build_lock:
        stats = engine.stats()
        for queue in engine.queues.values():
            lines = _queue_lines(queue, stats["queues"][queue.name], counts)
            drawing.node("queue", queue.name, lines + list(map(_short, notes.get(queue.name, ()))))
        for selector in engine.selectors.values():
            target = _target(drawing, selector)
            lines = _selector_lines(selector, stats["selectors"][selector.id], counts)
            drawing.edges.append(Edge(drawing.nodes["queue", selector.source.name].id, target, lines,
                                      "selector" if selector.enabled else "disabled"))
        for source, letters, reasons, _ in letters_of(engine, stats, counts):
            kind = "queue" if letters in engine.queues else "missing"
            target = drawing.node(kind, letters, [_short(letters), "no such queue"])
            lines = ["dead letters", *([", ".join(reasons)] if reasons else [])]
            drawing.edges.append(Edge(drawing.nodes["queue", source].id, target, lines, "dead letters"))
    return drawing


def letters_of(engine: Engine, stats: dict[str, Any], counts: bool) -> Iterator[tuple[str, str, list[str], int]]:
    """The paths of dead letters: (from queue, to queue, texts with the number of messages for each reason, number of messages).

    The path to a queue's own dead letter queue is always there. The path to the engine's, which is open to every queue, is
    there if messages went along it.
    """
    for queue in engine.queues.values():
        reasons = stats["queues"][queue.name]["dead_lettered"] if counts else {}
        went = [f"{count:,} {reason}" for reason, count in reasons.items()], sum(reasons.values())
        to_own = queue.dead_letter in engine.queues or engine.dead_letter is None      # a queue that does not exist gets none
        if queue.dead_letter is not None:
            yield queue.name, queue.dead_letter, *(went if to_own else ([], 0))
        if reasons and engine.dead_letter not in (None, queue.name) and not to_own:
            yield queue.name, engine.dead_letter, *went


def queue_properties(queue: Queue, counts: bool) -> list[str]:
    """The properties of a queue that differ from the default; with `counts` its state too."""
    properties = [] if queue.store.name == "ram" else [f"in {_short(queue.store.name)}"]
    if queue.limit is not None:
        properties.append(f"limit {queue.limit:,}")
    if queue.history_limit is None or (queue.history_limit and not counts):
        properties.append("keeps all history" if queue.history_limit is None else f"keeps {queue.history_limit:,}")
    if queue.auto_delete:
        properties.append("deletes itself")
    if queue.held and counts:
        properties.append("held")
    return properties


def queue_counts(numbers: dict[str, Any]) -> list[str]:
    """How many messages entered, and how many of them are there or were dropped."""
    texts = [f"{numbers['entered']:,} entered"]
    texts += [f"{numbers[what]:,} {what}" for what in ("ready", "outstanding") if numbers[what]]
    if numbers["history"]:
        texts.append(f"{numbers['history']:,} in history")
    dropped = sum(numbers["dropped"].values())
    return [*texts, f"{dropped:,} dropped"] if dropped else texts


def credit_text(credit: int | Infinite) -> str:
    """The credit that a selector was created with.

    >>> credit_text(10_000), credit_text(INFINITE)
    ('credit 10,000', 'credit INFINITE')
    """
    return f"credit {credit!r}" if credit is INFINITE else f"credit {credit:,}"


def _queue_lines(queue: Queue, numbers: dict[str, Any], counts: bool) -> list[str]:
    lines = [[_short(queue.name)], queue_properties(queue, counts), queue_counts(numbers) if counts else []]
    return [", ".join(texts) for texts in lines if texts]


def _selector_lines(selector: Selector, numbers: dict[str, Any], counts: bool) -> list[str]:
    title = f"{selector.id}" if selector.name is None else f"{selector.id} {_short(selector.name)}"
    verb = selector.do.verb
    if verb == "deliver" and selector.do.queue is not None:
        verb += f" to {_name(selector.do.destination)}"
    does = [f"{verb} {numbers['copied'] + numbers['served']:,}" if counts else verb]        # a selector does one or the other
    if counts and numbers["dropped"]:
        does.append(f"{numbers['dropped']:,} dropped")
    if selector.do.credited:
        if selector.credit is INFINITE or not counts:
            does.append(credit_text(selector.credit))
        else:
            does.append(f"{numbers['available']:,} of {numbers['credit']:,} credits left")
    if counts and numbers["blocked"]:
        does.append("blocked")
    if not selector.enabled:
        does.append("disabled")
    return [f"{title}, {_short(' & '.join(condition_texts(selector.when)))}", ", ".join(does)]


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


def condition_texts(when: Condition) -> list[str]:
    """The conditions that `&` has joined in this one, as texts. A function is shown by its name, without its address in memory.

    >>> from xump import match, where
    >>> condition_texts(match("eq", "audit") & where(print))
    ["match('eq', 'audit')", 'where(print)']
    """
    return [_text_of(part) for part in (when.parts if isinstance(when, All) else (when,))]


def _text_of(part: Condition) -> str:
    if isinstance(part, Where) and callable(part.source):
        name = getattr(part.source, "__qualname__", type(part.source).__qualname__)
        return f"where({name.rpartition('<locals>.')[2]})"
    return repr(part)


def printable(text: str) -> str:
    """The text with escapes for control characters, which would look like spaces, or like nothing."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, chars_max: int) -> str:
    """The text made printable, and cut to `chars_max` with an ellipsis."""
    text = printable(text)
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


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
