"""The engine as a naive model: its rules of routing (DESIGN sections 1 to 4, docs/decisions.md), in RAM, with lists.

The compiled engine is compared with this one call by call, so nothing here is clever. Whatever can be found by walking over
a list is not remembered; only credit is counted, because the law of credit is about that counter.

Theory of operation
-------------------
A queue has a list of **entries** in order of id. An entry is a message in a queue, and is in one state:

    unrouted      the frontier is before it                                     ready
    waiting       routed; a selector may take it some time                      ready
    bound         waits for the application, which settles it by taking it      ready         (INFINITE DELIVER)
    outstanding   taken by a selector and not yet paid for                      outstanding   (MOVE, BOUNCE, DELIVER)
    history       processed, and kept                                           history

What left its queue is "gone", and counted by why. A message that was moved with finite credit is the `parent` of what it became
downstream, its `child`, until it is paid for. Settling an entry pays for its parent, which settles that one, and so on up.

Every public call does what it says to the lists, and then lets the engine **run**: `while step(): pass`. A step
looks at the waiting entries of all queues, oldest first, for one that a selector can take; else it routes the oldest
unrouted one.
When no step is left all is quiet, and whatever is there now "has waited": it starts new trips, may be dead-lettered
again, and, if it came by dead-lettering, counts no hops. Inside `building()` nothing runs, so nothing becomes quiet either.

Queues may be in durable stores (`tests/model_stores.py` says what is there when they are opened again). What leaves such a queue
for one in RAM for good is still its store's until it ends there, or enters a durable queue: the entry in RAM has it as `owner`.

`_enter` is rule 1, `_route` rules 2, 3, 6 and 7, `_step` rules 4 and 5, `_take` and `_move` rule 8, `_give_back` and `_return`
rules 9 and 10, `_dead_letter` rules 11 and 12, `_replay` rule 13, `_delete_queue` rule 14.

A call that must not do half of its work when it fails (a replay, many messages, a transaction) does it and, when it fails, puts
back what every object and every list held before: see `_all_or_nothing`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field as dataclass_field, replace
from datetime import UTC, datetime, timedelta

from xump import operators
from xump.actions import Field
from xump.conditions import Match, Role, Where, where as compile_where
from xump.errors import (
    Conflict, InvariantError, QueueFull, QueueNotFound, SelectorNotFound, StaleDelivery, StoreNotFound, TransactionError,
)
from xump._mappings import Registry

try:
    from xump_ext.infinite import INFINITE
except ImportError:
    INFINITE = float("inf")     # tests may set it

READY = ("unrouted", "waiting", "bound")


class Either:
    """What may be true or not. As long as nobody knows better it goes on with the message."""

    def __eq__(self, other):
        return isinstance(other, (bool, Either))

    __hash__ = None


EITHER = Either()


@dataclass(frozen=True)
class Message:
    address: str = ""
    body: bytes = b""
    headers: dict = dataclass_field(default_factory=dict)
    reply_to: str | None = None
    message_id: str | None = None
    destination: str | None = None
    id: int = 0
    timestamp: int = 0
    hops: int = 0

    def replace(self, **changes):
        return replace(self, **changes)


class Entry:
    """A message in a queue."""

    def __init__(self, queue, message, sequence):
        self.queue = queue
        self.message = message
        self.sequence = sequence        # of its entry, engine-wide
        self.state = "unrouted"
        self.parent = None              # the outstanding entry upstream that is paid when this one is settled
        self.child = None               # the entry downstream that this outstanding one became by MOVE or BOUNCE
        self.selector = None            # that bound or took it
        self.offered_to = None          # the destination under which it is offered or was taken
        self.delivery = None            # taken by the application and not yet acked
        self.holds = {}                 # selector -> whether its condition holds, as far as it was evaluated
        self.hits = []                  # the hit set, while parked
        self.parked = False             # routed, when none of its hit set could act
        self.marked = False             # routed to the default role
        self.trip = None                # queues entered in this run; shared with everything it becomes
        self.dead = False               # dead-lettered, and has not waited since
        self.dead_entry = False         # entered this queue by dead-lettering
        self.delivery_count = 0
        self.redelivered = False
        self.nack_number = 0            # of its last nack, engine-wide
        self.owner = None               # in RAM: the durable entry of which this one has the last word
        self.logged = 0, False          # delivery_count and redelivered, as its store has them
        self.foreign = False            # it came by MOVE from a message in another durable store
        self.recovered = False          # it was routed before its store was opened, and its queue is held since

    @property
    def id(self):
        return self.message.id

    @property
    def line(self):
        """Itself, and what is upstream waiting for its payment, down from there."""
        return [self] if self.parent is None else [self, *self.parent.line]

    def __repr__(self):
        return f"<{self.state} {self.queue.name}:{self.id}>"


class Delivery:
    """A message in the application's hands."""

    def __init__(self, engine, entry, selector):
        self.engine = engine
        self.entry = entry
        self.message = entry.message
        self.destination = entry.offered_to
        self.queue = entry.queue
        self.selector = selector
        self.id = entry.id
        self.delivery_count = entry.delivery_count
        self.redelivered = entry.delivery_count > 1 or entry.redelivered
        self.settled = selector.infinite    # by having been taken
        self.answered = False               # acked, paid, nacked or rejected

    def ack(self):
        self.engine.ack([self])

    def nack(self, *, requeue=True):
        self.engine._nack(self, "delivery-limit" if requeue else "rejected", None)

    def reject(self, reason="rejected"):
        self.engine._nack(self, "rejected", None if reason == "rejected" else reason)

    def __enter__(self):
        return self.message

    def __exit__(self, kind, error, traceback):
        if kind is None and not self.answered:
            self.ack()
        elif kind is not None and self.entry.delivery is self:
            self.nack()


