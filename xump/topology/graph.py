"""The graph of an engine as plain values, all of one moment: what a drawing of it shows.

`xump.topology.drawing` writes them as Mermaid and as Graphviz' text, `xump.topology.picture` as SVG.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xump.conditions import All, Condition, Where
from xump_ext.infinite import INFINITE, Infinite

if TYPE_CHECKING:
    from xump.actions import Action
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector
    from xump.types import Credit, QueueStats, SelectorStats, Stats

CHARS_MAX = 60
"""A longer name or condition is cut in a label, and ends in an ellipsis."""


@dataclass
class QueueShown:
    """A queue in a drawing."""

    name: str
    """Its name."""
    properties: list[str]
    """The properties that differ from the default, as texts."""
    counts: list[str]
    """Its counts, as texts; none if the drawing has no counts."""
    entered: int
    """How many messages have entered it."""


@dataclass
class SelectorShown:
    """A selector in a drawing."""

    id: int
    """Its number."""
    name: str | None
    """Its name."""
    source: str
    """The name of its queue."""
    conditions: list[str]
    """The conditions that `&` has joined, as texts."""
    action: Action
    """Its action."""
    credit: Credit
    """Its credit (prefetch window)."""
    ack_timeout: float | None
    """In how many seconds its deliveries must be answered, or None."""
    rank: int
    """Its rank."""
    ahead: int | None
    """How many messages it offers ahead at most, or None."""
    window: str | None
    """The name of the window that it shares, or None."""
    enabled: bool
    """Whether it takes and copies."""
    count: int
    """How many messages it has copied or taken; 0 if the drawing has no counts."""
    numbers: SelectorStats
    """Its counters and gauges."""


@dataclass
class DeadLetters:
    """A path of dead letters in a drawing."""

    source: str
    """The name of the queue that they come from."""
    target: str
    """The name of the dead letter queue, which may not exist."""
    reasons: list[str]
    """How many messages there were for each reason, as texts."""
    count: int
    """How many messages went along it."""


@dataclass
class Graph:
    """The queues, selectors and paths of dead letters of an engine."""

    queues: dict[str, QueueShown]
    """The queues by name, in the order of the engine."""
    selectors: list[SelectorShown]
    """The selectors, in the order of their numbers."""
    dead_letters: list[DeadLetters]
    """The paths of dead letters."""


def extract(engine: Engine, counts: bool) -> Graph:
    """Read the graph of an engine, without its staged queues. Without counts it is that of an engine which was never used."""
    engine._check_open()
    with engine._graph_lock:        # so that queues, selectors and counts are of the same moment
        stats = engine.stats()
        queues = {name: QueueShown(name, _properties(queue, counts), _counts(stats["queues"][name]) if counts else [],
                                   stats["queues"][name]["entered"]) for name, queue in list(engine.queues.items())
                  if not queue.staged}
        selectors = [_selector(engine.selectors[id], stats["selectors"][id], counts) for id in sorted(engine.selectors)]
        return Graph(queues, selectors, list(_dead_letters(engine, stats, counts)))


def _properties(queue: Queue, counts: bool) -> list[str]:
    properties = [] if queue.store.name == "ram" else [f"in {shortened(queue.store.name, CHARS_MAX)}"]
    if queue.limit is not None:
        properties.append(f"limit {queue.limit:,}")
    if queue.history_limit is None or (queue.history_limit and not counts):
        properties.append("keeps all history" if queue.history_limit is None else f"keeps {queue.history_limit:,}")
    if queue.limit_bytes is not None:
        properties.append(f"limit {queue.limit_bytes:,} bytes")
    if queue.when_full != "refuse":
        properties.append("drops the oldest" if queue.when_full == "drop_oldest" else "drops to fit")
    if queue.unmatched == "keep":
        properties.append("keeps the unmatched")
    if queue.transit:
        properties.append("transit")
    if queue.priority is not None:
        properties.append(f"priority {queue.priority}")
    if queue.group is not None:
        properties.append(f"by {shortened(queue.group.name, CHARS_MAX)}")
    if queue.retry_delay is not None:
        properties.append(f"retry after {', '.join(map(str, queue.retry_delay))} s")
    if queue.ttl is not None:
        properties.append(f"ttl {queue.ttl} s")
    if queue.dedup is not None:
        properties.append(f"dedup {queue.dedup} s")
    if queue.delivery_limit is not None:
        properties.append(f"delivered at most {queue.delivery_limit:,} times")
    if queue.rewriter is not None:
        name = queue.rewriter if isinstance(queue.rewriter, str) else queue.rewriter[0]
        properties.append(f"dead letters by {shortened(name, CHARS_MAX)}")
    if queue.auto_delete:
        properties.append("deletes itself")
    if queue.held and counts:
        properties.append("held")
    return properties


def _counts(numbers: QueueStats) -> list[str]:
    """How many messages entered, and how many of them are there or were dropped."""
    texts = [f"{numbers['entered']:,} entered"]
    for what, count in (("ready", numbers["ready"]), ("delayed", numbers["delayed"]), ("outstanding", numbers["outstanding"]),
                        ("in history", numbers["history"]), ("entering", numbers["entering"]),
                        ("dropped", sum(numbers["dropped"].values()))):
        if count:
            texts.append(f"{count:,} {what}")
    return texts


def _selector(selector: Selector, numbers: SelectorStats, counts: bool) -> SelectorShown:
    count = numbers["copied"] + numbers["served"] if counts else 0      # a selector does one or the other
    return SelectorShown(selector.id, selector.name, selector.source.name, condition_texts(selector.when), selector.do,
                         selector.credit, selector.ack_timeout, selector.rank, selector.ahead,
                         None if selector.window is None else selector.window.name, selector.enabled, count, numbers)


def _dead_letters(engine: Engine, stats: Stats, counts: bool) -> Iterator[DeadLetters]:
    """The path to a queue's own dead letter queue is always there. The path to the engine's, which is open to every queue, is
    there if messages went along it.
    """
    for queue in list(engine.queues.values()):
        if queue.staged:
            continue
        numbers = stats["queues"][queue.name]["dead_lettered"] if counts else {}
        went = [f"{count:,} {reason}" for reason, count in numbers.items()], sum(numbers.values())
        to_own = queue.dead_letter in engine.queues or engine.dead_letter is None      # a queue that does not exist gets none
        if queue.dead_letter is not None:
            yield DeadLetters(queue.name, queue.dead_letter, *(went if to_own else ([], 0)))
        if numbers and engine.dead_letter is not None and engine.dead_letter != queue.name and not to_own:
            yield DeadLetters(queue.name, engine.dead_letter, *went)


# ---- texts

def credit_text(credit: int | Infinite) -> str:
    """The credit that a selector was created with.

    >>> credit_text(10_000), credit_text(INFINITE)
    ('credit 10,000', 'credit INFINITE')
    """
    return f"credit {credit!r}" if credit is INFINITE else f"credit {credit:,}"


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
