"""The material of workloads: names, conditions, actions, properties of queues and terms of messages, as pools to draw from.

Graphs (`shapes`), messages (`traffic`) and single calls (`calls`) draw from the same pools, so that they meet. A value that
should come more often stands in its pool more often. There are two vocabularies:

    LOAD    as a program has it: seconds and hours, room for a hundred; what `bench`, `play` and `workloads` use
    TIGHT   as a test wants it: few names, tiny limits, nanoseconds, so that much is full, falls due, and comes twice

>>> from dataclasses import replace
>>> from random import Random
>>> from xump.workloads import drawn_topology
>>> own = replace(LOAD, conditions=[match("eq", "audit")])
>>> drawn_topology(Random(1), "fan-out", own)["selectors"][0]["when"]
{'match': 'eq', 'pattern': 'audit'}
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field as entry
from functools import cached_property
from typing import Any

from xump.actions import Action, Field, bounce_to, copy_to, deliver, discard, field, move_to
from xump.conditions import All, Condition, Where, always, default, match, overflow, where
from xump.credit import INFINITE, Infinite
from xump_ext.message.message import Message

NANOSECOND = 1e-9
"""In seconds: the moments of `TIGHT` lie close together."""
WORDS = ("a", "b", "c", "d", "e")
"""Of which addresses of `LOAD` are made."""

Pool = Sequence[Any]


@dataclass(frozen=True)
class Vocabulary:
    """Pools to draw from. Take `LOAD` or `TIGHT`, and `dataclasses.replace` what should be yours."""

    conditions: Sequence[Condition]
    """Of selectors."""
    credits: Sequence[int | Infinite]
    """Of selectors that consume."""
    headers: Mapping[str, Pool]
    """Names of headers, and what values each may have."""
    bodies: Sequence[bytes]
    """Of messages."""
    usual: Mapping[str, Pool] = entry(default_factory=dict)
    """Properties that every queue has."""
    special: Mapping[str, Pool] = entry(default_factory=dict)
    """Properties that a few queues have."""
    rarity: float = 0.1
    """How often a queue of a drawn graph has each of the special ones."""
    queues: Sequence[str] = ()
    """Names of queues; none: graphs name them after the place that they have in the shape."""
    destinations: Sequence[str] = ()
    """Names of destinations; none: a graph names them as its queues."""
    addresses: Sequence[str] = ()
    """Of messages; none: what fits the graph."""
    message_ids: Sequence[str | None] = (None,)
    """Of messages."""
    actions: Sequence[Action] = ()
    """Of selectors that are created one by one; graphs have those of their shape."""
    starts: Pool = ("current",)
    """Where selectors that copy start."""
    windows: Sequence[str] = ()
    """Names of windows that selectors share."""
    terms: Mapping[str, Pool] = entry(default_factory=dict)
    """Keywords of `publish` that messages may have."""
    spans: Sequence[float] = ()
    """Seconds, for what has a time."""
    delays: Sequence[float] = ()
    """Seconds from now."""
    rewriters: Pool = ()
    """Names of rewriters of dead letters, with their arguments; they must be registered."""
    map_names: Sequence[str] = ()
    """Names in the maps of stores and queues."""
    map_values: Sequence[bytes | int] = ()
    """Values there; a number stands for so many bytes."""

    @cached_property
    def graph_conditions(self) -> Sequence[Condition]:
        """Those that any number of selectors of a queue may have, and that TOML can hold."""
        return [one for one in self.conditions if one not in (default, overflow) and not _has_function(one)]


def _has_function(condition: Condition) -> bool:
    if isinstance(condition, All):
        return any(_has_function(part) for part in condition.parts)
    return isinstance(condition, Where) and callable(condition.source)


# ---- load

def _of_a_word(word: str, number: int) -> list[Condition]:
    """An address, a topic, a prefix, a header, a filter, or any message."""
    return [
        always, always, match("eq", word), match("topic", f"{word}.#"), match("topic", f"*.{word}"),
        match("topic", f"#.{word}.#"), match("prefix", word), match("eq", word, field="headers.to"), where(f"n > {number}"),
        where({"n": number}), where(f"to LIKE '%{word}%' AND n BETWEEN 2 AND 7")]


LOAD = Vocabulary(
    conditions=[condition for number, word in enumerate(WORDS) for condition in _of_a_word(word, 2 * number)],
    credits=[1, 1, 2, 10, 100, INFINITE],
    headers={"n": range(10), "to": WORDS},
    bodies=[bytes(size) for size in (0, 10, 100, 100, 1_000)],
    special={
        "priority": [3], "group": [field("address")], "history_limit": [1, 10], "limit": [1, 10, 100], "ttl": [3_600.0],
        "dedup": [60.0]},
)
"""Of programs as they are."""


# ---- tight

def even(message: Message) -> bool:
    """A condition that is a function."""
    n = message.headers.get("n", 1)
    return isinstance(n, int) and n % 2 == 0


def fails(message: Message) -> bool:
    """A condition that is a function, and raises for some."""
    if message.headers["n"] == 3:
        raise ValueError("three")
    return True


_QUEUES = ["q0", "q1", "q2", "q3", "q4"]
_DESTINATIONS = ["d0", "d1", "q1"]
_FIELDS = [field(name) for name in ("address", "reply_to", "destination", "headers.to")]
_TARGETS: list[str | Field] = [*_QUEUES, *_FIELDS]
_DELAYS = [delay * NANOSECOND for delay in (0, 2, 6, 300)]
_SPANS = [span * NANOSECOND for span in (0, 1, 3, 8, 20, 400)]
_MOMENTS = (-3, 0, 1, 4, 12, 300)

TIGHT = Vocabulary(
    queues=_QUEUES,
    destinations=_DESTINATIONS,
    addresses=["", "a", "a.b", "a.b.c", "b", "q1", "q2", "q3", "nowhere"],
    headers={"n": range(5), "to": _QUEUES},
    bodies=[b"", b"m", b"mmm"],
    message_ids=[None, None, "m1", "m2"],
    conditions=[
        always, always, always, default, overflow,
        match("eq", "a"), match("eq", "b"), match("topic", "a.#"), match("topic", "*.b"), match("prefix", "a."),
        match("eq", "q2", field="reply_to"), match("eq", "q1", field="headers.to"), match("topic", "#", field="headers.to"),
        where("n > 2"), where("n = 1"), where("to IS NOT NULL AND n < 4"), where({"n": 2}), where({"n": [1, 3]}),
        where("sys.address = 'b'"), where("sys.delivery_count > 0"), where(even), where(fails),
        match("topic", "a.*") & where("n > 1"), match("eq", "a") & where(even), where({"n": 1}) & where("to = 'q2'")],
    actions=[
        *(copy_to(target) for target in _TARGETS), *(move_to(target) for target in _TARGETS),
        *(bounce_to(target) for target in _TARGETS), *[deliver(name) for name in _DESTINATIONS] * 2,
        *(deliver(name) for name in _FIELDS), *(deliver("d0", queue=target) for target in _TARGETS),
        deliver(field("headers.to"), queue="q3"), discard, discard],
    credits=[0, 1, 1, 2, 3, INFINITE],
    starts=["current", "current", "tail", "head", 2, datetime.datetime(1970, 1, 1, 0, 0, 0, 11, tzinfo=datetime.UTC)],
    windows=["w0", "w1"],
    usual={
        "limit": [None, None, None, 0, 1, 2, 3], "history_limit": [0, 0, 0, 1, 3, None], "auto_delete": [False] * 6 + [True],
        "dead_letter": [None, None, *_QUEUES], "delivery_limit": [None, None, 1, 2]},
    special={
        "ttl": _SPANS, "retry_delay": [*_DELAYS, _DELAYS[:2], _DELAYS[:3]], "priority": [1, 5],
        "group": [field("address"), field("headers.to")], "dedup": _SPANS, "dedup_limit": [1, 2], "limit_bytes": [0, 1, 4],
        "when_full": ["drop_oldest", "drop_to_fit"], "unmatched": ["keep"]},
    rarity=0.2,
    terms={
        "delay": _DELAYS, "at": _MOMENTS, "ttl": _SPANS, "expires": _MOMENTS, "priority": [1, 7],
        "correlation_id": ["c", "request-1"]},
    spans=_SPANS,
    delays=_DELAYS,
    map_names=["m", "n", "größe"],
    map_values=[b"", b"1", b"22", 40_000],      # two of the last are more than a map may hold
)
"""Of tests: little of everything. Moments (`at`, `expires`) are so many nanoseconds from now."""
