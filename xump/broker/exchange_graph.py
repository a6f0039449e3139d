"""Exchanges in the engine: an exchange is a transit queue, a binding is a selector that copies.

    exchange X                  transit queue `amq.x/X`
    binding to queue Q          selector of `amq.x/X` that copies to `Q`
    binding to exchange Y       selector of `amq.x/X` that copies to `amq.x/Y`
    binding by headers          as many selectors as it has values to look up: `header_bindings.py`
    alternate exchange A        the `default` selector of `amq.x/X`, which copies to `amq.x/A`
    the default exchange        none: what is published there goes into the queue of that name; for dead letters `amq.x/`

An exchange has its queue from the first binding on: before, what is published there goes nowhere. A message reaches a queue once,
however many ways lead there, and exchanges that are bound in a circle end, since a message enters no queue twice in one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xump.actions import copy_to, field
from xump.broker.envelope import headers_of, table_of, unpacked
from xump.broker.exchanges import STANDARD, Binding, Exchange, topic_matches
from xump.broker.header_bindings import HeaderBindings
from xump.conditions import always, default, match, where
from xump.errors import InvalidPattern
from xump_ext.amqp.dead_letters import EXCHANGES

if TYPE_CHECKING:
    from xump.broker.tables import Table
    from xump.conditions import Condition
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector
    from xump_ext.message.message import Message

PREFIX = EXCHANGES
"""Begins the name of an exchange's queue. No client may declare such a queue."""


class ExchangeGraph:
    """The exchanges of a virtual host, in its engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queues: dict[str, Queue] = {}
        self._selectors: dict[Binding, list[Selector]] = {}
        self._by_headers: dict[str, HeaderBindings] = {}
        self._headers_of: dict[Binding, HeaderBindings] = {}
        self._alternates: dict[str, str] = {}
        self._alternate_of: dict[str, dict[str, None]] = {}     # by an exchange: those that name it as their alternate
        self._declared = set(STANDARD)
        self.own: set[int] = set()
        """The ids of its selectors: others on queues of exchanges are the program's."""
        self.generation = 0
        """Changes when an exchange gets its queue, or loses it, and with bindings between exchanges."""

    def queue_of(self, exchange: str) -> Queue | None:
        """The queue of an exchange; None: it has none yet."""
        return self._queues.get(exchange)

    def _made(self, exchange: str) -> Queue:
        found = self._queues.get(exchange)
        if found is None:
            self.generation += 1
            found = self._queues[exchange] = self._engine.create_queue(PREFIX + exchange, transit=True)
        return found

    def needs_default(self) -> None:
        """Dead letters go to the default exchange: it has a queue for these, which copies into the queue of that name."""
        with self._engine.building():
            queue = self._engine.create_queue(PREFIX, transit=True)
            self._create_selector(queue, when=always, do=copy_to(field("address")), name=PREFIX)

    def declared(self, exchange: Exchange) -> None:
        """An exchange was declared. It may be the alternate of others, which knew its name before."""
        self._declared.add(exchange.name)
        ways = [(name, exchange.name) for name in self._alternate_of.get(exchange.name, ())]
        if exchange.alternate is not None:
            self._alternates[exchange.name] = exchange.alternate
            self._alternate_of.setdefault(exchange.alternate, {})[exchange.name] = None
            if exchange.alternate in self._declared:
                ways.append((exchange.name, exchange.alternate))
        with self._engine.building():
            for name, alternate in ways:
                self._create_selector(self._made(name), when=default, do=copy_to(self._made(alternate)))

    def deleted(self, exchange: str) -> None:
        """An exchange was deleted, with the bindings from it and to it."""
        self._declared.discard(exchange)
        alternate = self._alternates.pop(exchange, None)
        if alternate is not None:
            others = self._alternate_of[alternate]
            del others[exchange]
            if not others:
                del self._alternate_of[alternate]
        self._by_headers.pop(exchange, None)
        queue = self._queues.pop(exchange, None)
        if queue is not None:
            self.generation += 1
            self._engine.delete_queue(queue)

    def bound(self, source: Exchange, binding: Binding) -> None:
        """A binding has come. If it raises, it has not."""
        with self._engine.building():
            target = binding.destination
            self.generation += target.kind == "exchange"
            to = self._made(target.name) if target.kind == "exchange" else self._engine.queues[target.name]
            made = self._made(source.name)
            selectors = self._selectors[binding] = []
            try:
                selectors.extend(
                    self._create_selector(made, when=when, do=copy_to(to)) for when in self._conditions(source, binding))
            except BaseException:
                self.unbound(binding)
                raise

    def _create_selector(self, queue: Queue, **given: Any) -> Selector:
        made = self._engine.create_selector(queue, **given)
        self.own.add(made.id)
        return made

    def unbound(self, binding: Binding) -> None:
        """A binding has gone; its selector may have gone before, with its queue."""
        self.generation += binding.destination.kind == "exchange"
        for selector in self._selectors.pop(binding, ()):
            self._engine.delete_selector(selector)
        headers = self._headers_of.pop(binding, None)
        if headers is not None:
            headers.gone(binding)

    def _conditions(self, source: Exchange, binding: Binding) -> list[Condition]:
        """A message of the exchange is for the binding if one of these holds."""
        if source.routes != "headers":
            return [condition(source, binding)]
        headers = self._headers_of[binding] = self._by_headers.setdefault(source.name, HeaderBindings(headers_in))
        return headers.conditions(binding, binding.arguments)


def condition(source: Exchange, binding: Binding) -> Condition:
    """The messages of an exchange that a binding is for, by their routing keys."""
    if source.routes == "direct":
        return match("eq", binding.key)
    if source.routes == "topic":
        try:
            return match("topic", binding.key)
        except InvalidPattern:          # here `#` within a word stands for itself
            return where(lambda message: topic_matches(binding.key, message.address))
    return always


def headers_in(message: Message) -> Table:
    """The table of headers of a message, whoever published it."""
    came = unpacked(message)
    return table_of(message) if came is None else headers_of(came[1])