class Queue:
    def __init__(self, engine, name, store, limit, history_limit, auto_delete, dead_letter, delivery_limit):
        self.engine = engine
        self.name = name
        self.store = store
        self.limit = limit
        self.history_limit = history_limit
        self.auto_delete = auto_delete
        self.dead_letter = dead_letter
        self.delivery_limit = delivery_limit
        self.held = False
        self.dying = False
        self.entries = []               # all that it holds, by id
        self.processed = []             # its history, in the order in which it was processed
        self.line = []                  # selectors that wait for room here
        self.next_id = 1
        self.timestamp = 0              # of its newest entry
        self.entered = self.settled = self.deleted = 0
        self.dropped = {}               # reason -> count
        self.dead_lettered = {}
        self.durable_id = 0             # ids up to it were there at the last sync
        self.handed = 0                 # the highest id that was offered to the application, here or downstream

    @property
    def durable(self):
        return self.store != "ram"

    @property
    def properties(self):
        return self.store, self.limit, self.history_limit, self.auto_delete, self.dead_letter, self.delivery_limit

    @property
    def selectors(self):
        return [s for s in self.engine.selectors.values() if s.source is self]

    @property
    def ready(self):
        return sum(e.state in READY for e in self.entries)

    @property
    def outstanding(self):
        return sum(e.state == "outstanding" for e in self.entries)

    @property
    def history(self):
        return sum(e.state == "history" for e in self.entries)

    @property
    def frontier(self):
        return next((e.id for e in self.entries if e.state == "unrouted"), self.next_id)

    @property
    def overflow(self):
        return next((s for s in self.selectors if s.role == "overflow" and s.enabled), None)

    def find(self, id):
        return next((e for e in self.entries if e.id == id), None)

    def publish(self, address="", body=b"", headers=None, *, reply_to=None, message_id=None):
        return self.engine.publish(self, address, body, headers, reply_to=reply_to, message_id=message_id)

    def hold(self):
        with self._call():
            self.held = True

    def release(self):
        with self._call():
            self.held = False
            self.engine._match_recovered(self)

    def fetch(self, id):
        entry = self.find(id)
        return entry and entry.message

    def delete(self, id):
        entry = self.find(id)
        with self._call():
            if entry is not None:
                self.engine._delete_entry(entry)
        return entry is not None

    def purge(self):
        ready = [e for e in self.entries if e.state in READY]
        with self._call():
            for entry in ready:
                self.engine._delete_entry(entry)
        return len(ready)

    def _call(self):
        if self.engine.queues.get(self.name) is not self:
            raise QueueNotFound(f"queue {self.name!r} was deleted")
        return self.engine._call()

    def browse(self, start="head", *, state=None, where=None, limit=None, reverse=False):
        if state not in (None, "ready", "outstanding", "history"):
            raise ValueError(f"unknown state {state!r}; there are 'ready', 'outstanding' and 'history'")
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}, allowed are 0 and more")
        condition = compile_where(where) if where is not None and not isinstance(where, Where) else where
        found = [e for e in self.entries if self._is_from(e, start, reverse)]
        found = [e for e in found if state in (None, "ready" if e.state in READY else e.state)]
        found = [e for e in found if condition is None or passes_quietly(condition, e)]
        if reverse:
            found.reverse()
        return iter([e.message for e in found[:limit]])

    def _is_from(self, entry, start, reverse):
        """Whether a browse from `start` comes to this entry: from there on, or down from there."""
        if start == "head":
            return True         # reverse: down from the newest, the default
        if isinstance(start, datetime):
            time = nanoseconds(start)
            return entry.message.timestamp <= time if reverse else entry.message.timestamp >= time
        if start == "current":
            start = self.frontier
        if not isinstance(start, int):
            raise ValueError(f"cannot start at {start!r}; allowed are 'head', 'current', an id and an aware datetime")
        return entry.id <= start if reverse else entry.id >= start


class Selector:
    def __init__(self, engine, id, source, when, do, credit, enabled, start, name):
        self.engine = engine
        self.id = id
        self.name = name
        self.source = source
        self.when = when
        self.do = do
        self.credit = credit
        self.available = credit
        self.enabled = enabled
        self.properties = (source.name, when, do, credit, enabled, start)
        self.role = when.name if isinstance(when, Role) and when.name in ("default", "overflow") else "ordinary"
        self.start = 0                  # COPY: ids from here on are live
        self.replayed = 0               # COPY: ids from here to `start` were copied by its replay
        self.replay_at_enable = None    # COPY: the id from which to replay when first enabled
        self.served_at = 0              # when it last took, by the engine's count; 0: never
        self.served = self.copied = self.dropped = self.paid = self.returned = self.errors = 0

    @property
    def consuming(self):
        return self.do.consuming

    @property
    def infinite(self):
        return self.credit == INFINITE

    @property
    def has_credit(self):
        return self.infinite or self.available > 0 or self.do.verb == "discard"

    @property
    def is_able(self):
        return self.enabled and self.has_credit

    @property
    def outstanding(self):
        return sum(e.state == "outstanding" and e.selector is self for e in self.source.entries)

    @property
    def blocked(self):
        return any(self in queue.line and self.engine._wants_in(self, queue) for queue in self.engine.queues.values())

    def has_replayed(self, entry):
        return self.replayed and self.replayed <= entry.id < self.start

    def grant(self, n):
        if self.infinite:
            raise ValueError("INFINITE credit cannot be granted more or less")
        if n < -self.available:
            raise ValueError(f"cannot take back {-n} credits, {self.available} of {self.credit} are available")
        with self._call():
            self.credit += n
            self.available += n

    def pay(self, n=1):
        if self.do.verb != "deliver" or self.do.queue is not None or self.infinite:
            raise ValueError(f"selector {self.id} is paid from below; pay() is for deliveries of finite credit")
        taken = [d.entry for d in self.engine.taken if d.entry.selector is self]
        if not 0 <= n <= len(taken):
            raise ValueError(f"cannot pay {n}, {len(taken)} are taken and not paid for")
        with self._call():
            for entry in taken[:n]:
                self.engine._pay(entry)

    def enable(self):
        with self._call(), self.engine._all_or_nothing():
            if not self.enabled:
                self.engine._check_role(self.source, self.role)
                self.enabled = True
                if self.replay_at_enable is not None:
                    self.engine._replay(self, self.replay_at_enable)

    def disable(self):
        with self._call():
            self.enabled = False

    def delete(self):
        return self.engine.delete_selector(self)

    def _call(self):
        if self.engine.selectors.get(self.id) is not self:
            raise SelectorNotFound(f"selector {self.id} was deleted")
        return self.engine._call()


