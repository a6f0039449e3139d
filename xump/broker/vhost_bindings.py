"""The exchanges and bindings of a virtual host: how they come and go, in memory and in the maps of the store.

A new exchange or binding is in the engine first, and in a map after that: one that the engine refuses must not stand in the
store, where the next start would find it. Those that end leave the maps first, in one transaction, and memory after that. So a
change that the store has no room for is not made. Only those that end because a queue has gone cannot be refused: the store
forgets them later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from xump.broker import keeping
from xump.broker.exchange_graph import ExchangeGraph
from xump.broker.exchanges import Binding, Destination, Exchange, Key
from xump.broker.tables import Table, encode_table
from xump.errors import StoreFull

if TYPE_CHECKING:
    from xump.broker.queues import BrokerQueue
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.store_types import Store

logger = logging.getLogger("xump")

AGAIN_SECONDS = 5.0
"""After so long a store is asked again to forget exchanges that have gone."""


class Place(NamedTuple):
    """Where a binding is kept."""

    owner: Queue | Store
    """Whose map it is in."""
    name: str
    """Its name there."""
    value: bytes
    """The binding that stands there."""


class VhostBindings:
    """The exchanges of a virtual host and their bindings."""

    def __init__(
        self, engine: Engine, store: str, exchanges: dict[str, Exchange], queues: dict[str, BrokerQueue], graph: ExchangeGraph
    ) -> None:
        self._engine = engine
        self._store: Store | None = None if store == "ram" else engine.stores[store]
        self._exchanges = exchanges
        self._queues = queues
        self._graph = graph
        self._to: dict[Destination, dict[tuple[Exchange, Key], None]] = {}      # the bindings that lead there
        self._unforgotten: set[str] = set()     # exchanges that have gone, and are in the map of the store yet

    # ---- what outlives the process

    def keeps(self, exchange: Exchange) -> bool:
        """Whether the exchange outlives the process."""
        return exchange.durable and self._store is not None

    def read_exchanges(self) -> None:
        """Find the exchanges of the store again, and the bindings between them."""
        if self._store is None:
            return
        for exchange in keeping.read_exchanges(self._store.meta):
            self._exchanges[exchange.name] = exchange
            self._graph.declared(exchange)
        self._read(self._store.meta, None)

    def read_queue(self, queue: Queue) -> None:
        """Find the bindings to a queue again."""
        self._read(queue.meta, queue.name)

    def _read(self, kept: keeping.Map, queue: str | None) -> None:
        for one in keeping.read_bindings(kept):
            source = self._exchanges.get(one.source)
            destination = Destination("queue", queue) if queue is not None else Destination("exchange", one.exchange or "")
            if source is None or source.serial != one.serial or (queue is None and destination.name not in self._exchanges):
                del kept[one.name]
            else:
                self._add(source, Binding(destination, one.key, one.arguments))

    def _place(self, source: Exchange, destination: Destination, key: str, arguments: Table) -> Place | None:
        """Where a binding is kept; None: nowhere, since one of its ends is not durable."""
        if not source.durable or self._store is None:
            return None
        owner: Queue | Store = self._store
        if destination.kind == "exchange":
            if not self._exchanges[destination.name].durable:
                return None
            return Place(owner, *keeping.binding(source, key, arguments, destination.name))
        queue = self._queues[destination.name]
        if not queue.stored or queue.handle.store is not self._store:
            return None
        return Place(queue.handle, *keeping.binding(source, key, arguments, None))

    def _forget_kept(self, exchanges: list[Exchange], place: Place | None = None) -> None:
        """Take exchanges, and a binding, out of the maps. Raises `StoreFull` if there is no room for the smaller maps: then
        nothing has changed."""
        if self._store is None:
            return
        names = self._unforgotten.difference(self._exchanges) | {one.name for one in exchanges if one.durable}
        gone = keeping.names_of(self._store.meta, names) if names else []
        if gone or place is not None:
            with self._engine.transaction() as tx:
                for name in gone:
                    tx.set_meta(self._store, name, None)
                if place is not None and place.name not in gone:
                    tx.set_meta(place.owner, place.name, None)
        self._unforgotten.clear()

    # ---- changes

    def declare(self, exchange: Exchange) -> None:
        """Add an exchange. If it raises, nothing has changed."""
        try:
            self._graph.declared(exchange)
            if self._store is not None and exchange.durable:
                exchange.serial = keeping.new_serial()
                keeping.keep_exchange(self._store.meta, exchange)
        except BaseException:
            self._graph.deleted(exchange.name)
            raise
        self._exchanges[exchange.name] = exchange

    def delete(self, exchange: Exchange) -> None:
        """Remove an exchange, the bindings from it and to it, and what goes with those."""
        gone = {Destination("exchange", exchange.name)}
        exchanges = [exchange, *self._orphans(gone)]
        self._forget_kept(exchanges)
        self._remove(exchanges, gone)

    def bind(self, exchange: Exchange, destination: Destination, key: str, arguments: Table) -> bool:
        """Bind a queue or an exchange to an exchange. Returns whether that is kept. If it raises, nothing has changed."""
        place = self._place(exchange, destination, key, arguments)
        binding = Binding(destination, key, arguments)
        is_new = self._add(exchange, binding)
        if place is not None:
            try:
                keeping.keep(place.owner.meta, place.name, place.value)
            except BaseException:
                if is_new:
                    self._drop(exchange, _key(destination, key, arguments))
                raise
        return place is not None

    def _add(self, source: Exchange, binding: Binding) -> bool:
        """Add a binding to memory and to the engine. False: it was there."""
        where = _key(binding.destination, binding.key, binding.arguments)
        if not source.bind(where, binding):
            return False
        try:
            self._graph.bound(source, binding)
        except BaseException:
            source.unbind(where)
            raise
        self._to.setdefault(binding.destination, {})[source, where] = None
        return True

    def _drop(self, source: Exchange, where: Key) -> None:
        """Remove a binding from memory and from the engine."""
        self._graph.unbound(source.bindings[where])
        source.unbind(where)
        others = self._to[where[0]]
        del others[source, where]
        if not others:
            del self._to[where[0]]

    def unbind(self, source: str, destination: Destination, key: str, arguments: Table) -> bool:
        """Remove a binding; an exchange with auto-delete goes with its last one. Returns whether the binding was kept."""
        exchange = self._exchanges.get(source)
        where = _key(destination, key, arguments)
        if exchange is None or where not in exchange.bindings:
            return False
        place = self._place(exchange, destination, key, arguments)
        exchanges, gone = [], set()
        if exchange.auto_delete and len(exchange.bindings) == 1:
            gone = {Destination("exchange", source)}
            exchanges = [exchange, *self._orphans(gone)]
        self._forget_kept(exchanges, place)
        self._drop(exchange, where)
        self._remove(exchanges, gone)
        return place is not None

    def queue_gone(self, name: str) -> None:
        """A queue has gone: so do the bindings to it, which its map had, and exchanges with auto-delete that have no other."""
        gone = {Destination("queue", name)}
        exchanges = self._orphans(gone)
        try:
            self._forget_kept(exchanges)
        except StoreFull:
            self._unforgotten |= {one.name for one in exchanges if one.durable}
            self._ask_again()
        self._remove(exchanges, gone)

    def _ask_again(self) -> None:
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._forget_again)

    def _forget_again(self) -> None:
        if self._unforgotten and not self._engine.closed:
            try:
                with self._engine.not_waiting():
                    self._forget_kept([])
            except StoreFull as error:
                logger.warning("exchanges that have gone come back at the next start, unless there is room to forget them: %s",
                               error)
                self._ask_again()

    def _orphans(self, gone: set[Destination]) -> list[Exchange]:
        """The exchanges with auto-delete that have no bindings but to what goes: they go, too, and are added to that."""
        found: list[Exchange] = []
        leaving: Counter[Exchange] = Counter()      # how many of their bindings lead to what goes
        ways = list(gone)
        for destination in ways:                    # which grows meanwhile
            for exchange, _where in self._to.get(destination, ()):
                leaving[exchange] += 1
                own = Destination("exchange", exchange.name)
                if exchange.auto_delete and leaving[exchange] == len(exchange.bindings) and own not in gone:
                    gone.add(own)
                    ways.append(own)
                    found.append(exchange)
        return found

    def _remove(self, exchanges: list[Exchange], gone: set[Destination]) -> None:
        """Exchanges are no longer there, nor bindings to what has gone. Cost: O(bindings from and to those)."""
        for exchange in exchanges:
            del self._exchanges[exchange.name]
            for where in list(exchange.bindings):
                self._drop(exchange, where)
            self._graph.deleted(exchange.name)
        for destination in gone:
            for exchange, where in list(self._to.get(destination, ())):
                self._drop(exchange, where)


def _key(destination: Destination, key: str, arguments: Table) -> Key:
    return destination, key, encode_table(dict(sorted(arguments.items())))
