"""Graphs: draws a topology of a shape, as the plain dict that `Engine.apply` takes and that TOML can hold.

In each the messages go in by the queues that nothing in the graph leads to, `in` if there is one only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

Chance = random.Random
Topology = dict[str, Any]

WORDS = ("a", "b", "c", "d", "e")
CREDITS: Sequence[int | str] = (1, 1, 2, 10, 100, "INFINITE")
MOST = 6
"""How many recipients, links or queues a graph has at most, beside the one that messages go in by."""


class _Graph:
    """A topology on its way."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.queues: dict[str, dict[str, Any]] = {}
        self.selectors: list[dict[str, Any]] = []

    def queue(self, name: str, *, plain: bool = False) -> str:
        self.queues[name] = {} if plain else _queue_terms(self.chance)
        return name

    def selector(self, source: str, do: Any, when: Any = "always", credit: int | str | None = None) -> None:
        drawn = {"source": source, "when": when, "do": do}
        if isinstance(do, str) or "copy_to" not in do:
            drawn["credit"] = self.chance.choice(CREDITS) if credit is None else credit
        self.selectors.append(drawn)

    def recipient(self, source: str, name: str, verb: str, when: Any) -> None:
        self.queue(name)
        self.selector(source, {verb: name}, when)
        self.selector(name, {"deliver": name})

    def count(self) -> range:
        return range(self.chance.randint(1, MOST))


def _queue_terms(chance: Chance) -> dict[str, Any]:
    """Most queues are plain: what is rare should be beside what is usual."""
    terms: dict[str, Any] = {}
    if chance.random() < 0.15:
        terms["priority"] = 3
    elif chance.random() < 0.15:
        terms["group"] = {"field": "address"}
    if chance.random() < 0.1:
        terms["history_limit"] = chance.choice((1, 10))
    if chance.random() < 0.1:
        terms["limit"] = chance.choice((1, 10, 100))
    if chance.random() < 0.1:
        terms["ttl"] = 3_600.0
    if chance.random() < 0.1:
        terms["dedup"] = 60.0
    return terms


def _condition(chance: Chance) -> Any:
    """An address, a topic, a prefix, a header, a filter, or any message."""
    word = chance.choice(WORDS)
    return chance.choice((
        "always", "always",
        {"match": "eq", "pattern": word}, {"match": "topic", "pattern": f"{word}.#"}, {"match": "topic", "pattern": f"*.{word}"},
        {"match": "topic", "pattern": f"#.{word}.#"}, {"match": "prefix", "pattern": word},
        {"match": "eq", "pattern": word, "field": "headers.to"}, {"where": f"n > {chance.randint(0, 9)}"},
        {"where": {"n": chance.randint(0, 9)}}, {"where": f"to LIKE '%{word}%' AND n BETWEEN 2 AND 7"},
    ))


def _wolfpack(graph: _Graph) -> None:
    graph.queue("in")
    for number in graph.count():
        graph.recipient("in", f"wolf-{number}", "move_to", "always")


def _parrot(graph: _Graph) -> None:
    graph.queue("in", plain=True)
    for number in graph.count():
        word = graph.chance.choice(WORDS)
        pattern = graph.chance.choice(("#", f"{word}.#", f"*.{word}", f"#.{word}"))
        graph.recipient("in", f"parrot-{number}", "copy_to", {"match": "topic", "pattern": pattern})


def _housecat(graph: _Graph) -> None:
    graph.queue("in", plain=True)
    for number in graph.count():
        address = WORDS[number] if number < len(WORDS) else f"cat-{number}"
        graph.recipient("in", f"cat-{number}", "copy_to", {"match": "eq", "pattern": address})


def _chain(graph: _Graph) -> None:
    names = ["in", *(f"link-{number}" for number in graph.count())]
    for name in names:
        graph.queue(name)
    for source, target in pairwise(names):
        graph.selector(source, {"move_to": target})
    graph.selector(names[-1], {"deliver": "end"})


def _diamond(graph: _Graph) -> None:
    """Many ways lead from `in` to `out`; a message takes one of them, or a copy of it each: `out` gets one then (rule 3)."""
    verb = graph.chance.choice(("copy_to", "move_to"))
    graph.queue("in")
    graph.queue("out")
    for number in graph.count():
        side = graph.queue(f"side-{number}")
        graph.selector("in", {verb: side})
        graph.selector(side, {graph.chance.choice(("copy_to", "move_to")): "out"})
    graph.selector("out", {"deliver": "end"})


def _cycle(graph: _Graph) -> None:
    names = ["in", *(f"stop-{number}" for number in graph.count())]
    for name in names:
        graph.queue(name)
    for source, target in zip(names, [*names[1:], names[0]], strict=True):
        graph.selector(source, {graph.chance.choice(("copy_to", "move_to")): target}, _condition(graph.chance))
        graph.selector(source, {"deliver": "end"}, graph.chance.choice(("default", _condition(graph.chance))))


def _fan_out(graph: _Graph) -> None:
    graph.queue("in", plain=True)
    for number in range(graph.chance.choice((2, 5, 20))):
        graph.recipient("in", f"copy-{number}", "copy_to", _condition(graph.chance))


def _random(graph: _Graph) -> None:
    names = [f"q{number}" for number in range(graph.chance.randint(1, MOST))]
    for name in names:
        graph.queue(name)
    for _ in range(graph.chance.randint(1, 2 * MOST)):
        source, target = graph.chance.choice(names), graph.chance.choice(names)
        graph.selector(source, graph.chance.choice((
            {"copy_to": target}, {"move_to": target}, {"bounce_to": target}, {"deliver": "end"}, {"deliver": "end"}, "discard",
            {"deliver": "end", "queue": target}, {"move_to": {"field": "headers.to"}})), _condition(graph.chance))
    graph.selector(names[-1], {"deliver": "end"})


SHAPES: dict[str, Callable[[_Graph], None]] = {
    "random": _random, "wolfpack": _wolfpack, "parrot": _parrot, "housecat": _housecat, "chain": _chain, "diamond": _diamond,
    "cycle": _cycle, "fan-out": _fan_out,
}
"""The shapes by name; each fills a graph."""


def drawn_topology(chance: Chance, shape: str | None = None) -> Topology:
    """A topology of that shape; None: of any.

    >>> drawn_topology(random.Random(3), "chain")["selectors"][-1]["do"]
    {'deliver': 'end'}
    """
    if shape is None:
        shape = chance.choice(list(SHAPES))
    if shape not in SHAPES:
        raise ValueError(f"there is no shape {shape!r}; use one of {', '.join(SHAPES)}")
    graph = _Graph(chance)
    SHAPES[shape](graph)
    return {"version": 1, "queues": graph.queues, "selectors": graph.selectors}


def entrances(topology: Topology) -> list[str]:
    """The queues that messages go in by: they have a selector, and no selector of another queue names them as its target.

    Where a cycle leaves none, it is the queue of the first selector; without any selector it is the first queue.
    """
    selectors = topology.get("selectors", [])
    sources = dict.fromkeys(selector["source"] for selector in selectors)
    led_to = {name for selector in selectors for name in _targets(selector["do"]) if name != selector["source"]}
    found = [name for name in sources if name not in led_to]
    return found or list(sources)[:1] or list(topology.get("queues", {}))[:1]


def _targets(do: Any) -> list[str]:
    if isinstance(do, str):
        return []
    named = [do.get(key) for key in ("copy_to", "move_to", "bounce_to", "queue")]
    return [name for name in named if isinstance(name, str)]