class Transaction:
    def __init__(self, engine):
        self.engine = engine
        self.work = []                  # ("publish", queue, message) or ("ack", delivery)
        self.ended = False
        self.ids = None

    def publish(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None):
        self._check_open()
        self.work.append(("publish", queue, Message(address, body, dict(headers or {}), reply_to, message_id)))

    def ack(self, deliveries):
        self._check_open()
        self.work += [("ack", delivery) for delivery in (deliveries if isinstance(deliveries, list) else [deliveries])]

    def _check_open(self):
        if self.ended:
            raise TransactionError("the transaction has ended")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.ended = True
        if kind is None:
            self.ids = self.engine._commit(self.work, in_one_store=True)


class ModelEngine:
    def __init__(self, *, clock=time.time_ns, hop_limit=64, dead_letter=None):
        self.clock = clock
        self.hop_limit = hop_limit
        self.dead_letter = dead_letter
        self.queue_by_name = {}
        self.selector_by_id = {}
        self.names = []                 # of queues, ever used
        self.offers = []                # bound and outstanding entries that the application may take, in order of offering
        self.taken = []                 # unpaid deliveries in the application's hands, in order of taking
        self.stores = ["ram"]
        self.reopened = []              # queues that are held until a building block ends
        self.now = 0
        self.depth = 0                  # of building blocks
        self.sequence = self.selector_count = self.served_count = self.nack_count = 0

    @property
    def queues(self):
        return Registry(self.queue_by_name, QueueNotFound, "queue")

    @property
    def selectors(self):
        return Registry(self.selector_by_id, SelectorNotFound, "selector")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        pass

    def sync(self, *, timeout=None):
        for queue in self.queues.values():
            queue.durable_id = queue.next_id - 1 if queue.durable else 0

    # calls that build the graph

    @contextmanager
    def building(self):
        self.depth += 1
        try:
            yield self
        finally:
            self.depth -= 1
            with self._call():
                if not self.depth:
                    for queue in self.reopened:
                        queue.held = False
                        self._match_recovered(queue)
                    self.reopened = []

    def create_queue(self, name=None, *, store="ram", limit=None, history_limit=0, auto_delete=False, dead_letter=None,
                     delivery_limit=None):
        if any(n is not None and n < least for n, least in ((limit, 0), (history_limit, 0), (delivery_limit, 1))):
            raise ValueError("a limit must not be negative, and delivery_limit not below 1")
        if name is None:
            number = 1
            while f"queue-{number}" in self.names:
                number += 1
            name = f"queue-{number}"
        if not name:
            raise ValueError("the name of a queue must not be empty")
        if store not in self.stores:
            raise StoreNotFound(f"no store {store!r}; there are {', '.join(self.stores)}")
        queue = Queue(self, name, store, limit, history_limit, auto_delete, name_of(dead_letter), delivery_limit)
        if name in self.queues:
            if self.queues[name].properties != queue.properties:
                raise Conflict(f"queue {name!r} exists with other properties")
            return self.queues[name]
        with self._call():
            self.queue_by_name[name] = queue
            self.names.append(name)
        return queue

    def create_selector(self, source, *, when, do, credit=1, enabled=True, start="current", name=None):
        queue = self._queue(source)
        if name is not None:
            for selector in self.selectors.values():
                if selector.name == name:
                    if selector.properties != (queue.name, when, do, credit, enabled, start):
                        raise Conflict(f"selector {name!r} exists with other properties")
                    return selector
        selector = Selector(self, self.selector_count + 1, queue, when, do, credit, enabled, start, name)
        self._check_selector(selector, start)
        with self._call(), self._all_or_nothing():
            self.selector_count += 1
            self.selector_by_id[selector.id] = selector
            if not selector.consuming:
                self._start(selector, start)
        return selector

    def _check_selector(self, selector, start):
        if selector.credit != INFINITE and selector.credit < 0:
            raise ValueError(f"credit is {selector.credit}, allowed are 0 and more and INFINITE")
        target = selector.do.queue
        if isinstance(target, str):
            self._queue(target)
        if selector.role == "overflow" and (not selector.consuming or target == selector.source.name):
            raise ValueError(f"an overflow selector consumes, and into another queue; got {selector.do!r}")
        if start != "current" and selector.consuming:
            raise ValueError(f"a consuming selector sees ready messages only; it cannot start at {start!r}")
        if isinstance(start, str) and start not in ("current", "tail", "head"):
            raise ValueError(f"unknown start {start!r}; there are 'current', 'tail', 'head', ids and aware datetimes")
        if isinstance(start, datetime):
            nanoseconds(start)
        if selector.enabled:
            self._check_role(selector.source, selector.role)

    def _check_role(self, queue, role):
        if role != "ordinary" and any(s.role == role and s.enabled for s in queue.selectors):
            raise Conflict(f"queue {queue.name!r} has an enabled {role} selector")

    def delete_selector(self, selector):
        selector = self.selectors.get(getattr(selector, "id", selector))
        if selector is None:
            return False
        with self._call():
            self._delete_selector(selector)
        return True

    def delete_queue(self, name):
        queue = self.queues.get(name_of(name))
        if queue is None:
            return False
        with self._call():
            self._delete_queue(queue)
        return True

    # calls that put messages in

    def publish(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None):
        with self._call():
            return self._publish(queue, Message(address, body, dict(headers or {}), reply_to, message_id))

    def publish_many(self, queue, messages):
        messages = list(messages)
        if not messages and self.dead_letter not in self.queues:        # decision 100
            self._queue(queue)
        with self._call(), self._all_or_nothing():
            ids = [self._publish(queue, fresh(message)) for message in messages]
        ids = [id for id in ids if id]
        return range(ids[0], ids[-1] + 1) if ids else range(0)

    def _publish(self, queue, message):
        """Rule 1 for a message from outside: the id, 0 when it was dead-lettered, or an error and nothing has changed."""
        name = name_of(queue)
        if name not in self.queues:
            target = self.queues.get(self.dead_letter)
            if not self._enter_dead(target, message, "no-queue", name, None, []):
                raise QueueNotFound(f"no queue {name!r}; there are {', '.join(self.queues)}")
            return 0
        queue = self.queues[name]
        if self._has_room(queue, message):
            return self._enter(queue, message, []).id
        if not self._enter_dead(self._own_dead_letter(queue), message, "overflow", name, None, []):
            raise QueueFull(f"queue {name!r} is at its limit of {queue.limit}")
        count(queue.dead_lettered, "overflow")
        return 0

    # calls that take messages out

    def take(self, n, destination=None, *, timeout=0.0):
        deliveries = []
        while len(deliveries) < n:
            delivery = self._take_one(destination, self.nack_count)
            if delivery is None:
                break
            deliveries.append(delivery)
        return deliveries

    def deliveries(self, destination=None, *, timeout=0.0):
        return self._iterate(destination, self.nack_count)

    def _iterate(self, destination, nack_count):
        while (delivery := self._take_one(destination, nack_count)) is not None:
            yield delivery

    def _take_one(self, destination, nack_count):
        """The oldest offer that was not nacked since; what INFINITE credit bound is settled by that."""
        for entry in self.offers:
            if destination in (None, entry.offered_to) and entry.nack_number <= nack_count:
                break
        else:
            return None
        with self._call():
            self.offers.remove(entry)
            entry.delivery_count += 1
            delivery = Delivery(self, entry, entry.selector)
            if delivery.settled:
                self._settle(entry)
            else:
                entry.delivery = delivery
                self.taken.append(delivery)
                if delivery.redelivered:
                    self._tell_again(entry)
        return delivery

    def ack(self, deliveries):
        self._commit([("ack", delivery) for delivery in deliveries])

    def transaction(self):
        return Transaction(self)

    def _check_stores(self, work, acked):
        """What a transaction enters, and what its acks settle, upstream too, is in one durable store."""
        queues = [self.queues.get(name_of(item[1])) for item in work if item[0] == "publish"]
        queues += [entry.queue for delivery in acked for entry in delivery.entry.line]
        stores = {queue.store for queue in queues if queue is not None and queue.durable}
        if len(stores) > 1:
            raise TransactionError(f"a transaction in more than one store: {sorted(stores)}")

    def _commit(self, work, in_one_store=False):
        """All of it, in order, then one run; or an error and none of it."""
        acked = [item[1] for item in work if item[0] == "ack" and not item[1].settled]
        for i, delivery in enumerate(acked):
            self._check_fresh(delivery)
            if delivery in acked[:i]:
                raise StaleDelivery(f"delivery {delivery.id} of queue {delivery.queue.name!r} is given twice")
        if in_one_store:
            self._check_stores(work, acked)
        ids = []
        with self._call(), self._all_or_nothing():
            for kind, *arguments in work:
                if kind == "publish":
                    ids.append(self._publish(*arguments))
                elif not arguments[0].settled:
                    self._pay(arguments[0].entry)
        return ids

    def _nack(self, delivery, reason, detail):
        """Rule 10. The credit is given back; the message goes home, or is dead-lettered for the reason."""
        if delivery.settled:
            return
        self._check_fresh(delivery)
        with self._call():
            entry = delivery.entry
            delivery.answered = True
            self.nack_count += 1
            entry.nack_number = self.nack_count
            limit = self._delivery_limit(entry)
            if reason == "delivery-limit" and (limit is None or entry.delivery_count < limit):
                self._return(entry)
            else:
                self._give_back(entry)
                self._dead_letter(entry, reason, detail)

    def _check_fresh(self, delivery):
        if delivery.entry.delivery is not delivery:
            raise StaleDelivery(f"delivery {delivery.id} of queue {delivery.queue.name!r} was settled or taken back")

    # running

    @contextmanager
    def _call(self):
        """A public call: the clock is read once, and when it has done its work the engine runs."""
        self.now = self.clock()
        yield
        self._prune_lines()
        if not self.depth:
            self.run()

    def run(self):
        for entry in self._everywhere("waiting"):
            for selector in entry.queue.selectors:
                if selector.consuming:
                    self._holds(selector, entry)
        while self._step():
            pass
        for queue in self.queues.values():
            for entry in queue.entries:
                entry.trip = None
                entry.dead = False
                if entry.dead_entry:
                    entry.message = entry.message.replace(hops=0)

    def _step(self):
        self._prune_lines()
        refused = []                    # (selector, target): what is younger must not pass what was refused
        for entry in self._everywhere("waiting"):
            if entry.queue.held:
                continue
            if entry.parked and any(self._may_act(s, entry) for s in entry.hits):
                self._act(entry, entry.hits)
                return True
            for selector in sorted(entry.queue.selectors, key=lambda s: (s.served_at, s.id)):
                if self._may_take(selector, entry) and selector.is_able and self._may_put(selector, entry, refused):
                    self._take(selector, entry)
                    return True
        for entry in self._everywhere("unrouted"):
            if not entry.queue.held and any(s.role != "overflow" for s in entry.queue.selectors):
                self._route(entry)
                return True
        return False

    def _everywhere(self, state):
        entries = [e for queue in self.queues.values() for e in queue.entries if e.state == state]
        return sorted(entries, key=lambda e: e.sequence)

    def _may_take(self, selector, entry):
        """Whether a waiting entry is one for this selector, enabled or not."""
        return selector.consuming and self._holds(selector, entry) and self._names_target(selector, entry)

    def _may_put(self, selector, entry, refused):
        """Whether the selector may put the entry into its target now; else it stands in the target's line (decision 4)."""
        target = self._target(selector, entry.message)
        if target is None:
            return True
        if (selector, target) in refused:
            return False
        first = not target.line or target.line[0] is selector
        if first and self._has_room(target, self._makes(selector, entry), leaving=entry):
            return True
        if selector not in target.line:
            target.line.append(selector)
        refused.append((selector, target))
        return False

    def _prune_lines(self):
        for queue in self.queues.values():
            while queue.line and self._has_room_for_any(queue) and not self._wants_in(queue.line[0], queue):
                queue.line.pop(0)

    def _wants_in(self, selector, queue):
        return selector.is_able and not selector.source.held and self._has_waiting(selector, queue)

    def _has_waiting(self, selector, queue):
        waiting = [e for e in selector.source.entries if e.state == "waiting" and self._may_take(selector, e)]
        return any(self._target(selector, e.message) is queue for e in waiting)

    # matching

    def _holds(self, selector, entry):
        """Whether the selector's condition holds for the entry. Evaluated once."""
        if selector.role == "overflow":
            return False
        if selector.role == "default":
            return entry.marked
        if selector not in entry.holds:
            entry.holds[selector] = self._evaluate(selector, entry)
        return entry.holds[selector]

    def _evaluate(self, selector, entry):
        if isinstance(selector.when, Role):
            return True
        terms = selector.when.terms()
        for term in [t for t in terms if isinstance(t, Match)] + [t for t in terms if isinstance(t, Where)]:
            try:
                if passes(term, entry) is not True:
                    return False
            except Exception:
                selector.errors += 1
                return False
        return True

    def _names_target(self, selector, entry):
        """Whether the fields in the selector's action, if any, name what they must name."""
        action, message = selector.do, entry.message
        if isinstance(action.queue, Field) and self._target(selector, message) is None:
            return False
        return not isinstance(action.destination, Field) or bool(name_in(message, action.destination.name))

    def _target(self, selector, message):
        """The queue into which the selector would put the message, or None."""
        name = selector.do.queue
        return self.queues.get(name_in(message, name.name) if isinstance(name, Field) else name)

    def _destination(self, selector, message):
        name = selector.do.destination
        return name_in(message, name.name) if isinstance(name, Field) else name

    def _makes(self, selector, entry):
        """The message that a COPY, MOVE or BOUNCE would put into its target."""
        message = entry.message.replace(hops=entry.message.hops + 1)
        if selector.do.verb == "deliver":
            return message.replace(destination=self._destination(selector, entry.message))
        if selector.do.verb == "bounce":
            return bounced(message, "bounced", entry.queue.name)
        return message

    # routing

    def _route(self, entry):
        selectors = entry.queue.selectors
        hits = [s for s in selectors if s.role == "ordinary" and self._holds(s, entry) and self._names_target(s, entry)]
        if not hits:
            hits = [s for s in selectors if s.role == "default" and self._names_target(s, entry)]
            entry.marked = bool(hits)
        if hits:
            self._act(entry, hits)
        else:
            self._dead_letter(entry, "unroutable")

    def _match_recovered(self, queue):
        """What was routed in an earlier engine: as if it had been routed to the default role, if nobody else wants it now."""
        for entry in [e for e in queue.entries if e.recovered]:
            entry.recovered = False
            ordinary = [s for s in queue.selectors if s.role == "ordinary"]
            if entry.state == "waiting" and not any(self._holds(s, entry) and self._names_target(s, entry) for s in ordinary):
                entry.marked = any(s.role == "default" and self._names_target(s, entry) for s in queue.selectors)

    def _act(self, entry, hits):
        """Rules 3 and 7: all copies; then the entry waits for a consuming selector, or was copied only, or is parked."""
        if entry.trip is None:
            entry.trip = [entry.queue]
        acting = [s for s in hits if self._may_act(s, entry)]
        for selector in acting:
            if not selector.consuming and not selector.has_replayed(entry):
                self._copy(selector, entry, entry.trip)
        entry.state = "waiting"
        entry.parked = not acting
        entry.hits = hits if entry.parked else []
        if acting and not any(s.consuming for s in hits):
            self._settle(entry)

    def _may_act(self, selector, entry):
        """Whether the selector, in the hit set of an entry, does something about it now (or did, by a replay)."""
        if selector.has_replayed(entry):
            return True
        live = selector.consuming or entry.id >= selector.start
        return selector.enabled and live and self._names_target(selector, entry)

    def _copy(self, selector, entry, trip, replaying=False):
        target = self._target(selector, entry.message)
        if target in trip:
            return
        message = self._makes(selector, entry)
        if message.hops <= self.hop_limit and self._has_room(target, message):
            self._enter(target, message, trip, dead=entry.dead)
            selector.copied += 1
            return
        trip.append(target)
        if message.hops > self.hop_limit:
            reason, place, dead_letter = "hops", entry.queue, self._dead_letter_of(entry)
        elif replaying:
            raise QueueFull(f"queue {target.name!r} has no room for all that selector {selector.id} replays")
        else:
            reason, place, dead_letter = "overflow", target, self._own_dead_letter(target)
        if not entry.dead and self._enter_dead(dead_letter, message, reason, place.name, None, trip):
            count(place.dead_lettered, reason)
        else:
            selector.dropped += 1

    def _start(self, selector, start):
        """Rule 13, for a new COPY."""
        queue = selector.source
        if start in ("current", "tail"):
            selector.start = queue.frontier if start == "current" else queue.next_id
            return
        if start == "head":
            start = 1
        elif isinstance(start, datetime):
            time = nanoseconds(start)
            start = next((e.id for e in queue.entries if e.message.timestamp >= time), queue.next_id)
        start = min(max(start, 1), queue.next_id)
        if selector.enabled:
            self._replay(selector, start)
        else:
            selector.replay_at_enable = start

    def _replay(self, selector, start):
        """Copies all that the queue holds from `start` on; what comes after that is live."""
        queue = selector.source
        selector.replay_at_enable = None
        selector.replayed = start
        selector.start = queue.next_id
        for entry in list(queue.entries):
            if selector.has_replayed(entry) and self._replays(selector, entry) and self._names_target(selector, entry):
                self._copy(selector, entry, [queue], replaying=True)

    def _replays(self, selector, entry):
        """A replay is no routing: its condition is evaluated for itself, a default's by what no ordinary selector matches now."""
        if selector.role == "default":
            ordinary = [s for s in entry.queue.selectors if s.role == "ordinary"]
            return not any(self._evaluate(s, entry) and self._names_target(s, entry) for s in ordinary)
        return self._evaluate(selector, entry)

    # room and entry

    def _has_room(self, queue, message, leaving=None):
        """Whether the queue can take the message: it is below its limit, or its overflow selector takes it."""
        return self._is_below_limit(queue, leaving) or self._overflow_can_take(queue, message, leaving)

    def _is_below_limit(self, queue, leaving=None):
        ready = [e for e in queue.entries if e.state in READY and e is not leaving]
        return queue.limit is None or len(ready) < queue.limit

    def _overflow_can_take(self, queue, message, leaving=None):
        selector = queue.overflow
        if selector is None or not selector.has_credit:
            return False
        entry = Entry(queue, message, 0)
        if not self._names_target(selector, entry):
            return False
        target = self._target(selector, message)
        return target is None or (target is not queue and self._is_below_limit(target, leaving))

    def _has_room_for_any(self, queue):
        """Room whatever the message: an overflow selector that asks the message does not count."""
        selector = queue.overflow
        if self._is_below_limit(queue):
            return True
        asks = selector and (isinstance(selector.do.queue, Field) or isinstance(selector.do.destination, Field))
        return not asks and self._overflow_can_take(queue, Message())

    def _enter(self, queue, message, trip, *, parent=None, dead=False, dead_entry=False, like=None, owner=None,
               came=None):
        """Rule 1, when it is known that the queue has room. `like`: the entry whose count of deliveries travels with it. `owner`:
        the durable entry of which it has the last word, if it is in RAM. `came`: the one that goes on as this by INFINITE."""
        overflows = not self._is_below_limit(queue)
        self.sequence += 1
        queue.timestamp = max(queue.timestamp, self.now)
        entry = Entry(queue, message.replace(id=queue.next_id, timestamp=queue.timestamp), self.sequence)
        queue.next_id += 1
        queue.entered += 1
        queue.entries.append(entry)
        if queue not in trip:
            trip.append(queue)
        entry.trip, entry.dead, entry.dead_entry, entry.parent = trip, dead, dead_entry, parent
        if parent is not None:
            parent.child = entry
        if like is not None:
            entry.delivery_count, entry.redelivered, entry.nack_number = like.delivery_count, like.redelivered, like.nack_number
        entry.logged = entry.delivery_count, entry.redelivered
        entry.owner = None if queue.durable else owner
        above = (None if parent is None else self._owner(parent)) or came
        entry.foreign = above is not None and queue.durable and above.queue.store != queue.store
        if overflows:
            entry.state = "entering"    # what overflow takes never counts as ready
            self._take(queue.overflow, entry)
        return entry

    # taking and paying

    def _take(self, selector, entry):
        """One consuming action on an entry that the selector may take (rules 4 and 8)."""
        if entry.trip is None:
            entry.trip = [entry.queue]
        entry.parked = False
        self.served_count += 1
        selector.served_at = self.served_count
        selector.served += 1
        if selector.do.verb == "discard":
            self._settle(entry)
        elif self._target(selector, entry.message) is not None:
            self._move(selector, entry)
        else:
            entry.selector = selector
            entry.state = "bound" if selector.infinite else "outstanding"
            if not selector.infinite:
                selector.available -= 1
            entry.offered_to = self._destination(selector, entry.message)
            self.offers.append(entry)
            if not selector.infinite:
                self._hand(entry)

    def _hand(self, entry):
        """From here on the application may have it: durable queues keep that in mind."""
        for above in [*entry.line, *(e.owner for e in entry.line if e.owner)]:
            above.queue.handed = max(above.queue.handed, above.id)

    def _tell_again(self, entry):
        """It was taken before, and is now: stores know how often."""
        for above in [*entry.line, *(e.owner for e in entry.line if e.owner)]:
            above.logged = entry.delivery_count, True

    def _owner(self, entry):
        """The durable entry that stands behind this one: itself, the nearest upstream, or the owner of that."""
        return next((above if above.queue.durable else above.owner for above in entry.line
                     if above.queue.durable or above.owner), None)

    def _heir(self, entry):
        """The owner of what becomes of an entry that ends. It is known to have been delivered as often as the entry was."""
        owner = self._owner(entry)
        for above in entry.line if owner else ():
            owner.delivery_count = max(owner.delivery_count, above.delivery_count)
            owner.redelivered = owner.redelivered or above.redelivered
            if owner in (above, above.owner):
                break
        return owner

    def _move(self, selector, entry):
        target = self._target(selector, entry.message)
        if selector in target.line:
            target.line.remove(selector)
        message = self._makes(selector, entry)
        if message.hops > self.hop_limit:
            if not selector.infinite:
                selector.paid += 1
            self._dead_letter(entry, "hops")
        elif selector.infinite:
            parent, entry.parent = entry.parent, None
            entry.state = "leaving"
            owner = self._heir(entry) if parent is None or self._owner(parent) is None else None
            self._enter(target, message, entry.trip, parent=parent, dead=entry.dead, like=entry, owner=owner,
                        came=self._owner(entry))
            self._settle(entry)
        else:
            selector.available -= 1
            entry.selector = selector
            entry.state = "outstanding"
            self._enter(target, message, entry.trip, parent=entry, dead=entry.dead, like=entry)

    def _settle(self, entry):
        """The last word on a processed message: into the history or gone, and its supplier is paid."""
        queue = entry.queue
        entry.state = "history"
        entry.selector = entry.owner = None
        queue.processed.append(entry)
        while queue.history_limit is not None and len(queue.processed) > queue.history_limit:
            self._remove(queue.processed[0])
            queue.settled += 1
        self._pay_supplier(entry)

    def _pay_supplier(self, entry):
        parent, entry.parent = entry.parent, None
        if parent is not None:
            self._pay(parent)

    def _pay(self, entry):
        """Pays for an outstanding entry: one credit is available again, and the entry is settled."""
        entry.selector.available += 1
        entry.selector.paid += 1
        if entry.delivery is not None:
            entry.delivery.answered = True
        self._withdraw(entry)
        entry.child = None
        self._settle(entry)

    def _withdraw(self, entry):
        """No offer and no delivery of this entry is good any more."""
        if entry in self.offers:
            self.offers.remove(entry)
        if entry.delivery is not None:
            self.taken.remove(entry.delivery)
        entry.delivery = None

    def _give_back(self, entry):
        """Takes an outstanding entry's credit back unpaid, and recalls what it became downstream."""
        child = entry.child
        if child is not None:
            if child.state == "outstanding":
                self._give_back(child)
            entry.delivery_count, entry.nack_number = child.delivery_count, child.nack_number
            entry.child = child.parent = None
            self._remove(child)
            child.queue.deleted += 1
        entry.selector.available += 1
        entry.selector.returned += 1
        entry.selector = None
        self._withdraw(entry)

    def _return(self, entry):
        """An outstanding entry comes home to its old place (rules 9 and 10)."""
        self._give_back(entry)
        entry.redelivered = True
        self._wait_again(entry)

    def _wait_again(self, entry):
        entry.state = "waiting"
        entry.holds = {}
        entry.hits = []
        entry.logged = entry.delivery_count, entry.redelivered

    def _remove(self, entry):
        entry.queue.entries.remove(entry)
        entry.selector = entry.owner = None
        if entry in entry.queue.processed:
            entry.queue.processed.remove(entry)
        self._withdraw(entry)
        entry.state = "gone"

    def _delete_entry(self, entry):
        if entry.state == "outstanding":
            self._give_back(entry)
        self._remove(entry)
        entry.queue.deleted += 1
        self._pay_supplier(entry)

    def _delivery_limit(self, entry):
        """That of the entry's queue, else of the nearest queue upstream that waits for its payment."""
        while entry is not None and entry.queue.delivery_limit is None:
            entry = entry.parent
        return entry and entry.queue.delivery_limit

    # dead letters

    def _dead_letter(self, entry, reason, detail=None):
        """Bounces an entry out of its queue (rule 11), or drops it; it is settled by either."""
        queue = entry.queue
        entry.state = "leaving"
        target = None if entry.dead else self._dead_letter_of(entry)
        if entry.trip is None:
            entry.trip = [queue]
        if self._enter_dead(target, entry.message, reason, queue.name, detail, entry.trip, self._heir(entry)):
            count(queue.dead_lettered, reason)
            self._settle(entry)
        else:
            self._remove(entry)
            count(queue.dropped, reason)
            self._pay_supplier(entry)

    def _enter_dead(self, target, message, reason, from_name, detail, trip, owner=None):
        """Whether the dead letter queue (None: there is none) took the message."""
        if target is None:
            return False
        message = bounced(message.replace(hops=message.hops + 1), reason, from_name, detail)
        if not self._has_room(target, message):
            return False
        self._enter(target, message, trip, dead=True, dead_entry=True, owner=owner)
        return True

    def _own_dead_letter(self, queue):
        """A queue that is its own dead letter counts as one without."""
        return None if queue.dead_letter == queue.name else self.queues.get(queue.dead_letter)

    def _dead_letter_of(self, entry):
        """The first that exists: the queue's, those of the queues up the chain of unpaid parents, the engine's."""
        found, above = None, entry
        while found is None and above is not None:
            found = self._own_dead_letter(above.queue)
            above = above.parent
        found = found or self.queues.get(self.dead_letter)
        return None if found is entry.queue else found

    # the end of selectors and queues

    def _delete_selector(self, selector):
        queue = selector.source
        for entry in list(queue.entries):
            if entry.selector is selector and entry.state == "outstanding":
                self._return(entry)
            elif entry.selector is selector:
                self._withdraw(entry)
                entry.selector = None
                self._wait_again(entry)
            entry.hits = [s for s in entry.hits if s is not selector]
        for other in self.queues.values():
            if selector in other.line:
                other.line.remove(selector)
        del self.selector_by_id[selector.id]
        if queue.auto_delete and not queue.selectors and not queue.dying:
            self._delete_queue(queue)

    def _delete_queue(self, queue):
        """Rule 14: its selectors, what came from elsewhere, what remains; all before anything is routed."""
        queue.dying = True
        for selector in list(self.selectors.values()):
            if queue in (selector.source, self.queues.get(selector.do.queue)) and selector.id in self.selectors:
                self._delete_selector(selector)
        while any(e.parent for e in queue.entries):
            self._return(next(e.parent for e in queue.entries if e.parent))
        for entry in list(queue.entries):
            self._remove(entry)
        del self.queue_by_name[queue.name]

    def _queue(self, queue):
        name = name_of(queue)
        if name not in self.queues:
            raise QueueNotFound(f"no queue {name!r}; there are {', '.join(self.queues)}")
        return self.queues[name]

    @contextmanager
    def _all_or_nothing(self):
        """When the block raises, every object and every list holds again what it held before."""
        things = [self, *self.queues.values(), *self.selectors.values(), *self.taken]
        things += [entry for queue in self.queues.values() for entry in queue.entries]
        before = [(thing, dict(vars(thing))) for thing in things]
        containers = [value for _, values in before for value in values.values() if isinstance(value, (list, dict))]
        contents = [(container, container.copy()) for container in containers]
        try:
            yield
        except BaseException:
            for thing, values in before:
                vars(thing).update(values)
            for container, content in contents:
                container.clear()
                container.extend(content) if isinstance(container, list) else container.update(content)
            raise

    # looking at it

    def stats(self):
        return {
            "queues": {
                q.name: {
                    "entered": q.entered, "ready": q.ready, "outstanding": q.outstanding, "history": q.history,
                    "settled": q.settled, "dropped": dict(q.dropped), "deleted": q.deleted,
                    "dead_lettered": dict(q.dead_lettered),
                } for q in self.queues.values()
            },
            "selectors": {
                s.id: {
                    "credit": s.credit, "available": s.available, "outstanding": s.outstanding, "served": s.served,
                    "copied": s.copied, "dropped": s.dropped, "paid": s.paid, "returned": s.returned,
                    "errors": s.errors, "blocked": s.blocked,
                } for s in self.selectors.values()
            },
        }

    def check(self):
        """Verifies the laws of section 4 by walking over everything."""
        for queue in self.queues.values():
            self._check_queue(queue)
            for entry in queue.entries:
                self._check_entry(entry)
        for selector in self.selectors.values():
            self._check_credit(selector)
        for entry in self.offers:
            require(entry.state in ("bound", "outstanding") and entry.delivery is None, "Links", f"{entry} is offered")
        for delivery in self.taken:
            require(delivery.entry.delivery is delivery, "Links", f"{delivery.entry} was taken")
        if not self.depth:
            self._check_quiet()

    def _check_queue(self, queue):
        where = f"queue {queue.name!r}"
        require(self.queues.get(queue.name) is queue, "Links", where)
        gone = queue.settled + queue.deleted + sum(queue.dropped.values())
        require(queue.entered == queue.ready + queue.outstanding + queue.history + gone, "Conservation", where)
        require(queue.entered == queue.next_id - 1, "Recount", f"{where}: ids are issued one by one")
        ids = [e.id for e in queue.entries]
        require(ids == sorted(set(ids)) and all(1 <= id < queue.next_id for id in ids), "Order", f"{where}: ids ascend")
        for older, newer in zip(queue.entries, queue.entries[1:], strict=False):
            require(older.sequence < newer.sequence, "Order", f"{where}: entries ascend")
            require(older.message.timestamp <= newer.message.timestamp, "Order", f"{where}: timestamps do not descend")
        history = [e for e in queue.entries if e.state == "history"]
        require(sorted(queue.processed, key=lambda e: e.id) == history, "Recount", f"{where}: its history")
        require(queue.history_limit is None or len(history) <= queue.history_limit, "Recount", f"{where}: history_limit")
        for role in ("default", "overflow"):
            require(sum(s.role == role and s.enabled for s in queue.selectors) <= 1, "Links", f"{where}: one {role} selector")
        require(len(set(queue.line)) == len(queue.line), "Links", f"{where}: its line")
        require(all(self.selectors.get(s.id) is s for s in queue.line), "Links", f"{where}: its line has living selectors")

    def _check_entry(self, entry):
        require(entry.state in (*READY, "outstanding", "history"), "Recount", f"{entry} has a known state")
        holder = entry.selector
        if entry.state in ("bound", "outstanding"):
            require(self.selectors.get(holder.id) is holder and holder.source is entry.queue, "Links", f"{entry} has a holder")
            require(holder.infinite == (entry.state == "bound"), "Credit", f"{entry} and its credit")
        else:
            require(holder is None and entry.child is None and entry.delivery is None, "Links", f"{entry} is held by nobody")
        if entry.state == "outstanding":
            forms = [entry.child is not None, entry in self.offers, entry.delivery is not None]
            require(sum(forms) == 1, "Links", f"{entry} was moved, or is offered, or was taken")
        if entry.child is not None:
            child = entry.child
            require(child.parent is entry and child in child.queue.entries, "Links", f"{entry} and its child {child}")
        if entry.parent is not None:
            parent = entry.parent
            require(parent.child is entry and parent.state == "outstanding", "Links", f"{entry} and its parent {parent}")
            require(parent in parent.queue.entries and entry.state != "history", "Links", f"{entry} is not yet paid for")

    def _check_credit(self, selector):
        where = f"selector {selector.id}"
        require(self.queues.get(selector.source.name) is selector.source, "Links", f"{where}: its source")
        target = selector.do.queue
        require(target is None or isinstance(target, Field) or target in self.queues, "Links", f"{where}: its target")
        if selector.infinite:
            require(selector.outstanding == 0, "Credit", f"{where}: INFINITE leaves nothing outstanding")
        else:
            require(selector.available >= 0, "Credit", f"{where}: available")
            require(selector.credit == selector.available + selector.outstanding, "Credit", where)

    def _check_quiet(self):
        """No step is left. Asked in other words: asking `_step` itself would join lines."""
        for entry in self._everywhere("unrouted"):
            routed = not entry.queue.held and any(s.role != "overflow" for s in entry.queue.selectors)
            require(not routed, "Quiet", f"{entry} can be routed")
        for entry in self._everywhere("waiting"):
            able = [s for s in entry.queue.selectors if self._may_take(s, entry) and s.is_able and not entry.queue.held]
            parked = entry.parked and not entry.queue.held and any(self._may_act(s, entry) for s in entry.hits)
            require(not parked, "Quiet", f"{entry} can be routed")
            for selector in able:
                target = self._target(selector, entry.message)
                require(target is not None and selector in target.line, "Quiet", f"{entry} can be taken by {selector.id}")


