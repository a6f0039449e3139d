"""Single calls of an engine as strategies of Hypothesis: their arguments, drawn from a vocabulary. For your state machines.

    from hypothesis.stateful import RuleBasedStateMachine, rule
    import xump
    from xump.workloads import LOAD, TIGHT
    from xump.workloads.calls import Calls

    calls = Calls(TIGHT)

    class Machine(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.engine = xump.Engine()
            for name in TIGHT.queues:
                self.engine.create_queue(name)

        @rule(queue=calls.queues, address=calls.addresses, headers=calls.headers)
        def publish(self, queue, address, headers):
            ...

A moment (`at`, `expires`) is drawn as so many nanoseconds from now: add the time of your engine's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xump.workloads.strategies import SearchStrategy, strategies
from xump.workloads.vocabulary import NANOSECOND, TIGHT, Pool, Vocabulary

Strategy = SearchStrategy[Any]
drawn, just, some = strategies.sampled_from, strategies.just, strategies.lists

UNLIMITED: Mapping[str, Any] = {
    "limit": None, "history_limit": 0, "auto_delete": False, "dead_letter": None, "delivery_limit": None}
"""The usual properties of a queue that has none of them."""


class Calls:
    """The arguments of calls.

    >>> from hypothesis import find
    >>> find(Calls().verdicts, lambda verdict: verdict != "ack")
    'nack'
    """

    def __init__(self, vocabulary: Vocabulary = TIGHT) -> None:
        self.vocabulary = vocabulary
        """The pools that they are drawn from."""
        self._name(vocabulary)
        self._properties(vocabulary)
        self._message(vocabulary)
        self._selector(vocabulary)
        self._answer()

    def _name(self, vocabulary: Vocabulary) -> None:
        names = vocabulary.queues
        self.names = drawn(names)
        """Names of queues, whether there is one or not."""
        self.queues = drawn([*names[:4], *names[:4], *names[:4], *names, "missing"])
        """Names of queues, mostly of the first four; seldom one that never is."""
        self.destinations = drawn([None, *vocabulary.destinations, vocabulary.destinations])
        """Destinations for `take`: any, one, all by their names."""
        self.owners: Strategy = strategies.one_of(self.queues, just(("store", "ram")))
        """Whose map: a queue's, or that of the store named ram."""
        self.map_names, self.map_values = drawn(vocabulary.map_names), drawn(vocabulary.map_values)
        """Entries of maps."""
        self.map_changes: Strategy = strategies.one_of(
            strategies.dictionaries(self.map_names, self.map_values, max_size=2), self.map_names)
        """New entries, or the name of one that goes."""
        self.ids, self.indexes = strategies.integers(1, 12), strategies.integers(0, 50)
        """Ids of selectors; places in a list of deliveries, to be taken modulo its length."""

    def _properties(self, vocabulary: Vocabulary) -> None:
        self.spans, self.delays = drawn(vocabulary.spans), drawn(vocabulary.delays)
        """Seconds: of what has a time, and from now."""
        usual = _each(vocabulary.usual)
        special = _each(vocabulary.special) | {
            "retry_delay": strategies.one_of(self.delays, some(self.delays, min_size=1, max_size=3))}
        if vocabulary.rewriters:
            special["rewriter"] = drawn(vocabulary.rewriters)
        self.kept: Strategy = strategies.one_of(
            strategies.fixed_dictionaries(usual), strategies.fixed_dictionaries(usual, optional=special))
        """Properties of a queue that keeps messages. Half of these queues go by age alone, and know no time."""
        free = {name: just(value) for name, value in UNLIMITED.items()}
        self.passing: Strategy = strategies.fixed_dictionaries(free | {
            "auto_delete": usual["auto_delete"], "dead_letter": usual["dead_letter"], "transit": just(True),
            "rewriter": drawn([None, None, *vocabulary.rewriters])})
        """Of a transit queue."""
        self.waiting: Strategy = strategies.fixed_dictionaries(free | {"staged": just(True)})
        """Of a staged queue."""
        kinds = {6: self.passing, 7: self.waiting}
        self.properties: Strategy = strategies.integers(0, 7).flatmap(lambda kind: kinds.get(kind, self.kept))
        """Of any queue."""

    def _message(self, vocabulary: Vocabulary) -> None:
        self.addresses, self.bodies = drawn(vocabulary.addresses), drawn(vocabulary.bodies)
        """Of messages."""
        self.message_ids, self.replies = drawn(vocabulary.message_ids), drawn([None, None, *vocabulary.queues])
        """Message ids, and queues to reply to; mostly None."""
        self.headers: Strategy = strategies.fixed_dictionaries({}, optional=_each(vocabulary.headers))
        """None, or any of them."""
        terms = _each(vocabulary.terms)
        self.terms = _none_or_any(terms)
        """Keywords of `publish`."""
        self.row_terms = _none_or_any(
            {name: strategy for name, strategy in terms.items() if name not in ("delay", "ttl", "correlation_id")}
            | {"correlation_id": just("c")})
        """Columns of a row: no delay and no `ttl`, since a row has moments."""
        self.messages: Strategy = strategies.tuples(self.addresses, self.bodies, self.headers, self.replies, self.message_ids)
        """Messages for `publish_many`."""
        publishing = strategies.tuples(just("publish"), self.queues, self.addresses, self.headers, self.terms)
        nacking = strategies.tuples(just("nack"), self.indexes, drawn([{}, {"delay": 4 * NANOSECOND}, {"requeue": False}]))
        self.operations: Strategy = strategies.one_of(
            publishing, strategies.tuples(just("ack"), self.indexes), nacking,
            strategies.tuples(just("reject"), self.indexes),
            strategies.tuples(just("set_meta"), self.owners, self.map_names, drawn([None, *vocabulary.map_values])))
        """In a transaction: the name of the operation, then its arguments."""

    def _selector(self, vocabulary: Vocabulary) -> None:
        self.conditions, self.actions = drawn(vocabulary.conditions), drawn(vocabulary.actions)
        """Of selectors."""
        self.credits, self.starts = drawn(vocabulary.credits), drawn(vocabulary.starts)
        """Credit, and where it starts."""
        self.windows = drawn(vocabulary.windows)
        """Names of windows."""

    def _answer(self) -> None:
        self.verdicts: Strategy = drawn([
            "ack", "ack", "ack", "nack", "drop", "reject", ("nack", {"delay": 5 * NANOSECOND}), ("nack", {"delay": 0}),
            ("extend", {"seconds": 9 * NANOSECOND}), ("reply", {"body": b"r"})])
        """The answer to a delivery: a method, with its arguments if it has any; or `drop`: nothing, it is forgotten."""


def _each(pools: Mapping[str, Pool]) -> dict[str, Strategy]:
    return {name: drawn(pool) for name, pool in pools.items()}


def _none_or_any(optional: dict[str, Strategy]) -> Strategy:
    return strategies.one_of(just({}), strategies.fixed_dictionaries({}, optional=optional))
