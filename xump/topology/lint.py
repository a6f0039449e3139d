"""Warnings about a description that `apply` accepts: a graph that is allowed, but is probably a mistake.

Each warning is a function from a `Description` to sentences. `xump.topology.network` finds the mistakes that `apply` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator

from xump.actions import Field
from xump.conditions import overflow
from xump.topology.schema import Description, QueueItem, SelectorItem
from xump_ext.infinite import INFINITE

Edges = dict[str, list[str]]


def lint(description: Description, complete: bool = True) -> list[str]:
    """All warnings, as sentences.

    If the description is not `complete`, because a part of it could not be read: only those that the missing part cannot refute.
    """
    found = [*_dead_letters(description), *_overflows(description), *_never_full(description)]
    if complete:
        found += [*_alone(description), *_undelivered_destinations(description), *_cycles(description)]
    return found


def _dead_letters(description: Description) -> Iterator[str]:
    for name, queue in description.queues.items():
        letters = queue.properties["dead_letter"]
        if isinstance(letters, str) and letters == name:
            yield f"queue {name!r} is its own dead letter queue, so it has none: name another queue"
        elif isinstance(letters, str) and letters not in description.queues:
            yield f"queue {name!r} has the dead letter queue {letters!r}, which is not described: until that exists, it has none"


def _overflows(description: Description) -> Iterator[str]:
    for selector in description.selectors:
        queue = description.queues.get(selector.source)
        if selector.when == overflow and queue is not None and not _has_limit(queue):
            yield f"{selector} waits for queue {queue.name!r} to overflow, which never happens: the queue has no limit"


def _never_full(description: Description) -> Iterator[str]:
    for name, queue in description.queues.items():
        if queue.properties["when_full"] != "refuse" and not _has_limit(queue):
            yield f"queue {name!r} drops its oldest messages when it is full, which never happens: the queue has no limit"


def _has_limit(queue: QueueItem) -> bool:
    return queue.properties["limit"] is not None or queue.properties["limit_bytes"] is not None


def _alone(description: Description) -> Iterator[str]:
    """Queues without a selector into them or out of them. If a selector's target is a field, it may be any queue: no warning."""
    if any(isinstance(selector.do.queue, Field) for selector in description.selectors):
        return
    used = {selector.source for selector in description.selectors}
    used |= {selector.do.queue for selector in description.selectors if isinstance(selector.do.queue, str)}
    used |= {queue.properties["dead_letter"] for queue in description.queues.values()}
    for name in description.queues:
        if name not in used:
            yield f"queue {name!r} stands alone: it has no selector, and is the target of none"


def _undelivered_destinations(description: Description) -> Iterator[str]:
    """Selectors that stamp a destination on messages, and put them where no selector delivers to your program."""
    edges = _edges(description.selectors)
    delivering = [selector for selector in description.selectors if selector.do.verb == "deliver"]
    hand_over = {selector.source for selector in delivering if selector.do.queue is None}
    hand_over |= {selector.source for selector in description.selectors if isinstance(selector.do.queue, Field)}
    for selector in delivering:
        queue = selector.do.queue
        if isinstance(queue, str) and hand_over.isdisjoint(_reached(queue, edges)):
            yield (f"{selector} stamps the destination {selector.do.destination!r} on what it puts into queue {queue!r}, "
                   "from where no selector delivers to your program")


def _cycles(description: Description) -> Iterator[str]:
    """Cycles of moves with a finite credit in them: the cycle stops once the credit is used up by messages that wait for it."""
    moves = [selector for selector in description.selectors if selector.do.consuming and isinstance(selector.do.queue, str)]
    for circle in _circles(_edges(moves)):
        finite = [str(selector) for selector in moves
                  if selector.source in circle and selector.do.queue in circle and selector.credit is not INFINITE]
        if finite:
            yield (f"{'queue' if len(circle) == 1 else 'queues'} {', '.join(map(repr, circle))}: a cycle of finite credit "
                   f"({', '.join(finite)}), which may come to a standstill waiting for itself; with credit INFINITE it cannot")


def _circles(edges: Edges) -> Iterator[list[str]]:
    """The sets of queues in which each one leads to every other, as lists in the order of the path."""
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
    """The edges that are left when queues that lead nowhere are removed, again and again. O(edges)."""
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
    """The queue and all that it leads to, in the order of the path."""
    seen, ways = {start: None}, [start]
    while ways:
        for target in edges.get(ways.pop(), ()):
            if target not in seen:
                seen[target] = None
                ways.append(target)
    return list(seen)