def fresh(message):
    """A message from outside, or a tuple in publish's order, without what it went through before."""
    if isinstance(message, tuple):
        message = Message(*message)
    return Message(message.address, message.body, dict(message.headers or {}), message.reply_to, message.message_id)


def bounced(message, reason, from_name, detail=None):
    """The envelope mangled (rule 11)."""
    headers = {name: value for name, value in message.headers.items() if name != "xump_detail"}
    headers.setdefault("xump_original_address", message.address)
    headers["xump_bounced_from"] = from_name
    headers["xump_reason"] = reason
    if detail:
        headers["xump_detail"] = detail
    address = message.address if message.reply_to is None else message.reply_to
    return message.replace(address=address, reply_to=None, headers=headers)


def passes(term, entry):
    """One term of a condition: True, False or (a filter) None. What a callable raises is the caller's."""
    message = entry.message
    if isinstance(term, Where):
        if term.tree[0] == "call":
            return bool(term.tree[1](message))
        from tests.match.filter_reference import evaluate
        return evaluate(term.tree, message, entry.delivery_count)
    value = text_in(message, term.field)
    if value is None:
        return False
    if term.operator == "eq":
        return value == term.pattern
    if term.operator == "prefix":
        return value.startswith(term.pattern)
    if term.operator == "topic":
        return topic_matches(words_in(term.pattern), words_in(value))
    return bool(operators.registered(term.operator)(term.pattern, value))


def passes_quietly(term, entry):
    try:
        return passes(term, entry) is True
    except Exception:
        return False


def words_in(text):
    return text.split(".") if text else []


def topic_matches(pattern, words):
    """`*` is one word, `#` any number of words.

    >>> topic_matches(["a", "#"], ["a"]), topic_matches(["*"], [])
    (True, False)
    """
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(topic_matches(rest, words[i:]) for i in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and topic_matches(rest, words[1:])


def text_in(message, field):
    """The text in a field of the message, or None."""
    if field.startswith("headers."):
        value = message.headers.get(field.removeprefix("headers."))
    else:
        value = getattr(message, field)
    return value if isinstance(value, str) else None


def name_in(message, field):
    """The same, if it can be a name."""
    text = text_in(message, field)
    return text if text and len(text.encode()) < 65535 else None


def nanoseconds(moment):
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(f"{moment!r} has no time zone")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def name_of(queue):
    return getattr(queue, "name", queue)


def count(counts, reason):
    counts[reason] = counts.get(reason, 0) + 1


def require(holds, law, where):
    if not holds:
        raise InvariantError(f"{law}: {where}")
