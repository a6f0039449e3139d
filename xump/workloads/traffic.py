"""Messages that fit a topology: its patterns say which addresses there are, its filters which headers, a profile how often each.

    uniform         each address as often as any other; a tenth matches nothing
    zipf            the n-th address 1/n times as often as the first, as names in real traffic are
    adversarial     what is dear to match: long addresses of one word, and all headers that any filter reads
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xump.workloads.shapes import Chance, Topology
from xump.workloads.vocabulary import LOAD, WORDS, Vocabulary

PROFILES = ("uniform", "zipf", "adversarial")
POOL = 4_096
"""So many messages are drawn at most; then they come again."""
LONGEST = 40
"""Words of an address that is meant to be dear."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_TEXT = re.compile(r"'((?:[^']|'')*)'")
_KEYWORDS = frozenset(["AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL", "ESCAPE", "TRUE", "FALSE"])


class Content(NamedTuple):
    """The parts of a message, in the order in which `publish` takes it."""

    address: str
    """The address."""
    body: bytes
    """So many zeros."""
    headers: dict[str, Any]
    """Names and values that filters of the graph read."""


class Traffic:
    """Draws messages for a topology; `size` is that of all bodies, None: of many sizes. Headers and bodies that no filter asks
    for come from the vocabulary.

    >>> import random
    >>> topology = {"selectors": [{"source": "q", "when": {"match": "topic", "pattern": "flight.*.#"}, "do": "discard"}]}
    >>> next(Traffic(topology, random.Random(2), "uniform")).address.partition(".")[0]
    'flight'
    """

    def __init__(self, topology: Topology, chance: Chance, profile: str = "zipf", size: int | None = None,
                 pool: int = POOL, vocabulary: Vocabulary = LOAD) -> None:
        if profile not in PROFILES:
            raise ValueError(f"there is no profile {profile!r}; use one of {', '.join(PROFILES)}")
        self.profile = profile
        """One of `PROFILES`."""
        self.topology = topology
        """The graph that the messages fit."""
        self._chance = chance
        self._size = size
        self._bodies = vocabulary.bodies
        self._values: dict[str, list[Any]] = {name: list(values) for name, values in vocabulary.headers.items()}
        self._known = frozenset(self._values)
        self._values.setdefault("to", []).extend(topology.get("queues", {}))
        self._addresses = self._all_addresses()
        self._weights = [1 / (rank + 1) if profile == "zipf" else 1.0 for rank in range(len(self._addresses))]
        self._drawn = [
            self._content(address) for address in chance.choices(self._addresses, self._weights, k=min(pool, POOL) or 1)]
        self._next = itertools.cycle(self._drawn)

    def __iter__(self) -> Iterator[Content]:
        return self

    def __next__(self) -> Content:
        return next(self._next)

    def _all_addresses(self) -> list[str]:
        found: list[str] = []
        for selector in self.topology.get("selectors", []):
            for condition in _parts(selector["when"]):
                field = condition.get("field", "address")
                texts = [self._filled(condition) for _ in range(8)] if "pattern" in condition else []
                if field == "address":
                    found += texts
                elif field.startswith("headers."):
                    self._values.setdefault(field.removeprefix("headers."), []).extend(texts)
                self._learn(condition.get("where"))
        found = list(dict.fromkeys(found)) or [*WORDS, *(f"{one}.{other}" for one in WORDS for other in WORDS)]
        self._chance.shuffle(found)
        if self.profile == "adversarial":
            return [*(".".join(itertools.repeat(word, LONGEST)) for word in WORDS), *found]
        return [*found, *(f"unmatched.{number}" for number in range(len(found) // 10 + 1))]

    def _filled(self, condition: Mapping[str, Any]) -> str:
        """An address that the pattern matches; the operators of plug-ins are taken for equality."""
        pattern, chance = str(condition["pattern"]), self._chance
        if condition.get("match") == "prefix":
            return f"{pattern}{chance.choice(WORDS)}"
        if condition.get("match") != "topic":
            return pattern
        words: list[str] = []
        for word in pattern.split("."):
            if word == "#":
                words += chance.choices(WORDS, k=LONGEST if self.profile == "adversarial" else chance.randint(0, 2))
            else:
                words.append(chance.choice(WORDS) if word == "*" else word)
        return ".".join(words)

    def _learn(self, filter: Any) -> None:
        """Names and values of headers: those of a dict, and the names in a text with its literals."""
        if isinstance(filter, Mapping):
            for name, value in filter.items():
                self._values.setdefault(name, []).extend(value if isinstance(value, list) else [value])
        elif isinstance(filter, str):
            literals: list[Any] = [text.replace("''", "'") for text in _TEXT.findall(filter)]
            rest = _TEXT.sub("", filter)
            literals += [int(number) + step for number in re.findall(r"(?<![\w.])\d{1,15}(?![\w.])", rest) for step in (-1, 0, 1)]
            for name in _NAME.findall(re.sub(r"\bsys\.\w+", "", rest)):
                if name.upper() not in _KEYWORDS and name not in self._known:
                    self._values.setdefault(name, []).extend(literals or [1])

    def _content(self, address: str) -> Content:
        chance = self._chance
        share = 1.0 if self.profile == "adversarial" else 0.8
        headers = {name: chance.choice(values) for name, values in self._values.items()
                   if values and not name.startswith("xump_") and chance.random() < share}
        headers = {name: value for name, value in headers.items() if isinstance(value, (bool, int, float, str, bytes))}
        return Content(address, chance.choice(self._bodies) if self._size is None else bytes(self._size), headers)


def _parts(when: Any) -> list[Mapping[str, Any]]:
    if isinstance(when, Mapping):
        return list(when["all"]) if "all" in when else [when]
    return []


def publishing_terms(topology: Topology, queue: str, chance: Chance) -> dict[str, Any]:
    """Keywords of `publish` that mean something in that queue: a priority where messages have one."""
    levels = topology.get("queues", {}).get(queue, {}).get("priority")
    return {"priority": chance.randint(0, levels)} if isinstance(levels, int) else {}
