"""Selectors that the program has put on the queues of exchanges, beside those of the broker, which are the bindings.

Messages that go straight from a client into the queue of an exchange meet them there. A message that the broker routes itself
does not, since it enters the queues that bindings lead to. So the broker has to know of such selectors: if there are any on the
way of a message, the message goes by the queue of its exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xump.broker.exchange_graph import PREFIX, ExchangeGraph
from xump.broker.exchanges import reached

if TYPE_CHECKING:
    from xump.broker.exchanges import Exchange
    from xump.engine import Engine
    from xump.selector import Selector
    from xump.watch import Change


class ProgramSelectors:
    """The selectors of one engine that are on queues of exchanges, and no bindings."""

    def __init__(self, engine: Engine, graph: ExchangeGraph, exchanges: dict[str, Exchange]) -> None:
        self._engine = engine
        self._graph = graph
        self._exchanges = exchanges
        self._all: dict[int, str] = {}          # selectors of exchanges, those of the broker too: the exchange of each by id
        self._changes = 0                       # so often they have changed
        self._found: frozenset[str] = frozenset()
        self._found_at = 0                      # after how many changes
        self._answers: dict[str, bool] = {}     # of each exchange, whether such selectors are on the way
        self._answers_at = (0, 0)               # after how many changes, of selectors and of the graph

    def look(self) -> None:
        """Find those that are there already."""
        for selector in list(self._engine.selectors.values()):
            self._came(selector)

    def tell(self, changes: list[Change]) -> None:
        """Some thread's call has changed the graph."""
        for one in changes:
            if one.what == "selector" and one.came:
                self._came(one.thing)           # type: ignore[arg-type]
            elif one.what == "selector":
                self._went(one.thing.id)        # type: ignore[union-attr]

    def _came(self, selector: Selector) -> None:
        if selector.source.name.startswith(PREFIX):
            self._all[selector.id] = selector.source.name.removeprefix(PREFIX)
            self._changes += 1

    def _went(self, number: int) -> None:
        self._graph.own.discard(number)
        if self._all.pop(number, None) is not None:
            self._changes += 1

    def exchanges(self) -> frozenset[str]:
        """The exchanges that have such selectors. In the broker's loop, where all bindings are known that are there."""
        changes = self._changes
        if self._found_at != changes:
            own = self._graph.own
            self._found = frozenset(name for number, name in list(self._all.items()) if number not in own)
            self._found_at = changes
        return self._found

    def are_on_the_way(self, exchange: Exchange) -> bool:
        """Whether a message may meet one on its way from this exchange."""
        having = self.exchanges()
        if not having or not exchange.name:     # the queue of the default exchange has dead letters only
            return False
        state = self._found_at, self._graph.generation
        if self._answers_at != state:
            self._answers_at = state
            self._answers.clear()
        if exchange.name not in self._answers:
            self._answers[exchange.name] = any(one.name in having for one in reached(exchange, self._exchanges))
        return self._answers[exchange.name]
