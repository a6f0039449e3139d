"""A virtual host: exchanges, bindings and queues over one engine. All that AMQP asks of an engine goes through here.

An AMQP queue is the engine's queue of that name. Which queues a message goes to is decided here, by the exchange's bindings; then
it is published into each of them. A consumer is a selector, whose deliveries go to its connection (`connection.py`).

The functions may be called in the broker's loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from xump._aio_wait import soon, wait
from xump.broker import keeping
from xump.broker.envelope import headers_of
from xump.broker.errors import not_found, refused
from xump.broker.exchange_graph import PREFIX, ExchangeGraph
from xump.broker.exchanges import Destination, Exchange, reached, standard
from xump.broker.incoming import Entering, Incoming, Outcome
from xump.broker.patience import in_steps
from xump.broker.permissions import is_staged
from xump.broker.program_selectors import ProgramSelectors
from xump.broker.queue_arguments import engine_properties, string
from xump.broker.queues import BrokerQueue, is_for_replies, is_stored
from xump.broker.tables import Table
from xump.broker.vhost_bindings import VhostBindings
from xump.errors import Closed, QueueFull, QueueNotFound, StoreFull, TransactionError
from xump_ext.amqp.inlet import Inlet
from xump_ext.amqp.outgoing import Subscription
from xump_ext.outcome import OutcomeFlag

if TYPE_CHECKING:
    from xump.broker.connection import Connection
    from xump.broker.consumers import Consumer
    from xump.broker.users import User
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.watch import Change, Watch
    from xump_ext.engine.delivery import Delivery

logger = logging.getLogger("xump")

HOP_LIMIT = 1024
"""The hop limit that an engine for AMQP should have: kombu's delays are 28 levels of queues, a copy and a dead letter each."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 60.0
"""How long after an error of what falls due it is looked at again: twice as long each time, from the first to the last."""
USERS_MAX = 1000
"""Of so many users it is remembered which exchanges they may write to."""


