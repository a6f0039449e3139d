"""The engine as a naive model: the rules of routing (docs/routing.md, docs/decisions.md), in RAM, with lists.

The compiled engine is compared with this one call by call, so nothing here is clever. Whatever can be found by walking over
a list is not remembered; only credit is counted, because the law of credit is about that counter.

Theory of operation
-------------------
A queue has a list of **entries** in order of id. An entry is a message in a queue, and is in one state:

    unrouted      not routed yet, or kept until a selector matches it           ready
    waiting       routed; a selector may take it some time                      ready
    bound         waits for your program, which settles it by taking it         ready         (INFINITE DELIVER)
    delayed       since its entry, or to be tried again later                   delayed
    outstanding   taken by a selector, or by hand, and not yet paid for         outstanding   (MOVE, BOUNCE, DELIVER, `get`)
    history       processed, and kept                                           history

What left its queue is "gone", and counted by why. A message that was moved with finite credit is the `parent` of what it became
downstream, its `child`, until it is paid for. Settling an entry pays for its parent, which settles that one, and so on up.

Time is an input: every public call first does what fell due since the last one, moment by moment (`due`).

Every public call then does what it says to the lists, and lets the engine **run**: `while step(): pass`. A step looks at the
waiting entries of all queues, oldest first, for one that a selector can take; else it routes the oldest unrouted one. When no
step is left all is quiet, and whatever is there now "has waited": it begins with an empty visited set, may be dead-lettered
again, and, if it came by dead-lettering, counts no hops. Inside `building()` nothing runs, so nothing becomes quiet either.

Queues may be in durable stores (`tests/model/stores.py` says what is there when they are opened again). What leaves such a queue
for one in RAM for good is still its store's until it ends there, or enters a durable queue: the entry in RAM has it as `owner`.

The nouns are in `entries`, `queues`, `selectors` and `deliveries`; the verbs are functions, in rooms named after what they do:
`books` (enter, take, pay, come home: rules 1, 7 to 10), `room` (rule 1), `matching` and `routing` (rules 2 to 7, 13), `letters`
(rules 11, 12), `graph` (rules 9, 14), `publishing`, `transactions`; `due`, `order`, `bounds` and `requests` (section 9); and
`laws`, which verifies all of them. This file has the calls.

A call that must not do half of its work when it fails (a replay, many messages, a transaction) does it and, when it fails, puts
back what every object and every list held before: see `transactions.all_or_nothing`.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from contextlib import contextmanager

from tests.model import (
    bounds, deliveries, due, graph, laws, letters, maps, outlets, publishing, requests, routing, staging, told, transactions,
)
from tests.model.entries import EITHER, Message
from tests.model.matching import INFINITE
from tests.model.publishing import fresh
from tests.model.queues import Queue
from tests.model.selectors import Selector
from tests.model.transactions import Transaction
from tests.model.values import COUNT_MAX, TIME_MIN, integer, name_of
from tests.model.windows import Window
from xump._mappings import Registry
from xump.errors import Conflict, QueueNotFound, SelectorNotFound, StoreNotFound, WindowNotFound, XumpError
__all__ = ["EITHER", "INFINITE", "Message", "ModelEngine"]


class ModelEngine:
    keeps_what_waited = True      # decision 150

    def __init__(self, *, clock=time.time_ns, hop_limit=64, dead_letter=None):
        self.clock = clock
        self.hop_limit = hop_limit
        self.dead_letter = dead_letter
        self.queue_by_name = {}
        self.selector_by_id = {}
        self.outlets = []
        self.watches = []
        self.window_by_name = {}
        self.window_count = 0
        self.names = []                 # of queues, ever used
        self.offers = []                # bound and outstanding entries that your program may take, in order of offering
        self.taken = []                 # unpaid deliveries in your program's hands, in order of taking
        self.told = None                # of room in durable stores (`told.py`); None: there is always room
        self.stores = ["ram"]
        self.store_maps = defaultdict(dict)
        self.reopened = []              # queues that are held until a building block ends
        self.strayed = set()            # bodies of durable messages that were copied into RAM, or taken back: RAM knows no origin
        self.copies = Counter()         # how often a message, by its body, was copied within a store
        self.publishers = []            # that wait for room, first come first
        self.requests = []              # that wait for replies
        self.request_count = 0
        self.now = 0                    # by the clock, in this call or moment
        self.time = TIME_MIN            # the highest time that there was: what is due is judged by it
        self.room_run = 0               # of the first entry of this run, if room began it
        self.room_start = 0             # sequence of the first entry of the runs that room in stores began …
        self.room_end = -1              # … and of the last one
        self.depth = 0                  # of building blocks
        self.calls = 0                  # that are not over
        self.lacked = 0                 # how many messages have waited for room for their dead letters
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

    def when_durable(self, callable):
        """What was done so far is durable when the call-back is called: the model's disk is idle."""
        self.sync()
        callable(None)

    # calls that build the graph

    @contextmanager
    def building(self):
        self.tick()         # what was due before the block is routed before it
        self.depth += 1
        try:
            yield self
        finally:
            outside = self.depth - 1
            try:
                with self._call():      # what was due in the block is done in it: not routed yet
                    self.depth = outside
                    if not self.depth:
                        released, self.reopened = self.reopened, []
                        routing.release(self, [queue for queue in released if self.queues.get(queue.name) is queue])
            finally:
                self.depth = outside

    def create_queue(self, name=None, *, store="ram", limit=None, history_limit=0, auto_delete=False, dead_letter=None,
                     delivery_limit=None, meta=None, **terms):
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
        queue = Queue(self, name, store, limit, history_limit, auto_delete, name_of(dead_letter), delivery_limit, **terms)
        with self._call():
            if name in self.queues:
                if self.queues[name].properties != queue.properties:
                    raise Conflict(f"queue {name!r} exists with other properties")
                return self.queues[name]
            queue.items.update(maps.checked(dict(meta or {})))
            if meta:
                told.check(self, "map", queue)
            self.queue_by_name[name] = queue
            self.names.append(name)
            letters.expire_in_room(self)
        return queue

    def create_selector(self, source, *, when, do, credit=1, enabled=True, start="current", name=None,
                        ack_timeout=None, rank=0, ahead=None, window=None):
        queue = self._queue(source)
        window = None if window is None else self.windows[name_of(window)]
        selector = Selector(self, self.selector_count + 1, queue, when, do, credit, enabled, start, name, ack_timeout,
                            rank, ahead, window)
        for other in self.selectors.values() if name is not None else ():
            if other.name == name:
                if selector.properties != other.properties:
                    raise Conflict(f"selector {name!r} exists with other properties")
                self.tick()
                return other
        graph.check_selector(self, selector, start)
        with self._call(), transactions.all_or_nothing(self):
            self.selector_count += 1
            self.selector_by_id[selector.id] = selector
            if not selector.consuming:
                routing.start_copying(self, selector, start)
        return selector

    @property
    def windows(self):
        return Registry(self.window_by_name, WindowNotFound, "window")

    def outlet(self, call, destinations=()):
        made = outlets.Outlet(self, call)
        try:
            if destinations:
                made.add_all(destinations)
        except (TypeError, ValueError):
            made.close()
            raise
        return made

    def watch(self, call):
        return outlets.Watch(self, call)

    def create_window(self, credit, *, name=None):
        if name is None:
            self.window_count += 1
            name = f"window-{self.window_count}"
        window = self.window_by_name.get(name) or Window(self, name, credit)
        if credit not in (window.credit, window.first):
            raise Conflict(f"window {name!r} exists with other credit")
        with self._call():
            return self.window_by_name.setdefault(name, window)

    def delete_window(self, window):
        with self._call():
            found = self.window_by_name.get(name_of(window))
            if found and found.selectors:
                raise Conflict(f"window {found.name!r} has selectors")
            return self.window_by_name.pop(name_of(window), None) is not None

    def store_meta(self, name):
        return maps.Meta(lambda: self.store_maps[name], self._call, lambda: told.check(self, "map", maps.Place(name)), name)

    def delete_selector(self, selector, *, recall=True):
        selector = self.selectors.get(getattr(selector, "id", selector))
        if selector is None:
            self.tick()
            return False
        if not recall and selector.consuming and selector.do.queue is not None:
            raise ValueError(f"selector {selector.id} puts messages into a queue: what it moved is recalled")
        with self._call():
            graph.delete_selector(self, selector, recall)
        return True

    def delete_queue(self, name):
        queue = self.queues.get(name_of(name))
        if queue is None:
            self.tick()
            return False
        with self._call():
            staging.check_open(self, queue)
            graph.delete_queue(self, queue)
            letters.expire_in_room(self)
        return True

    # calls that put messages in

    def publish(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None, timeout=0.0, annex=None,
                **terms):
        """Nothing in the model waits: `timeout` is as if it were over. What the reader of an annex yields is in the headers."""
        message = Message(address, body, dict(headers or {}), reply_to, message_id, annex=annex)
        checked = publishing.terms_of(**terms)
        with self._call():
            return publishing.publish(self, queue, message, checked)

    def publish_waiting(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None, **terms):
        """A publish that waits for room in a thread of its own: a `Publisher`, which has an `id` as soon as it is over."""
        publisher = bounds.Publisher(
            queue, Message(address, body, dict(headers or {}), reply_to, message_id), publishing.terms_of(**terms))
        with self._call():
            self.publishers.append(publisher)
        return publisher

    def publish_many(self, queue, messages, *, outcomes=False, **terms):
        checked = publishing.terms_of(**terms)
        if outcomes:
            return self.publish_asking(queue, [(fresh(message), checked) for message in messages], checked.delay)
        return self.publish_rows(queue, [(fresh(message), checked) for message in messages], checked.delay)

    def publish_rows(self, queue, rows, delay=None):
        """`publish_many` for messages that each have terms of their own."""
        if not rows and letters.living(self, self.dead_letter) is None:     # decision 100
            self._queue(queue)
        with self._call(), transactions.all_or_nothing(self):
            if name_of(queue) in self.queues:
                staging.check_publish(self, self._queue(queue), delay)
            found = [publishing.publish_once(self, queue, message, checked) for message, checked in rows]
        ids = [id for id, is_new in found if is_new]
        return range(ids[0], ids[-1] + 1) if ids else range(0)

    def publish_asking(self, queue, rows, delay):
        with self._call(), transactions.all_or_nothing(self):
            if name_of(queue) in self.queues:
                staging.check_publish(self, self._queue(queue), delay)
            trips = [publishing.publish_asking(self, queue, message, checked) for message, checked in rows]
        return [trip.outcome for trip in trips]

    def request(self, queue, address="", body=b"", headers=None, *, timeout=30.0):
        """The reply, if there is one when the call ends."""
        request = self.request_waiting(queue, address, body, headers)
        if request.answer is None:
            self.requests.remove(request)
            raise requests.RequestTimeout(f"no reply from queue {name_of(queue)!r}")
        return request.answer

    def request_waiting(self, queue, address="", body=b"", headers=None):
        """A request that waits for its reply in a thread of its own: a `Request`, which has an `answer` as soon as it is over."""
        is_new = requests.REPLIES not in self.queues
        if is_new and self.dead_letter not in self.queues:
            self._queue(queue)
        self.create_queue(requests.REPLIES)
        self.request_count += 1
        request = requests.Request(f"request-{self.request_count}")
        self.requests.append(request)
        try:
            self.publish(queue, address, body, headers, reply_to=requests.REPLIES, message_id=request.message_id)
        except XumpError:
            self.requests.remove(request)
            if is_new and not self.requests:
                self.delete_queue(requests.REPLIES)
            raise
        return request

    def adopt(self, target, queues, *, meta=None):
        target = self._queue(target)
        with self._call():
            staging.adopt(self, target, queues, dict(meta or {}))

    def enter(self, target, n):
        target = self._queue(target)
        integer("n", n, 1, COUNT_MAX)
        with self._call():
            return staging.enter(self, target, n)

    # calls that take messages out

    def take(self, n, destination=None, *, timeout=0.0):
        taken = []
        with self._call():
            while len(taken) < n and (delivery := deliveries.next_one(self, destination, self.nack_count)) is not None:
                taken.append(delivery)
                routing.finish(self, lets_in=False)
        return taken

    def deliveries(self, destination=None, *, timeout=0.0):
        return self._iterate(destination, self.nack_count)

    def _iterate(self, destination, nack_count):
        while (delivery := deliveries.take_one(self, destination, nack_count)) is not None:
            yield delivery

    def get(self, queue, *, timeout=0.0):
        if self._queue(queue).staged:
            raise ValueError(f"queue {name_of(queue)!r} is staged")
        return deliveries.get(self, self._queue(queue))

    def ack(self, deliveries):
        transactions.commit(self, [("ack", delivery, None) for delivery in deliveries])

    def transaction(self):
        return Transaction(self)

    # running

    @contextmanager
    def _call(self):
        """A public call: the clock is read once; what fell due is done; and when the call has done its work the engine runs."""
        clock = self.clock()
        while (moment := due.next_due(self)) is not None and moment <= max(clock, self.time):
            self.now = self.time = max(moment, self.time)
            due.do_what_is_due(self)
            routing.finish(self)
            while self.told is not None and self.told.had_room_by(moment):
                self.go_on(self.told.before.pop(0))
        self.now, self.time = clock, max(clock, self.time)
        if self.told is not None:
            self.told.begin(self)
            self.now = clock
        self.calls += 1
        try:
            yield
            routing.finish(self)
        finally:
            self._end_call()

    def _end_call(self):
        self.calls -= 1
        if not self.calls:
            for one in (*self.watches, *self.outlets):
                one.tell()

    def go_on(self, limits):
        """A store has room again: a run of its own, up to these limits, at the time that it is."""
        self.told.now = limits
        self.now = self.time
        self.calls += 1
        self.room_run = self.sequence + 1
        if self.sequence == self.room_end:      # nothing came since the last one: they are one run (decision 303)
            routing.wake_up(self, self.room_start)
        else:
            self.room_start = self.sequence + 1
        letters.expire_in_room(self)
        routing.finish(self, lets_in=False)
        self.room_end = self.sequence
        if not self.depth and bounds.let_in(self):
            routing.finish(self)
        self._end_call()

    @property
    def next_due(self):
        return due.next_due(self)

    def tick(self):
        """What fell due, and nothing else."""
        with self._call():
            pass

    def _queue(self, queue):
        name = name_of(queue)
        if name not in self.queues:
            raise QueueNotFound(f"no queue {name!r}; there are {', '.join(self.queues)}")
        return self.queues[name]

    # looking at it

    def stats(self):
        return {
            "queues": {
                q.name: {
                    "entered": q.entered, "ready": q.ready, "delayed": q.delayed, "outstanding": q.outstanding,
                    "history": q.history, "settled": q.settled, "dropped": dict(q.dropped), "deleted": q.deleted,
                    "dead_lettered": dict(q.dead_lettered), "duplicates": q.duplicates,
                    "late": q.dropped.get("late", 0), "entering": q.entering,
                    "meta_bytes": sum(len(name.encode()) + len(value) for name, value in q.items.items()),
                } for q in self.queues.values()
            },
            "selectors": {
                s.id: {
                    "credit": s.credit, "available": s.available, "outstanding": s.outstanding, "served": s.served,
                    "copied": s.copied, "dropped": s.dropped, "paid": s.paid, "returned": s.returned,
                    "errors": s.errors, "blocked": s.blocked,
                } for s in self.selectors.values()
            },
            "windows": {
                w.name: {"credit": w.credit, "available": w.available, "outstanding": w.outstanding,
                         "selectors": len(w.selectors)}
                for w in self.windows.values()
            },
        }

    def check(self):
        """Verifies the laws by walking over everything."""
        laws.check(self)
