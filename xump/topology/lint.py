"""What is suspicious in a description that `apply` would take: a graph that is legal, and perhaps not what was meant.

Each finding is a function from a `Description` to sentences. What is plainly wrong belongs to `xump.topology`.
"""

from __future__ import annotations

from collections.abc import Iterator

from xump.actions import Field
from xump.conditions import overflow
from xump.topology.schema import Description, SelectorItem
from xump_ext.infinite import INFINITE

Edges = dict[str, list[str]]


def findings(description: Description, complete: bool = True) -> list[str]:
    """All of them. Not `complete` (a part could not be read): only those that what is missing cannot refute."""
    found = [*_dead_letters(description), *_overflows(description)]
    if complete:
        found += [*_alone(description), *_stamped_for_nobody(description), *_cycles(description)]
    return found


def _dead_letters(description: Description) -> Iterator[str]:
    for name, queue in description.queues.items():
        letters = queue.properties["dead_letter"]
        if isinstance(letters, str) and letters == name:
            yield f"queue {name!r} is its own dead letter queue: that counts as none"
        elif isinstance(letters, str) and letters not in description.queues:
            yield f"queue {name!r} has the dead letter queue {letters!r}, which is not described: it counts as none"


def _overflows(description: Description) -> Iterator[str]:
    for selector in description.selectors:
        queue = description.queues.get(selector.source)
        if selector.when == overflow and queue is not None and queue.properties["limit"] is None:
            yield f"{selector} waits for queue {queue.name!r} to overflow, which has no limit"


def _alone(description: Description) -> Iterator[str]:
    """A field may name any queue: then none stands alone for sure."""
    if any(isinstance(selector.do.queue, Field) for selector in description.selectors):
        return
    used = {selector.source for selector in description.selectors}
    used |= {selector.do.queue for selector in description.selectors if isinstance(selector.do.queue, str)}
    used |= {queue.properties["dead_letter"] for queue in description.queues.values()}
    for name in description.queues:
        if name not in used:
            yield f"queue {name!r} stands alone: no selector takes from it, and none puts into it"


def _stamped_for_nobody(description: Description) -> Iterator[str]:
    """A destination is stamped on, and the message goes where no selector hands over to the application."""
    edges = _edges(description.selectors)
    delivering = [selector for selector in description.selectors if selector.do.verb == "deliver"]
    hand_over = {selector.source for selector in delivering if selector.do.queue is None}
    hand_over |= {selector.source for selector in description.selectors if isinstance(selector.do.queue, Field)}
    for selector in delivering:
        queue = selector.do.queue
        if isinstance(queue, str) and hand_over.isdisjoint(_reached(queue, edges)):
            yield (f"{selector} stamps the destination {selector.do.destination!r} on what it puts into queue {queue!r}, "
                   "from where no selector delivers to the application")


def _cycles(description: Description) -> Iterator[str]:
    """Moving in a circle, with a credit in it that can be used up: the last message may wait for what the first has not paid."""
    moves = [selector for selector in description.selectors if selector.do.consuming and isinstance(selector.do.queue, str)]
    for circle in _circles(_edges(moves)):
        finite = [str(selector) for selector in moves
                  if selector.source in circle and selector.do.queue in circle and selector.credit is not INFINITE]
        if finite:
            yield (f"{'queue' if len(circle) == 1 else 'queues'} {', '.join(map(repr, circle))}: a cycle of finite credit "
                   f"({', '.join(finite)}), which may come to a standstill waiting for itself; INFINITE credit does not wait")


def _circles(edges: Edges) -> Iterator[list[str]]:
    """The sets of queues of which each leads to each, as lists in the order of the way."""
    edges = _without_ends(edges)
    back: Edges = {}
    for source, targets in edges.items():
        for target in targets:
            back.setdefault(target, []).append(source)
    told: set[str] = set()
    for start in edges:
        if start not in told:
            behind = set(_reached(start, back))
            circle = [name for name in _reached(start, edges) if name in behind]
            told.update(circle)
            if len(circle) > 1 or start in edges[start]:
                yield circle


def _without_ends(edges: Edges) -> Edges:
    """What is left when the queues with nothing behind them are taken away, again and again. O(edges)."""
    fed_by: Edges = {}
    for source, targets in edges.items():
        for target in targets:
            fed_by.setdefault(target, []).append(source)
    behind = {name: len(targets) for name, targets in edges.items()}
    ends = [name for name in fed_by if name not in behind]
    while ends:
        for source in fed_by.get(ends.pop(), ()):
            behind[source] -= 1
            if behind[source] == 0:
                ends.append(source)
    return {name: [target for target in targets if behind.get(target)] for name, targets in edges.items() if behind[name]}


def _edges(selectors: list[SelectorItem]) -> Edges:
    edges: Edges = {}
    for selector in selectors:
        if isinstance(selector.do.queue, str):
            edges.setdefault(selector.source, []).append(selector.do.queue)
    return edges


def _reached(start: str, edges: Edges) -> list[str]:
    """The queue and all behind it, in the order of the way."""
    seen, ways = {start: None}, [start]
    while ways:
        for target in edges.get(ways.pop(), ()):
            if target not in seen:
                seen[target] = None
                ways.append(target)
    return list(seen)