class Vhost:
    """A virtual host."""

    def __init__(self, name: str, engine: Engine, store: str = "ram") -> None:
        self.name = name
        """The name that clients open it by."""
        self.engine = engine
        """The engine with its queues."""
        self.store = store
        """Where durable queues lie."""
        self.exchanges = {exchange.name: exchange for exchange in standard()}
        """The exchanges by name."""
        self.queues: dict[str, BrokerQueue] = {}
        """The queues, by name."""
        self._read_again = store != "ram"
        self._said_durable = False
        self._watch: Watch | None = None
        self._timer: asyncio.Task[None] | None = None
        self.graph = ExchangeGraph(engine)
        """The exchanges in the engine."""
        self.bindings = VhostBindings(engine, store, self.exchanges, self.queues, self.graph)
        """How exchanges and bindings come and go."""
        self.program_selectors = ProgramSelectors(engine, self.graph, self.exchanges)
        """Selectors on queues of exchanges that are no bindings."""
        self.inlet = Inlet(engine)
        """The way of plain messages into the engine."""
        self._writable: dict[str, tuple[User, dict[bytes, Queue | None]]] = {}
        self._writable_at = 0
        self._unsynced: list[Callable[[BaseException | None], None]] = []
        self._timers: set[asyncio.Handle] = set()

    def read(self) -> None:
        """Find again what was durable."""
        with self.engine.building():                # no message of the store meets half of it
            if self._read_again:
                self._read_again = False
                self._read()
            done = self.engine._awaiting.exchanges_read(self.store)
            self.engine._reopened.extend(done)
        for queue in self.engine._awaiting.queues:
            if self.engine.queues.get(queue.name) is not queue:
                continue
            logger.warning("queue %r in store %r is held: a broker declared it, and its dead letters go to exchanges which that "
                           "store has, while this broker has store=%r", queue.name, queue.store.name, self.store)

    def _read(self) -> None:
        self.bindings.read_exchanges()
        for name, handle in list(self.engine.queues.items()):
            if handle.store.name != self.store or name.startswith(PREFIX) or handle.staged:
                continue
            auto_delete, arguments = keeping.read_queue(handle.meta)
            queue = self.queues[name] = BrokerQueue(self.name, handle, True, None, auto_delete, arguments)
            self._note_special(queue)
            self.bindings.read_queue(handle)
            self.used(queue)
            if queue.dead_letter_exchange == "":
                self.graph.needs_default()

    # ---- exchanges

    def exchange(self, name: str) -> Exchange:
        """The exchange, or `ProtocolError` 404."""
        found = self.exchanges.get(name)
        if found is None:
            raise not_found(f"exchange '{name}' in vhost '{self.name}'")
        return found

    def note_durable(self, what: str) -> None:
        """Say once that what was declared durable ends with the process, if there is no store on disk."""
        if self.store == "ram" and not self._said_durable:
            self._said_durable = True
            logger.warning("%s was declared durable, and the broker has no store on disk: durable queues and exchanges of "
                           "virtual host %r end with the process", what, self.name)

    # ---- queues

    def queue(self, name: str) -> BrokerQueue:
        """The queue, or `ProtocolError` 404; 403 for what the program keeps to itself. Its other queues are queues as any."""
        self.check_is_clients(name)
        found = None if is_for_replies(name) else self.find_queue(name)
        if found is None:
            raise not_found(f"queue '{name}' in vhost '{self.name}'")
        return found

    def find_queue(self, name: str) -> BrokerQueue | None:
        """The queue, or None."""
        handle = self.engine.queues.get(name)
        found = self.queues.get(name)
        if found is not None and found.handle is handle:
            return found
        if found is not None:
            self._ended(found)
        if handle is None or name.startswith(PREFIX) or handle.staged or handle.transit:
            return None
        adopted = BrokerQueue(self.name, handle, is_stored(handle), None, False, {})
        self.queues[name] = adopted
        return adopted

    def is_exclusive(self, name: str) -> bool:
        """Whether a connection has the queue for itself. Any thread may ask."""
        found = self.queues.get(name)
        return found is not None and found.owner is not None and self.engine.queues.get(name) is found.handle

    def check_is_clients(self, name: str, *, declared: bool = False) -> None:
        """Refuse a transit queue of the program, which keeps nothing that a client could get; and a staged one, if it is to be
        declared. A client that does not declare it finds no staged queue."""
        handle = self.engine.queues.get(name)
        if declared and is_staged(name):
            raise refused(f"queue '{name}' in vhost '{self.name}' would be a staged queue, which the server keeps to itself")
        if handle is not None and not name.startswith(PREFIX) and (handle.transit or (declared and handle.staged)):
            kind = "transit" if handle.transit else "staged"
            raise refused(f"queue '{name}' in vhost '{self.name}' is a {kind} queue, which the server keeps to itself")

    def declare_queue(
        self, name: str, durable: bool, owner: Connection | None, auto_delete: bool, arguments: Table
    ) -> BrokerQueue:
        """Create a queue."""
        store = self.store if durable and owner is None else "ram"
        if durable and owner is None:
            self.note_durable(f"queue {name!r}")
        properties = engine_properties(arguments)
        if string(arguments, "x-dead-letter-exchange") == "":
            self.graph.needs_default()
        if store != "ram":
            properties["meta"] = keeping.queue_map(auto_delete, arguments)
        handle = self.engine.create_queue(name, store=store, **properties)
        made = self.queues[name] = BrokerQueue(self.name, handle, durable, owner, auto_delete, arguments)
        if owner is not None:
            owner.exclusive_queues[made] = None
        self._note_special(made)
        self.used(made)
        return made

    def _note_special(self, queue: BrokerQueue) -> None:
        """Queues of which the engine cannot decide yet what becomes of a message."""
        if queue.ttl_ms == 0 or queue.overflow not in (None, "drop-head"):
            self.inlet.special.add(queue.name)

    def delete_queue(self, queue: BrokerQueue, answer: Callable[[int], None] | None = None) -> None:
        """Delete a queue with its bindings. `answer` is told how many messages were ready in it, before its consumers are told:
        so a client that deletes the queue that it consumes from hears first that it was deleted, as from RabbitMQ."""
        ready = queue.handle.ready if self.engine.queues.get(queue.name) is queue.handle else 0
        self.engine.delete_queue(queue.handle)
        if answer is not None:
            answer(ready)
        self._ended(queue)

    def _ended(self, queue: BrokerQueue) -> None:
        """The queue is not there any more, whoever deleted it."""
        if self.queues.get(queue.name) is not queue:
            return
        del self.queues[queue.name]
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue)
        self.inlet.special.discard(queue.name)
        if queue.expiry is not None:
            queue.expiry.cancel()
        self.bindings.queue_gone(queue.name)
        for consumer in queue.consumers:
            self.remove_consumer(consumer)
            consumer.channel.consumer_cancelled(consumer)

    def used(self, queue: BrokerQueue) -> None:
        """The queue was used: its time without use begins anew."""
        if queue.expires_ms is None:
            return
        if queue.expiry is not None:
            queue.expiry.cancel()
        queue.expiry = asyncio.get_running_loop().call_later(queue.expires_ms / 1000, self._expire, queue)

    def _expire(self, queue: BrokerQueue) -> None:
        if self.queues.get(queue.name) is queue and not len(queue.consumers) and not self.engine.closed:
            with self.engine.not_waiting():
                self.delete_queue(queue)

    # ---- publishing

    def exchanges_for(self, user: User) -> dict[bytes, Queue | None]:
        """The exchanges into which messages of this user go straight, and their queues; the default one has none. The same dict
        until an exchange comes or goes."""
        if self._writable_at != self.graph.generation or len(self._writable) > USERS_MAX:
            self._writable_at = self.graph.generation
            self._writable.clear()
        found, writable = self._writable.get(user.name, (None, {}))
        if found is not user:       # another one of that name, perhaps: the file of users was read anew
            writable = {}
            delaying = any(exchange.delays for exchange in self.exchanges.values())
            for name, exchange in self.exchanges.items():
                queue = self.graph.queue_of(name)
                straight = queue is not None and not exchange.internal and not (delaying and self._may_delay(exchange))
                if (straight or not name) and user.may(self.name, "write", name or "amq.default"):
                    writable[name.encode()] = queue
            self._writable[user.name] = user, writable
        return writable

    def _may_delay(self, exchange: Exchange) -> bool:
        """Whether a message may be delayed on a way from this exchange: the engine's graph knows nothing of that."""
        return any(one.delays for one in reached(exchange, self.exchanges))

    def prepared(self, messages: Iterable[Incoming]) -> tuple[list[Outcome], list[Entering]]:
        """Route messages. Returns what becomes of each if nothing is refused, and what is to enter. Raises `QueueFull` if a queue
        has no room for the bytes of all, and `TransactionError` if one has to go by its exchange, of which only `publish` knows
        what becomes of it."""
        outcomes, entering = [], []
        coming: Counter[BrokerQueue] = Counter()
        for message in messages:
            outcome = Outcome()
            if self.program_selectors.are_on_the_way(message.exchange):
                raise TransactionError(f"exchange {message.exchange.name!r} has selectors of the program on its way")
            for queue, delayed in self.route(message):
                coming[queue] += len(message.body)
                if not queue.has_room(coming[queue]):
                    raise QueueFull(f"queue {queue.name!r} has no room for {coming[queue]} bytes more")
                outcome.queues += 1
                outcome.durable |= queue.stored
                entering.append(message.entering(queue.handle, delayed))
            outcomes.append(outcome)
        return outcomes, entering

    def publish(self, messages: Iterable[Incoming]) -> list[Outcome]:
        """Route messages, and publish each into the queues that it is for."""
        outcomes = []
        for message in messages:
            outcome = Outcome()
            found = self.route(message)
            if self.program_selectors.are_on_the_way(message.exchange) and not any(delayed for _queue, delayed in found):
                self._enter_exchange(message, outcome)
                found = []
            for queue, delayed in found:
                outcome.queues += 1
                self._enter(queue, message, delayed, outcome)
            outcomes.append(outcome)
        return outcomes

    def route(self, message: Incoming) -> list[tuple[BrokerQueue, bool]]:
        """The queues that a message is for: all that bindings lead to, each once; else what alternate exchanges lead to. True:
        it is delayed, since an exchange on its way delays."""
        found: dict[tuple[BrokerQueue, bool], None] = {}
        seen: set[tuple[str, bool]] = set()
        ways = [(message.exchange, False)]
        while ways:
            exchange, delayed = ways.pop()
            if (exchange.name, delayed) in seen:
                continue
            seen.add((exchange.name, delayed))
            if exchange.name == "":
                destinations = [Destination("queue", key) for key in message.keys if self.find_queue(key) is not None]
            else:
                destinations = list(dict.fromkeys(
                    destination for key in message.keys
                    for destination in exchange.matching(key, lambda: headers_of(message.properties))))
            delayed = delayed or (exchange.delays and message.delay_ms > 0)
            if not destinations and exchange.alternate is not None and exchange.alternate in self.exchanges:
                ways.append((self.exchanges[exchange.alternate], delayed))
            for destination in destinations:
                if destination.kind == "exchange":
                    ways.append((self.exchanges[destination.name], delayed))
                    continue
                queue = self.find_queue(destination.name)
                if queue is not None:
                    found[queue, delayed] = None
        return list(found)

    def _enter(self, queue: BrokerQueue, message: Incoming, delayed: bool, outcome: Outcome) -> None:
        try:
            if not queue.has_room(len(message.body)):
                outcome.refused = True
                return
            _queue, content, delay, ttl = message.entering(queue.handle, delayed)
            if queue.handle.publish(content, delay=delay, ttl=ttl) == 0:
                outcome.refused = True      # it is a dead letter instead
        except QueueFull:
            outcome.refused = True
        except StoreFull:
            outcome.refused = outcome.full_store = True
        except QueueNotFound:
            outcome.queues -= 1     # another thread deleted it just now
        else:
            outcome.durable |= queue.stored

    def _enter_exchange(self, message: Incoming, outcome: Outcome) -> None:
        """The engine routes it, since selectors of the program are on its way. A queue with `reject-publish` asks then whether
        there is room, not for how many bytes."""
        ttl = None if message.expiration_ms is None else message.expiration_ms / 1000
        told = self.engine.publish_many(PREFIX + message.exchange.name, [message.content], ttl=ttl, outcomes=True)[0]
        outcome.queues = told.copies + told.refused
        outcome.full_store = bool(told.flags & OutcomeFlag.STORE_FULL)
        outcome.refused = told.refused > 0 or bool(told.flags & (OutcomeFlag.STORE_FULL | OutcomeFlag.STORE_FAILED))
        outcome.durable = told.copies > 0

    # ---- delivering

    def add_consumer(self, consumer: Consumer) -> None:
        """The consumer is one of its queue's; it gets messages when it begins."""
        queue, channel = consumer.queue, consumer.channel
        queue.consumers.add(consumer)
        if queue.expiry is not None:
            queue.expiry.cancel()
        channel.connection.outgoing.add(consumer.destination, Subscription(
            channel.number, consumer.tag.encode(), consumer.no_ack, queue.is_quorum, channel.unacked))

    def begin_consumer(self, consumer: Consumer) -> None:
        """From now on it gets messages, unless it has gone already."""
        queue, channel = consumer.queue, consumer.channel
        if consumer not in queue.consumers:
            return
        credit_max = channel.connection.limits.unacked_max
        try:
            consumer.begin(channel.window_for(consumer), credit_max, queue.consumers.is_active(consumer))
        except QueueNotFound:               # another thread deleted it just now
            self._ended(queue)

    def remove_consumer(self, consumer: Consumer, recall: bool = False) -> None:
        """It gets no more messages. The queue goes with its last consumer if it was declared so; but if that goes because the
        broker ends, a queue on disk stays, as after a crash. `recall`: what it has not settled returns."""
        queue = consumer.queue
        if consumer not in queue.consumers:
            return
        consumer.end(recall)
        consumer.channel.connection.outgoing.remove(consumer.destination)
        queue.consumers.remove(consumer)
        if len(queue.consumers) or self.queues.get(queue.name) is not queue:
            return
        if queue.auto_delete and not (queue.stored and consumer.channel.connection.broker.is_ending):
            self.delete_queue(queue)
        else:
            self.used(queue)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Be told of queues that the embedding program deletes."""
        if self.engine._hop_limit < HOP_LIMIT:
            logger.warning("the engine of virtual host %r has hop_limit=%d: messages that expire from queue to queue, as kombu's "
                           "delays do, may take more hops; make it with hop_limit=%d", self.name, self.engine._hop_limit,
                           HOP_LIMIT)

        def told(changes: list[Change]) -> None:
            """Some thread's call has changed the graph."""
            self.program_selectors.tell(changes)
            gone = [one.thing.name for one in changes if one.what == "queue" and not one.came and one.thing.name is not None]
            if gone:
                soon(loop, self._look_for, gone)
        self._watch = self.engine.watch(told)
        self.program_selectors.look()
        self._timer = loop.create_task(in_steps(self.engine, self._do_what_falls_due))

    async def _do_what_falls_due(self) -> None:
        """Messages expire and come back in their time, also while no client asks for anything. An error of one ends nothing; but
        one that comes again at once, as that of a store that has failed, is waited for longer and longer."""
        loop = asyncio.get_running_loop()
        pause = 0.0
        while True:
            began = loop.time()
            try:
                await wait(self.engine, self.engine._check_open, (("nothing", ""),), None)
            except Closed:
                return
            except Exception:
                again = loop.time() - began < PAUSE_SECONDS_MAX
                pause = max(PAUSE_SECONDS, min(2 * pause, PAUSE_SECONDS_MAX)) if again else PAUSE_SECONDS
                logger.exception("an error of what fell due in virtual host %r; that is looked at again in %.1f s, or by the "
                                 "next call", self.name, pause)
                await asyncio.sleep(pause)

    def _look_for(self, names: list[str]) -> None:
        if not self.engine.closed:
            with self.engine.not_waiting():         # exchanges may go with a queue
                for name in names:
                    self.find_queue(name)

    def get(self, queue: BrokerQueue) -> Delivery | None:
        """The next message of a queue."""
        try:
            return self.engine.get(queue.name)
        except QueueNotFound:
            self._ended(queue)
            return None

    # ---- what is durable

    def when_durable(self, call: Callable[[BaseException | None], None]) -> None:
        """Call it when all that was published so far is on disk, with None, or with what went wrong."""
        self._unsynced.append(call)
        if len(self._unsynced) == 1:
            asyncio.get_running_loop().call_soon(self._ask_for_stores)

    def _ask_for_stores(self) -> None:
        """Once for all that was published before the loop comes here."""
        loop = asyncio.get_running_loop()
        calls, self._unsynced = self._unsynced, []

        def tell(error: BaseException | None) -> None:
            """In the broker's loop."""
            for call in calls:
                call(error)

        try:
            self.engine.when_durable(lambda error: soon(loop, tell, error))
        except Closed as error:
            tell(error)

    # ---- the end

    async def close(self) -> None:
        """End what goes on by itself."""
        if self._watch is not None:
            self._watch.stop()
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)
        for queue in self.queues.values():
            if queue.expiry is not None:
                queue.expiry.cancel()
