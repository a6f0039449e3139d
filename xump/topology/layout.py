"""Places the nodes of a drawing in columns from left to right. `xump.topology.picture` draws them, and says why Xump has its own.

A layered drawing is easy to read. It takes the usual four passes (Sugiyama, Tagawa, Toda 1981):

    1. rank     in each cycle, the line with the fewest messages is reversed; then each node is placed one column
                to the right of the last node that has a line to it
    2. split    a line over several columns gets a bend in each of them
    3. order    the nodes of a column are sorted by the mean place of their neighbours, forth and back; the order with the fewest
                crossings is kept
    4. place    each node gets a height as near to the mean height of its neighbours as the order and the gaps allow
"""

from __future__ import annotations

from dataclasses import dataclass, field as dataclass_field

GAP_Y = 12
SWEEPS = 24
"""In graphs of a size that can be read, more sweeps change nothing."""


@dataclass
class Node:
    """Something that is drawn, or the bend of a line."""

    kind: str
    """`"queue"`, `"tag"` (a selector with a target), `"end"` (a selector without one), `"field"` (a field that names the target),
    `"missing"` (a queue that does not exist) or `"bend"`."""
    lines: list[str]
    """Its text, line by line."""
    colour: str = ""
    """Its colour, as SVG writes it."""
    title: str = ""
    """The text that a browser shows when the mouse is over it; empty: its lines."""
    came: int = 0
    """Of a queue: how many messages entered it along no line."""
    rank: int = 0
    """Its column, from 0 at the left."""
    y: float = 0.0
    """The height of its middle, from 0 at the top."""
    width: float = 0.0
    """Its width in pixels."""
    height: float = 0.0
    """Its height in pixels."""
    before: list[Node] = dataclass_field(default_factory=list)
    """Its neighbours in the column to the left."""
    after: list[Node] = dataclass_field(default_factory=list)
    """Its neighbours in the column to the right."""


@dataclass
class Line:
    """A line from node to node, through bends."""

    start: Node
    """Where it begins."""
    end: Node
    """Where it ends."""
    colour: str
    """Its colour, as SVG writes it."""
    count: int
    """How many messages went along it."""
    dashed: bool = False
    """Whether it is the line of dead letters."""
    arrow: bool = True
    """Whether it ends in an arrow."""
    backwards: bool = False
    """Whether it goes from right to left."""
    bends: list[Node] = dataclass_field(default_factory=list)
    """Its bends, from its start to its end."""


def lay_out(nodes: list[Node], lines: list[Line]) -> list[list[Node]]:
    """Lay out a graph. Returns the columns from left to right, with the bends in them.

    Sets `rank` and `y` of the nodes and `bends` of the lines. The nodes have their widths and heights already.
    """
    _rank(nodes, lines)
    columns = _columns(nodes, lines)
    _order(columns)
    _place(columns)
    return columns


# ---- 1. rank

def _rank(nodes: list[Node], lines: list[Line]) -> None:
    outgoing: dict[int, list[Line]] = {id(node): [] for node in nodes}
    for line in lines:
        outgoing[id(line.start)].append(line)
    while (sequence := _sequence(nodes, outgoing)) is None:
        pass
    fed = {id(line.end) for line in lines if not line.backwards}
    for node in reversed(sequence):
        for line in outgoing[id(node)]:
            if not line.backwards:
                line.end.rank = max(line.end.rank, node.rank + 1)
    for node in sequence:               # a node without a line to it is placed directly before the first node that it leads to
        ahead = [line.end.rank for line in outgoing[id(node)] if not line.backwards]
        if id(node) not in fed and ahead:
            node.rank = min(ahead) - 1


def _sequence(nodes: list[Node], outgoing: dict[int, list[Line]]) -> list[Node] | None:
    """All nodes, the end of each line before its start. If there is a cycle, turns one of its lines and returns None."""
    done: dict[int, bool] = {}          # False: on the path that is being walked
    sequence: list[Node] = []
    for root in nodes:
        if id(root) in done:
            continue
        done[id(root)] = False
        path: list[Line] = []
        stack = [(root, iter(outgoing[id(root)]))]
        while stack:
            node, rest = stack[-1]
            line = next((line for line in rest if not line.backwards), None)
            if line is None:
                done[id(node)] = True
                sequence.append(node)
                stack.pop()
                path[-1:] = []
                continue
            path.append(line)
            if done.get(id(line.end)) is False:
                cycle = path[next(at for at, one in enumerate(path) if one.start is line.end):]
                min(cycle, key=lambda one: (one.count, -one.end.came)).backwards = True
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
        left, right = (line.end, line.start) if line.backwards else (line.start, line.end)
        previous = left
        for rank in range(left.rank + 1, right.rank):
            bend = Node("bend", [], rank=rank)
            columns[rank].append(bend)
            line.bends.append(bend)
            _join(previous, bend)
            previous = bend
        _join(previous, right)
        if line.backwards:
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
    """Give the nodes of a column the heights nearest to those wanted (least squares) that keep order and gaps.

    Neighbours that would be too near to each other are pooled, and share their mean.
    """
    offset, offsets = 0.0, []
    for at, node in enumerate(column):
        if at:
            offset += (column[at - 1].height + node.height) / 2 + GAP_Y
        offsets.append(offset)
    pools: list[list[float]] = []       # the sum of the heights wanted, the number of nodes
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
