"""Graphs: draws a topology of a shape, as the plain dict that `Engine.apply` takes and that TOML can hold.

In each the messages go in by the queues that nothing in the graph leads to, `in` if there is one only. Names, conditions, credit
and the properties of queues come from a vocabulary.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from xump.topology.codec import encode_condition, encode_credit, encode_name
from xump.topology.schema import ALL_HISTORY
from xump.workloads.vocabulary import LOAD, WORDS, Vocabulary

Chance = random.Random
Topology = dict[str, Any]

MOST = 6
"""How many recipients, links or queues a graph has at most, beside the one that messages go in by."""


class _Graph:
    """A topology on its way. Names are those of the shape, unless the vocabulary has some: then they are taken in turn."""

    def __init__(self, chance: Chance, vocabulary: Vocabulary, stores: Sequence[str]) -> None:
        self.chance, self.vocabulary, self.stores = chance, vocabulary, stores
        self.most = min(MOST, len(vocabulary.queues) - 2) if vocabulary.queues else MOST
        self.queues: dict[str, dict[str, Any]] = {}
        self.selectors: list[dict[str, Any]] = []

    def queue(self, role: str, *, plain: bool = False) -> str:
        names = self.vocabulary.queues
        name = names[len(self.queues)] if names else role
        self.queues[name] = {} if plain else self._properties()
        if self.stores and (store := self.chance.choice(("ram", *self.stores))) != "ram":
            self.queues[name]["store"] = store
        return name

    def _properties(self) -> dict[str, Any]:
        """Most queues have no special property: what is rare should be beside what is usual."""
        vocabulary, choice = self.vocabulary, self.chance.choice
        drawn = {name: choice(pool) for name, pool in vocabulary.usual.items()}
        drawn |= {name: choice(pool) for name, pool in vocabulary.special.items() if self.chance.random() < vocabulary.rarity}
        if "history_limit" in drawn and drawn["history_limit"] is None:
            drawn["history_limit"] = ALL_HISTORY
        if drawn.get("dead_letter") not in self.queues:      # it comes later, or never
            drawn.pop("dead_letter", None)
        return {name: encode_name(value) if name == "group" else value for name, value in drawn.items() if value is not None}

    def condition(self) -> Any:
        return encode_condition(self.chance.choice(self.vocabulary.graph_conditions))

    def destination(self, role: str) -> str:
        return self.chance.choice(self.vocabulary.destinations or (role,))

    def selector(self, source: str, do: Any, when: Any = "always") -> None:
        drawn = {"source": source, "when": when, "do": do}
        if isinstance(do, str) or "copy_to" not in do:
            drawn["credit"] = encode_credit(self.chance.choice(self.vocabulary.credits))
        self.selectors.append(drawn)

    def recipient(self, source: str, role: str, verb: str, when: Any) -> None:
        name = self.queue(role)
        self.selector(source, {verb: name}, when)
        self.selector(name, {"deliver": self.destination(role)})

    def count(self) -> range:
        return range(self.chance.randint(1, self.most))


def _wolfpack(graph: _Graph) -> None:
    door = graph.queue("in")
    for number in graph.count():
        graph.recipient(door, f"wolf-{number}", "move_to", "always")


def _parrot(graph: _Graph) -> None:
    door = graph.queue("in", plain=True)
    for number in graph.count():
        word = graph.chance.choice(WORDS)
        pattern = graph.chance.choice(("#", f"{word}.#", f"*.{word}", f"#.{word}"))
        graph.recipient(door, f"parrot-{number}", "copy_to", {"match": "topic", "pattern": pattern})


def _housecat(graph: _Graph) -> None:
    door = graph.queue("in", plain=True)
    for number in graph.count():
        address = WORDS[number] if number < len(WORDS) else f"cat-{number}"
        graph.recipient(door, f"cat-{number}", "copy_to", {"match": "eq", "pattern": address})


def _chain(graph: _Graph) -> None:
    names = [graph.queue(role) for role in ("in", *(f"link-{number}" for number in graph.count()))]
    for source, target in pairwise(names):
        graph.selector(source, {"move_to": target})
    graph.selector(names[-1], {"deliver": graph.destination("end")})


def _diamond(graph: _Graph) -> None:
    """Many ways lead from `in` to `out`; a message takes one of them, or a copy of it each: `out` gets one then (rule 3)."""
    verb = graph.chance.choice(("copy_to", "move_to"))
    door, out = graph.queue("in"), graph.queue("out")
    for number in graph.count():
        side = graph.queue(f"side-{number}")
        graph.selector(door, {verb: side})
        graph.selector(side, {graph.chance.choice(("copy_to", "move_to")): out})
    graph.selector(out, {"deliver": graph.destination("end")})


def _cycle(graph: _Graph) -> None:
    names = [graph.queue(role) for role in ("in", *(f"stop-{number}" for number in graph.count()))]
    for source, target in zip(names, [*names[1:], names[0]], strict=True):
        graph.selector(source, {graph.chance.choice(("copy_to", "move_to")): target}, graph.condition())
        graph.selector(source, {"deliver": graph.destination("end")}, graph.chance.choice(("default", graph.condition())))


def _fan_out(graph: _Graph) -> None:
    door = graph.queue("in", plain=True)
    for number in range(graph.chance.choice((2, 5, 20)) if graph.most == MOST else graph.most):
        graph.recipient(door, f"copy-{number}", "copy_to", graph.condition())


def _random(graph: _Graph) -> None:
    names = [graph.queue(f"q{number}") for number in graph.count()]
    for _ in range(graph.chance.randint(1, 2 * graph.most)):
        source, target, end = graph.chance.choice(names), graph.chance.choice(names), graph.destination("end")
        graph.selector(source, graph.chance.choice((
            {"copy_to": target}, {"move_to": target}, {"bounce_to": target}, {"deliver": end}, {"deliver": end}, "discard",
            {"deliver": end, "queue": target}, {"move_to": {"field": "headers.to"}})), graph.condition())
    graph.selector(names[-1], {"deliver": graph.destination("end")})


SHAPES: dict[str, Callable[[_Graph], None]] = {
    "random": _random, "wolfpack": _wolfpack, "parrot": _parrot, "housecat": _housecat, "chain": _chain, "diamond": _diamond,
    "cycle": _cycle, "fan-out": _fan_out,
}
"""The shapes by name; each fills a graph."""


def drawn_topology(
    chance: Chance, shape: str | None = None, vocabulary: Vocabulary = LOAD, stores: Sequence[str] = (),
) -> Topology:
    """A topology of that shape, None: of any. Its queues are in RAM, and in stores of these types, such as `ring`.

    Each type is one store, of the same name, at a path of that name; `in_folder` says where.

    >>> drawn_topology(random.Random(3), "chain")["selectors"][-1]["do"]
    {'deliver': 'end'}
    """
    if shape is None:
        shape = chance.choice(list(SHAPES))
    if shape not in SHAPES:
        raise ValueError(f"there is no shape {shape!r}; use one of {', '.join(SHAPES)}")
    graph = _Graph(chance, vocabulary, stores)
    SHAPES[shape](graph)
    topology: Topology = {"version": 1, "queues": graph.queues, "selectors": graph.selectors}
    return topology | {"stores": {kind: {"type": kind, "path": kind} for kind in stores}} if stores else topology


def in_folder(topology: Topology, place: str) -> Topology:
    """The same with stores that lie in that folder, each at a path of its own."""
    stores = {name: {**table, "path": os.path.join(place, f"store-{number}")} if "path" in table else table
              for number, (name, table) in enumerate(topology.get("stores", {}).items())}
    return {**topology, "stores": stores} if stores else topology


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
